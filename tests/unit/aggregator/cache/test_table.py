"""What the table in memory promises beyond the rules of all tables: whole revisions, causes, failing bells, memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from itertools import pairwise

import pytest

from aggregator.cache.table import Cursor, Table

Key = tuple[str, ...]

A, B, C, D = ("west", "a"), ("west", "b"), ("west", "c"), ("west", "d")
OTHER = ("east", "a")


def filled(*rows: tuple[Key, int]) -> Table[Key, int]:
    table: Table[Key, int] = Table("numbers")
    table.apply(rows)
    return table


def entries(table: Table[Key, int], partition: str = "west") -> int:
    return len(table._partitions.by_name[partition].log)


# Writing


def test_apply_returns_the_revision_of_the_table() -> None:
    table = filled()
    assert table.apply([(A, 1)]) == 1
    assert table.apply([(A, 1)]) == 1
    assert table.apply([(A, 2), (OTHER, 1)]) == table.revision == 2


def test_equal_content_leaves_the_object_that_was_there() -> None:
    table: Table[Key, list[int]] = Table("lists")
    first = [1]
    table.apply([(A, first)])
    table.replace(("west",), [(A, [1])])
    assert table.get(A) is first


def test_of_a_key_given_twice_the_last_value_counts() -> None:
    table = filled((A, 1))
    table.apply([(B, 1), (A, 5), (B, None)])
    assert dict(table.scan()) == {A: 5}


def test_changes_that_raise_leave_the_table_as_it_was() -> None:
    table = filled((A, 1))
    cursor = table.cursor(from_start=False)

    def broken() -> object:
        yield (A, 2)
        raise LookupError("half way")

    with pytest.raises(LookupError):
        table.apply(broken())  # type: ignore[arg-type]
    assert dict(table.scan()) == {A: 1}
    assert not cursor.pending


def test_replace_of_a_longer_prefix_leaves_its_neighbours() -> None:
    table = filled((("west", "pod", "x"), 1), (("west", "pod", "y"), 2), (("west", "node", "x"), 3))
    table.replace(("west", "pod"), [(("west", "pod", "y"), 5)])
    assert dict(table.scan()) == {("west", "pod", "y"): 5, ("west", "node", "x"): 3}


@pytest.mark.parametrize("outside", [("east", "pod"), ("west", "node"), ("west",)])
def test_replace_refuses_items_outside_of_its_prefix(outside: Key) -> None:
    table = filled((("west", "pod"), 1))
    with pytest.raises(ValueError, match="not under the prefix"):
        table.replace(("west", "pod"), [(outside, 1)])
    assert dict(table.scan()) == {("west", "pod"): 1}


def test_replace_refuses_an_empty_prefix() -> None:
    with pytest.raises(ValueError, match="prefix"):
        filled((A, 1)).replace((), [])


def test_a_change_while_scanning_ends_the_scan() -> None:
    table = filled((A, 1), (B, 2))
    rows = table.scan()
    next(rows)
    table.apply([(C, 3)])
    with pytest.raises(RuntimeError, match="changed size"):
        list(rows)


# Whole revisions


def test_revisions_that_changed_the_same_key_again_are_taken_as_one() -> None:
    table = filled()
    cursor = table.cursor("west")
    table.apply([(A, 1), (B, 1)])
    table.apply([(C, 1)])
    table.apply([(A, 2), (D, 2)])
    # Taken alone, the first revision would show A of the third without D of the third, or B without A.
    assert cursor.take(limit=1).changes == {B: 1, C: 1, A: 2, D: 2}


def test_revisions_with_keys_of_their_own_are_taken_apart() -> None:
    table = filled()
    cursor = table.cursor("west")
    for number in range(4):
        table.apply([(("west", str(number)), number)])
    assert [len(cursor.take(limit=2).changes) for _ in range(3)] == [2, 2, 0]


def test_a_key_changed_before_the_reader_came_does_not_bind_revisions_for_it() -> None:
    table = filled()
    slow = table.cursor("west")
    table.apply([(A, 1)])
    quick = table.cursor("west", from_start=False)
    table.apply([(B, 1)])
    table.apply([(C, 1)])
    assert quick.take(limit=1).changes == {B: 1}
    assert slow.take(limit=1).changes == {A: 1}
    assert quick.take().changes == {C: 1}
    assert slow.take().changes == {B: 1, C: 1}


def test_a_limit_must_take_something() -> None:
    with pytest.raises(ValueError, match="limit"):
        filled((A, 1)).cursor().take(limit=0)


def test_a_busy_partition_starves_no_other() -> None:
    table = filled()
    cursor = table.cursor()
    cursor.take()
    for number in range(100):
        table.apply([(("busy", str(number)), number)])
    table.apply([(A, 1)])
    assert cursor.take(limit=10).changes.items() >= {A: 1}.items()
    assert cursor.pending


def test_partitions_take_turns_over_several_takes() -> None:
    table = filled()
    cursor = table.cursor()
    cursor.take()
    for number in range(6):
        for name in ("one", "two", "three"):
            table.apply([((name, str(number)), number)])
    firsts = [next(iter(cursor.take(limit=1).changes))[0] for _ in range(6)]
    assert firsts == ["one", "two", "three"] * 2


# From the start, in pages


def pages(cursor: Cursor[Key, int], limit: int) -> list[dict[Key, int | None]]:
    found = []
    while cursor.pending:
        found.append(dict(cursor.take(limit).changes))
    return found


def test_pages_follow_the_order_of_creation() -> None:
    table = filled((B, 1), (A, 2), (C, 3))
    assert pages(table.cursor("west"), 2) == [{B: 1, A: 2}, {C: 3}]


def test_what_changes_before_its_page_comes_once_at_its_newest_value() -> None:
    table = filled((A, 1), (B, 1), (C, 1))
    cursor = table.cursor("west")
    assert cursor.take(1).changes == {A: 1}
    table.apply([(B, 2), (D, 2)])
    assert pages(cursor, 1) == [{C: 1}, {B: 2, D: 2}]


def test_what_is_deleted_between_pages_comes_as_none() -> None:
    table = filled((A, 1), (B, 1), (C, 1))
    cursor = table.cursor("west")
    cursor.take(1)
    table.apply([(A, None)])
    table.apply([(B, None)])
    assert pages(cursor, 1) == [{C: 1}, {A: None}, {B: None}]


def test_what_was_deleted_before_the_first_take_does_not_come() -> None:
    table = filled((A, 1), (B, 1))
    cursor = table.cursor("west")
    table.apply([(A, None)])
    assert cursor.take(5).changes == {B: 1}


def test_a_take_without_limit_after_pages_takes_all_the_rest() -> None:
    table = filled((A, 1), (B, 1), (OTHER, 1))
    cursor = table.cursor()
    first = cursor.take(1).changes
    table.apply([(C, 1)])
    assert {**first, **cursor.take().changes} == {A: 1, B: 1, C: 1, OTHER: 1}
    assert not cursor.pending


def test_a_cursor_from_the_start_of_an_empty_table_rings_at_the_first_row() -> None:
    rung: list[bool] = []
    table = filled()
    cursor = table.cursor(bell=lambda: rung.append(True))
    assert not cursor.pending
    table.apply([(A, 1)])
    assert rung == [True]


# Causes


def test_the_cause_of_several_partitions_is_given_once() -> None:
    table = filled()
    cursor = table.cursor()
    cause = object()
    table.apply([(A, 1), (OTHER, 1)], cause)
    assert cursor.take().causes == (cause,)


def test_causes_come_in_the_order_of_revisions() -> None:
    table = filled()
    cursor = table.cursor()
    table.apply([(A, 1)], "first")
    table.apply([(OTHER, 1)], "second")
    table.apply([(B, 1)], "third")
    assert cursor.take().causes == ("first", "second", "third")


def test_causes_stay_with_the_revisions_that_a_limit_leaves() -> None:
    table = filled()
    cursor = table.cursor("west")
    table.apply([(A, 1)], "first")
    table.apply([(B, 1)], "second")
    assert cursor.take(1).causes == ("first",)
    assert cursor.take(1).causes == ("second",)


def test_the_newest_64_causes_are_kept_and_the_others_counted() -> None:
    table = filled()
    one, all_of_it = table.cursor("west"), table.cursor()
    for number in range(100):
        table.apply([(A, number)], number)
    for cursor in (one, all_of_it):
        batch = cursor.take()
        assert batch.causes == tuple(range(36, 100))
        assert batch.dropped == 36
    table.apply([(A, -1)], "next")
    assert (one.take().dropped, one.take().causes) == (0, ())


def test_a_change_without_cause_adds_none() -> None:
    table = filled()
    cursor = table.cursor()
    table.apply([(A, 1)])
    assert cursor.take().causes == ()


# Bells


def test_a_failing_bell_stops_neither_the_change_nor_the_other_bells() -> None:
    table = filled()
    rung = []

    def broken() -> None:
        raise LookupError("broken bell")

    failing = table.cursor(bell=broken)
    table.cursor(bell=lambda: rung.append(True))
    with pytest.raises(ExceptionGroup) as raised:
        table.apply([(A, 1)])
    assert raised.group_contains(LookupError, match="broken bell")
    assert rung == [True]
    assert failing.take().changes == {A: 1}
    assert table.get(A) == 1


def test_a_bell_may_take_and_write() -> None:
    table = filled()
    taken: list[dict[Key, int | None]] = []

    def answer() -> None:
        changes = cursor.take().changes
        taken.append(dict(changes))
        if A in changes:
            table.apply([(B, 2)])

    cursor = table.cursor(bell=answer)
    table.apply([(A, 1)])
    assert taken == [{A: 1}, {B: 2}]


def test_a_bell_that_closes_another_cursor_silences_it() -> None:
    table = filled()
    rung = []

    def silence() -> None:
        second.close()

    first = table.cursor(bell=silence)
    second = table.cursor(bell=lambda: rung.append(True))
    table.apply([(A, 1)])
    assert rung == []
    assert first.pending


def test_after_a_limited_take_the_bell_rings_only_when_all_was_taken() -> None:
    table = filled()
    rung = []
    cursor = table.cursor("west", bell=lambda: rung.append(True))
    table.apply([(A, 1)])
    table.apply([(B, 1)])
    cursor.take(1)
    table.apply([(C, 1)])
    assert len(rung) == 1
    while cursor.pending:
        cursor.take(1)
    table.apply([(D, 1)])
    assert len(rung) == 2


# Memory


def test_without_cursors_nothing_is_logged() -> None:
    table = filled((A, 1), (B, 1))
    table.apply([(A, 2)])
    assert entries(table) == 0


def test_a_cursor_not_yet_begun_makes_the_table_log_nothing() -> None:
    table = filled((A, 1))
    table.cursor("west")
    table.cursor()
    table.apply([(A, 2), (B, 1)])
    assert entries(table) == 0


def test_once_all_cursors_have_passed_the_log_is_empty() -> None:
    table = filled()
    cursors = [table.cursor("west"), table.cursor(), table.cursor("west")]
    table.apply([(A, 1), (B, 1)])
    for cursor, left in zip(cursors, (2, 2, 0), strict=True):
        cursor.take()
        assert entries(table) == left


def test_closing_the_last_cursor_behind_empties_the_log() -> None:
    table = filled((D, 0))
    slow, quick = table.cursor("west"), table.cursor("west")
    slow.take()
    table.apply([(A, 1)])
    quick.take()
    slow.close()
    assert entries(table) == 0


def test_a_cursor_that_never_takes_costs_two_entries_per_key_at_most() -> None:
    table = filled((D, 0))
    table.cursor("west", from_start=False)
    for number in range(10_000):
        table.apply([(("west", str(number % 100)), number)], cause=number)
    assert entries(table) <= 2 * 100 + 32


def test_the_log_of_a_slow_cursor_is_trimmed_while_it_moves() -> None:
    table = filled((D, 0))
    slow, quick = table.cursor("west", from_start=False), table.cursor("west", from_start=False)
    for number in range(5000):
        table.apply([(("west", str(number)), number)])
        quick.take()
    while len(slow.take(100).changes) == 100 and slow.pending:
        table.apply([(("west", f"more {table.revision}"), 1)])
    table.apply([(D, 1)])
    quick.take()
    assert entries(table) <= 2 * 100


def test_cursors_at_one_place_share_what_they_take() -> None:
    table = filled((D, 0))
    cursors = [table.cursor("west", from_start=False) for _ in range(3)]
    table.apply([(A, 1)])
    batches = [cursor.take() for cursor in cursors]
    assert all(one.changes is other.changes for one, other in pairwise(batches))


def test_what_is_shared_is_not_what_was_there_before_a_later_change() -> None:
    table = filled((D, 0))
    quick, slow = table.cursor("west", from_start=False), table.cursor("west", from_start=False)
    table.apply([(A, 1)])
    quick.take()
    table.apply([(A, 2)])
    assert slow.take().changes == {A: 2}


def test_cursors_at_different_places_take_their_own() -> None:
    table = filled((D, 0))
    slow = table.cursor("west", from_start=False)
    table.apply([(A, 1)])
    quick = table.cursor("west", from_start=False)
    table.apply([(B, 1)])
    assert quick.take().changes == {B: 1}
    assert slow.take().changes == {A: 1, B: 1}


def test_a_partition_that_is_empty_and_read_to_the_end_leaves_nothing() -> None:
    table = filled()
    everything, west = table.cursor(), table.cursor("west")
    table.apply([(A, 1)])
    everything.take()
    west.take()
    table.replace(("west",), [])
    everything.take()
    west.close()
    assert not table._partitions.by_name
    assert not everything._readers


def test_an_empty_partition_stays_until_its_deletions_were_taken() -> None:
    table = filled((A, 1))
    cursor = table.cursor()
    cursor.take()
    table.apply([(A, None)])
    assert cursor.take().changes == {A: None}
    table.apply([(A, 5)])
    assert cursor.take().changes == {A: 5}


def test_a_thousand_joins_and_leaves_leave_nothing_behind() -> None:
    table = filled((OTHER, 1))
    everything = table.cursor()
    everything.take()

    def join_and_leave(number: int) -> None:
        name = f"cluster-{number}"
        cursor = table.cursor(name)
        table.replace((name,), [((name, str(row)), row) for row in range(100)], cause=name)
        table.root(name)
        assert len(cursor.take().changes) == 100
        everything.take()
        table.replace((name,), [])
        everything.take()
        cursor.close()

    join_and_leave(-1)
    tracemalloc.start()
    try:
        for number in range(500):
            join_and_leave(number)
        half = tracemalloc.get_traced_memory()[0]
        for number in range(500, 1000):
            join_and_leave(number)
        grown = tracemalloc.get_traced_memory()[0] - half
    finally:
        tracemalloc.stop()
    assert list(table._partitions.by_name) == ["east"]
    assert list(everything._readers) == ["east"]
    assert grown < 2000, "500 clusters came and went"


# Rows that count as changed though they are equal.


def test_rows_that_repeat_are_heard_of_in_the_revision_of_what_they_repeat_for() -> None:
    table: Table[Key, int] = Table("numbers", repeats=lambda rows, changes: [B] if (A, 2) in changes else [])
    table.apply([(A, 1), (B, 1), (C, 1)])
    cursor = table.cursor(from_start=False)
    table.apply([(A, 3)])
    assert cursor.take().changes == {A: 3}
    revision = table.apply([(A, 2)])
    batch = cursor.take()
    assert (batch.changes, batch.revision) == ({A: 2, B: 1}, revision)


def test_what_repeats_is_asked_of_the_rows_as_they_were() -> None:
    seen: list[dict[Key, int]] = []

    def repeats(rows: Mapping[Key, int], changes: object) -> tuple[Key, ...]:
        seen.append(dict(rows))
        return ()

    table: Table[Key, int] = Table("numbers", repeats=repeats)
    table.apply([(A, 1)])
    table.apply([(A, 2), (OTHER, 1)])
    assert seen == [{A: 1}]


def test_the_root_is_not_changed_by_rows_that_repeat() -> None:
    table: Table[Key, int] = Table("numbers", repeats=lambda rows, changes: [key for key in rows if key == B])
    table.apply([(A, 1), (B, 1)])
    table.root("west")
    table.apply([(A, 2)])
    assert table.root("west") == filled((A, 2), (B, 1)).root("west")
