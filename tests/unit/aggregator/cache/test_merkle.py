"""Roots and buckets: equal content, equal root, in any order, process and age; any difference shows, and where."""

from __future__ import annotations

import random

import msgspec
import pytest

from aggregator.cache.merkle import BUCKETS, Tree, bucket_of, content_digest, difference, encode_key
from aggregator.cache.table import Table

Key = tuple[str, ...]


class Pod(msgspec.Struct, frozen=True, tag=True):
    node: str
    labels: tuple[tuple[str, str], ...] = ()


def table_of(rows: dict[Key, Pod]) -> Table[Key, Pod]:
    table: Table[Key, Pod] = Table("pods")
    table.apply(rows.items())
    return table


ROWS: dict[Key, Pod] = {("west", "Pod", "shop", f"web-{number}"): Pod(f"node-{number % 7}") for number in range(500)}
ONE: Key = ("west", "Pod", "shop", "web-1")


def test_the_root_is_the_same_in_every_process_and_version() -> None:
    table: Table[Key, str] = Table("names")
    table.apply([(("west", "a"), "one"), (("east", "b"), "two")])
    assert table.root().hex() == "f97e396272343ee02bb6dfa5d8e11565"
    assert table.root("west").hex() == "d222cc46ddc4de4cd357167f145ad4cf"


def test_the_order_of_arrival_does_not_matter() -> None:
    rows = list(ROWS.items())
    random.Random(1).shuffle(rows)
    assert table_of(dict(rows)).root() == table_of(ROWS).root()


def test_what_came_and_went_does_not_matter() -> None:
    table = table_of(ROWS)
    table.root()
    gone: Key = ("west", "Pod", "shop", "gone")
    table.apply([(gone, Pod("x")), (ONE, Pod("elsewhere"))])
    table.root()
    table.apply([(gone, None), (ONE, ROWS[ONE])])
    assert table.root() == table_of(ROWS).root()


def test_roots_kept_up_to_date_equal_roots_made_anew() -> None:
    table = table_of(ROWS)
    for number in range(20):
        table.apply([(("west", "Pod", "shop", f"web-{number}"), Pod(f"moved-{number}"))])
        if number % 3 == 0:
            table.root()
    assert table.root("west") == table_of(dict(table.scan())).root("west")


@pytest.mark.parametrize(
    "change",
    [
        {ONE: Pod("elsewhere")},
        {ONE: Pod("node-1", (("app", "web"),))},
        {("west", "Pod", "shop", "new"): Pod("node-1")},
    ],
)
def test_every_change_changes_the_root(change: dict[Key, Pod]) -> None:
    assert table_of({**ROWS, **change}).root("west") != table_of(ROWS).root("west")


def test_values_that_change_places_change_the_root() -> None:
    first, second = ("west", "a"), ("west", "b")
    assert table_of({first: Pod("x"), second: Pod("y")}).root() != table_of({first: Pod("y"), second: Pod("x")}).root()


def test_rows_that_change_partition_change_the_root() -> None:
    assert table_of({("west", "a"): Pod("x")}).root() != table_of({("east", "a"): Pod("x")}).root()


def test_an_empty_partition_has_the_root_of_an_unknown_one_and_none_in_the_table() -> None:
    table = table_of({("west", "a"): Pod("x"), ("east", "a"): Pod("x")})
    cursor = table.cursor("east")
    table.root()
    table.replace(("east",), [])
    assert table.root("east") == table.root("unknown")
    assert table.root() == table_of({("west", "a"): Pod("x")}).root()
    cursor.close()


def test_buckets_that_differ_are_those_of_the_keys_that_differ() -> None:
    other = table_of({**ROWS, ONE: Pod("elsewhere")})
    assert difference(table_of(ROWS).buckets("west"), other.buckets("west")) == (bucket_of(ONE),)


def test_buckets_of_equal_copies_do_not_differ() -> None:
    assert difference(table_of(ROWS).buckets("west"), table_of(ROWS).buckets("west")) == ()


def test_an_unknown_partition_has_the_buckets_of_nothing() -> None:
    assert Table[Key, Pod]("pods").buckets("west") == (0,) * BUCKETS


def test_keys_spread_over_the_buckets() -> None:
    assert len({bucket_of(key) for key in ROWS}) > BUCKETS // 2


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", "b"), ("ab",)), (("a", ""), ("a",)), (("a", "bc"), ("ab", "c")), (("\ud800",), ("?",))],
)
def test_different_keys_are_written_differently(one: Key, other: Key) -> None:
    assert encode_key(one) != encode_key(other)


def test_equal_values_have_equal_digests_whatever_their_inner_order() -> None:
    assert content_digest({"a": 1, "b": {3, 1, 2}}) == content_digest({"b": {2, 3, 1}, "a": 1})


def test_a_digest_that_raises_leaves_the_root_to_be_asked_for_again() -> None:
    broken = {"yes": True}

    def digest(value: Pod) -> bytes:
        if broken and value.node == "node-3":
            raise LookupError
        return content_digest(value)

    table: Table[Key, Pod] = Table("pods", digest)
    table.apply(ROWS.items())
    with pytest.raises(LookupError):
        table.root()
    table.apply([(ONE, Pod("elsewhere"))])
    broken.clear()
    assert table.root() == table_of({**ROWS, ONE: Pod("elsewhere")}).root()


def test_nothing_is_digested_before_a_root_is_asked_for_and_then_only_what_changed() -> None:
    digested: list[Pod] = []

    def digest(value: Pod) -> bytes:
        digested.append(value)
        return content_digest(value)

    table: Table[Key, Pod] = Table("pods", digest)
    table.apply(ROWS.items())
    assert not digested
    table.root()
    assert len(digested) == len(ROWS)
    digested.clear()
    table.apply([(ONE, Pod("elsewhere"))])
    table.apply([(ONE, Pod("further"))])
    table.root()
    assert digested == [Pod("further"), ROWS[ONE]]


def test_a_tree_nobody_asks_does_not_hold_on_to_old_values() -> None:
    table: Table[Key, Pod] = Table("pods")
    rows: dict[Key, Pod] = {("west", str(number)): Pod("x") for number in range(2000)}
    table.apply(rows.items())
    before = table.root()
    for key in rows:
        table.apply([(key, Pod("y"))])
    tree = table._partitions.by_name["west"].tree
    assert tree is None or len(tree._before) <= 1024
    table.apply(rows.items())
    assert table.root() == before


def test_a_tree_is_stale_once_half_of_a_large_partition_waits() -> None:
    rows: dict[Key, int] = {("west", str(number)): number for number in range(5000)}
    tree: Tree[Key, int] = Tree(rows, content_digest)
    tree.buckets(rows)
    for count, key in enumerate(rows, 1):
        tree.note(key, rows[key])
        assert tree.stale(len(rows)) == (count > 2500)
