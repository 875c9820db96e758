"""The rules every table keeps, whoever stands behind it: one suite, run over a table in memory and over a table at the
far end of a journal. A rig offers a table to write to, a table to read from, and brings the second up to the first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from aggregator.cache.journal import MemoryJournal
from aggregator.cache.replication import Follower, MessagePackCodec, Publisher
from aggregator.cache.table import Table

Key = tuple[str, ...]


class Rig(NamedTuple):
    write: Table[Key, int]
    read: Table[Key, int]
    settle: Callable[[], Awaitable[None]]


def in_memory() -> Rig:
    table: Table[Key, int] = Table("direct")

    async def settle() -> None:
        """A reader of the same table has it all at once."""

    return Rig(table, table, settle)


def through_a_journal() -> Rig:
    near: Table[Key, int] = Table("near")
    far: Table[Key, int] = Table("far")
    journal = MemoryJournal()
    codec: MessagePackCodec[int] = MessagePackCodec(int)

    async def epoch() -> int:
        return 1

    publisher = Publisher(near, journal, "numbers", codec, epoch=epoch, complete=lambda: True)
    follower = Follower(far, journal, "numbers", codec)

    async def settle() -> None:
        await publisher.step()
        await follower.step()

    return Rig(near, far, settle)


@pytest.fixture(params=[in_memory, through_a_journal])
def rig(request: pytest.FixtureRequest) -> Rig:
    made: Rig = request.param()
    return made


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


A, B, C = ("west", "a"), ("west", "b"), ("west", "c")
OTHER = ("east", "a")


async def test_what_was_set_is_found_by_key_and_by_scan(rig: Rig) -> None:
    rig.write.apply([(A, 1), (B, 2), (OTHER, 3)])
    await rig.settle()
    assert rig.read.get(A) == 1
    assert rig.read.get(C) is None
    assert dict(rig.read.scan()) == {A: 1, B: 2, OTHER: 3}
    assert dict(rig.read.scan(("west",))) == {A: 1, B: 2}
    assert dict(rig.read.scan(("west", "b"))) == {B: 2}
    assert len(rig.read) == 3
    assert sorted(rig.read.partitions()) == ["east", "west"]


async def test_none_deletes(rig: Rig) -> None:
    rig.write.apply([(A, 1), (B, 2)])
    await rig.settle()
    rig.write.apply([(A, None)])
    await rig.settle()
    assert dict(rig.read.scan()) == {B: 2}


async def test_equal_content_makes_no_revision_and_wakes_nobody(rig: Rig) -> None:
    rig.write.apply([(A, 1), (B, 2)])
    await rig.settle()
    bell = Bell()
    cursor = rig.read.cursor(bell=bell, from_start=False)
    before = rig.read.revision
    rig.write.apply([(A, 1), (C, None)])
    rig.write.replace(("west",), [(B, 2), (A, 1)])
    rig.write.apply([(A, 7), (A, 1)])
    await rig.settle()
    assert rig.read.revision == before
    assert bell.rung == 0
    assert not cursor.pending


async def test_replace_deletes_what_is_not_given_and_touches_the_difference_only(rig: Rig) -> None:
    rig.write.apply([(A, 1), (B, 2), (OTHER, 3)])
    await rig.settle()
    cursor = rig.read.cursor(from_start=False)
    rig.write.replace(("west",), [(A, 1), (C, 4)])
    await rig.settle()
    assert cursor.take().changes == {B: None, C: 4}
    assert dict(rig.read.scan()) == {A: 1, C: 4, OTHER: 3}


async def test_one_call_is_one_revision(rig: Rig) -> None:
    rig.write.apply([(A, 1)])
    await rig.settle()
    before = rig.read.revision
    rig.write.apply([(B, 2), (C, 3), (OTHER, 4)])
    await rig.settle()
    assert rig.read.revision == before + 1


async def test_a_cursor_from_the_start_takes_the_present_content_first(rig: Rig) -> None:
    rig.write.apply([(A, 1), (OTHER, 2)])
    await rig.settle()
    everything, west = rig.read.cursor(), rig.read.cursor("west")
    assert everything.pending
    assert everything.take().changes == {A: 1, OTHER: 2}
    assert west.take().changes == {A: 1}
    assert not everything.pending


async def test_a_cursor_not_from_the_start_takes_only_what_changes_later(rig: Rig) -> None:
    rig.write.apply([(A, 1)])
    await rig.settle()
    cursor = rig.read.cursor(from_start=False)
    assert not cursor.pending
    assert cursor.take().changes == {}
    rig.write.apply([(B, 2)])
    await rig.settle()
    assert cursor.take().changes == {B: 2}


async def test_a_cursor_takes_the_newest_value_of_each_key_once(rig: Rig) -> None:
    cursor = rig.read.cursor("west")
    for value in (1, 2, 3):
        rig.write.apply([(A, value)])
        await rig.settle()
    rig.write.apply([(B, 1)])
    await rig.settle()
    assert cursor.take().changes == {A: 3, B: 1}
    assert cursor.take().changes == {}


async def test_a_deletion_is_taken_as_none(rig: Rig) -> None:
    rig.write.apply([(A, 1)])
    await rig.settle()
    cursor = rig.read.cursor()
    cursor.take()
    rig.write.apply([(A, None)])
    await rig.settle()
    assert cursor.take().changes == {A: None}


async def test_a_cursor_of_one_partition_hears_nothing_of_others(rig: Rig) -> None:
    bell = Bell()
    cursor = rig.read.cursor("west", bell)
    rig.write.apply([(OTHER, 1)])
    await rig.settle()
    assert bell.rung == 0
    assert cursor.take().changes == {}


async def test_a_cursor_of_all_partitions_hears_of_new_ones(rig: Rig) -> None:
    bell = Bell()
    cursor = rig.read.cursor(bell=bell)
    cursor.take()
    rig.write.apply([(("new", "a"), 1)])
    await rig.settle()
    assert bell.rung == 1
    assert cursor.take().changes == {("new", "a"): 1}


async def test_the_bell_rings_once_until_everything_was_taken(rig: Rig) -> None:
    bell = Bell()
    cursor = rig.read.cursor(bell=bell)
    for value in (1, 2):
        rig.write.apply([(A, value), (OTHER, value)])
        await rig.settle()
    assert bell.rung == 1
    cursor.take()
    rig.write.apply([(A, 3)])
    await rig.settle()
    assert bell.rung == 2


async def test_when_the_bell_rings_the_change_is_there_for_everyone(rig: Rig) -> None:
    seen: list[tuple[int | None, object]] = []
    other = rig.read.cursor()
    rig.read.cursor(bell=lambda: seen.append((rig.read.get(B), dict(other.take().changes))))
    rig.write.apply([(A, 1), (B, 2)])
    await rig.settle()
    assert seen == [(2, {A: 1, B: 2})]


async def test_a_closed_cursor_hears_nothing_and_refuses_to_take(rig: Rig) -> None:
    bell = Bell()
    cursor = rig.read.cursor(bell=bell)
    cursor.close()
    cursor.close()
    rig.write.apply([(A, 1)])
    await rig.settle()
    assert bell.rung == 0
    assert not cursor.pending
    with pytest.raises(RuntimeError, match="closed"):
        cursor.take()


async def test_a_limit_never_tears_a_revision(rig: Rig) -> None:
    cursor = rig.read.cursor("west")
    rig.write.apply([(A, 1), (B, 1), (C, 1)])
    await rig.settle()
    rig.write.apply([(("west", "d"), 1)])
    await rig.settle()
    assert cursor.take(limit=1).changes == {A: 1, B: 1, C: 1}
    assert cursor.pending
    assert cursor.take(limit=1).changes == {("west", "d"): 1}
    assert not cursor.pending


async def test_content_from_the_start_comes_in_pages_of_the_limit(rig: Rig) -> None:
    rig.write.apply([((f"c{number % 2}", str(number)), number) for number in range(10)])
    await rig.settle()
    cursor = rig.read.cursor()
    taken: dict[Key, int | None] = {}
    while cursor.pending:
        changes = cursor.take(limit=4).changes
        assert len(changes) <= 4
        assert not taken.keys() & changes.keys()
        taken.update(changes)
    assert taken == dict(rig.read.scan())


async def test_a_batch_carries_a_cause_and_the_revision_it_brings_the_reader_to(rig: Rig) -> None:
    cursor = rig.read.cursor()
    rig.write.apply([(A, 1), (OTHER, 1)], cause="a push")
    await rig.settle()
    batch = cursor.take()
    assert len(batch.causes) == 1
    assert batch.revision == rig.read.revision


async def test_equal_content_has_an_equal_root_in_whatever_order_it_came(rig: Rig) -> None:
    other: Table[Key, int] = Table("other")
    other.apply([(OTHER, 3), (B, 2), (A, 1)])
    rig.write.apply([(A, 9)])
    await rig.settle()
    assert rig.read.root() != other.root()
    rig.write.apply([(C, 4), (OTHER, 3), (A, 1), (B, 2)])
    await rig.settle()
    rig.write.apply([(C, None)])
    await rig.settle()
    assert rig.read.root() == other.root()
    assert rig.read.root("west") == other.root("west")
    assert rig.read.root("west") != rig.read.root("east")
