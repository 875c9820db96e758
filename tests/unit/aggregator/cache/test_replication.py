"""Publishers and followers, one rule at a time: what is said when, what is believed when, what is never withdrawn."""

from __future__ import annotations

import copy
import sys
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from aggregator.cache.journal import DELETED, Entry, Fenced, MemoryJournal, Position, Records, Snapshot
from aggregator.cache.replication import Follower, MessagePackCodec, Publisher, Replicated
from aggregator.cache.table import Table
from tests.kit.flaky_journal import FlakyJournal, Unreachable

Key = tuple[str, ...]

OWNER = "facts/west"
A, B, C = ("west", "a"), ("west", "b"), ("west", "c")


class Leadership:
    """Hands out the epoch of the present leader; None for everyone else."""

    def __init__(self) -> None:
        self.epochs: dict[str, int | None] = {}
        self.asked = 0

    def ask(self, name: str) -> Callable[[], Awaitable[int | None]]:
        async def epoch() -> int | None:
            self.asked += 1
            return self.epochs.get(name)

        return epoch


class World:
    """A table and its publisher, a journal, and a table that follows."""

    def __init__(self, retained: int = 1000) -> None:
        self.store = MemoryJournal(retained)
        self.journal = FlakyJournal(self.store)
        self.leadership = Leadership()
        self.leadership.epochs["first"] = 1
        self.complete = True
        self.near, self.publisher = self.start_publisher("first")
        self.far: Table[Key, int] = Table("far")
        self.follower = self.start_follower(self.far)

    def start_publisher(self, name: str) -> tuple[Table[Key, int], Publisher[Key, int]]:
        table: Table[Key, int] = Table(f"near {name}")
        return table, Publisher(
            table,
            self.journal,
            OWNER,
            MessagePackCodec[int](int),
            epoch=self.leadership.ask(name),
            complete=lambda: self.complete,
            partition="west",
        )

    def start_follower(self, table: Table[Key, int]) -> Follower[Key, int]:
        return Follower(table, self.journal, OWNER, MessagePackCodec[int](int), partition="west")

    async def snapshot(self) -> Snapshot:
        return await self.store.snapshot(OWNER)

    async def said(self) -> dict[Key, int]:
        """The rows in the journal."""
        codec: MessagePackCodec[int] = MessagePackCodec(int)
        keys = list((await self.snapshot()).digests)
        values = await self.store.values(OWNER, keys)
        return {codec.decode_key(k): codec.decode_value(v[1]) for k, v in zip(keys, values, strict=True) if v}

    async def appends_since(self, position: Position) -> list[int]:
        """How many keys each append since then wrote."""
        records = await self.store.read(OWNER, position, 10_000)
        assert isinstance(records, Records)
        return [len(append) for append in records.appends]

    async def both(self) -> None:
        await self.publisher.step()
        await self.follower.step()


@pytest.fixture
def world() -> World:
    return World()


# Publisher


async def test_the_first_step_says_everything_and_completes_the_owner(world: World) -> None:
    world.near.apply([(A, 1), (B, 2), (("east", "a"), 3)])
    assert await world.publisher.step() == 2
    assert await world.said() == {A: 1, B: 2}
    assert (await world.snapshot()).complete


async def test_an_empty_table_that_is_complete_completes_its_owner(world: World) -> None:
    assert await world.publisher.step() == 0
    assert (await world.snapshot()).complete


async def test_later_steps_say_what_changed_in_one_append(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    before = (await world.snapshot()).position
    world.near.apply([(A, 7)])
    world.near.apply([(B, None), (C, 3)])
    assert await world.publisher.step() == 3
    assert await world.appends_since(before) == [3]
    assert await world.said() == {A: 7, C: 3}


async def test_a_step_without_change_appends_nothing(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    before = await world.snapshot()
    assert await world.publisher.step() == 0
    assert await world.snapshot() == before


async def test_a_restart_with_equal_content_appends_nothing(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    before = await world.snapshot()
    world.leadership.epochs["second"] = 2
    table, publisher = world.start_publisher("second")
    table.apply([(B, 2), (A, 1)])
    assert await publisher.step() == 0
    after = await world.snapshot()
    assert (after.position.number, after.complete, after.digests) == (0, True, before.digests)


async def test_before_its_table_is_complete_a_publisher_leaves_what_it_does_not_know(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    world.leadership.epochs["second"] = 2
    world.complete = False
    table, publisher = world.start_publisher("second")
    table.apply([(A, 5), (C, 3)])
    await publisher.step()
    assert await world.said() == {A: 5, B: 2, C: 3}
    assert not (await world.snapshot()).complete


async def test_once_its_table_is_complete_leftovers_are_deleted(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    world.leadership.epochs["second"] = 2
    world.complete = False
    table, publisher = world.start_publisher("second")
    table.apply([(A, 1)])
    await publisher.step()
    world.complete = True
    await publisher.step()
    assert await world.said() == {A: 1}


async def test_an_owner_is_not_complete_before_the_table_is(world: World) -> None:
    world.complete = False
    world.near.apply([(A, 1)])
    await world.publisher.step()
    assert not (await world.snapshot()).complete
    world.complete = True
    await world.publisher.step()
    assert (await world.snapshot()).complete


async def test_a_deletion_that_was_seen_is_said_before_the_table_is_complete(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    world.leadership.epochs["second"] = 2
    world.complete = False
    table, publisher = world.start_publisher("second")
    table.apply([(A, 1)])
    table.apply([(A, None)])
    await publisher.step()
    assert await world.said() == {B: 2}


async def test_a_flushed_journal_is_filled_again(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    world.store.flush()
    assert await world.publisher.step() == 2
    assert await world.said() == {A: 1, B: 2}
    assert (await world.snapshot()).complete


async def test_a_change_and_a_flush_are_both_made_good(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    world.near.apply([(A, None), (C, 3)])
    world.store.flush()
    await world.publisher.step()
    assert await world.said() == {B: 2, C: 3}


async def test_a_store_that_was_rolled_back_is_made_good(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    backup = copy.deepcopy(world.store._owners)
    world.near.apply([(A, 2), (B, 2)])
    await world.publisher.step()
    world.store._owners = backup
    world.near.apply([(C, 3)])
    await world.publisher.step()
    assert await world.said() == {A: 2, B: 2, C: 3}


async def test_a_store_rolled_back_to_an_older_claim_is_claimed_again(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    backup = copy.deepcopy(world.store._owners)
    world.leadership.epochs = {"second": 2}
    table, second = world.start_publisher("second")
    table.apply([(A, 2)])
    await second.step()
    world.store._owners = backup
    await second.step()
    assert await world.said() == {A: 2}


@pytest.mark.parametrize("operation", ["claim", "snapshot", "append"])
async def test_what_the_journal_raises_comes_out_and_the_next_step_makes_it_good(world: World, operation: str) -> None:
    world.near.apply([(A, 1)])
    world.journal.refuse(operation)  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        await world.publisher.step()
    await world.publisher.step()
    assert await world.said() == {A: 1}
    assert (await world.snapshot()).complete


async def test_a_lost_answer_leads_to_nothing_said_twice(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    world.near.apply([(A, 2)])
    world.journal.lose_answer("append")
    with pytest.raises(Unreachable):
        await world.publisher.step()
    world.near.apply([(B, 1)])
    await world.publisher.step()
    position = (await world.snapshot()).position
    assert await world.appends_since(Position(position.incarnation, 0)) == [1]
    assert await world.said() == {A: 2, B: 1}


async def test_a_deletion_survives_an_outage_even_of_an_incomplete_table(world: World) -> None:
    world.complete = False
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    world.near.apply([(A, None)])
    world.journal.refuse("append")
    with pytest.raises(Unreachable):
        await world.publisher.step()
    await world.publisher.step()
    assert await world.said() == {B: 2}


async def test_a_deletion_is_said_once(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.publisher.step()
    world.near.apply([(A, None)])
    assert await world.publisher.step() == 1
    for _ in range(2):
        world.store.flush()
        assert await world.publisher.step() == 1
    assert await world.said() == {B: 2}


async def test_a_row_deleted_and_set_again_during_an_outage_is_not_deleted(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    world.near.apply([(A, None)])
    world.journal.refuse("append")
    with pytest.raises(Unreachable):
        await world.publisher.step()
    world.near.apply([(A, 1)])
    assert await world.publisher.step() == 0
    assert await world.said() == {A: 1}


async def test_a_deposed_publisher_is_told_and_then_keeps_still(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    world.leadership.epochs = {"second": 2}
    _, second = world.start_publisher("second")
    await second.step()
    before = await world.snapshot()
    world.near.apply([(A, 99)])
    with pytest.raises(Fenced, match="epoch 1 may not write: epoch 2 has claimed"):
        await world.publisher.step()
    assert await world.publisher.step() == 0
    assert await world.snapshot() == before


async def test_after_a_flush_a_deposed_publisher_does_not_claim(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    world.leadership.epochs = {"second": 2}
    world.store.flush()
    assert await world.publisher.step() == 0
    assert await world.snapshot() == Snapshot(Position(), complete=False, digests={})


async def test_one_who_leads_again_says_what_changed_meanwhile(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    world.leadership.epochs = {"second": 2}
    table, second = world.start_publisher("second")
    table.apply([(A, 5), (B, 5)])
    await second.step()
    with pytest.raises(Fenced):
        await world.publisher.step()
    world.leadership.epochs = {"first": 3}
    await world.publisher.step()
    assert await world.said() == {A: 1}


async def test_an_empty_store_is_filled_in_pages_and_completed_with_the_last(world: World) -> None:
    world.near.apply([(("west", str(number)), number) for number in range(2500)])
    await world.publisher.step()
    position = (await world.snapshot()).position
    assert await world.appends_since(Position(position.incarnation, 0)) == [1000, 1000, 500]


async def test_a_fill_that_was_cut_short_leaves_the_owner_incomplete(world: World) -> None:
    world.near.apply([(("west", str(number)), number) for number in range(2500)])

    async def cut() -> None:
        world.journal.refuse("append")

    async def nothing() -> None:
        """The first page gets through."""

    world.journal.race("append", nothing)
    world.journal.race("append", cut)
    with pytest.raises(Unreachable):
        await world.publisher.step()
    snapshot = await world.snapshot()
    assert (len(snapshot.digests), snapshot.complete) == (1000, False)
    await world.publisher.step()
    snapshot = await world.snapshot()
    assert (len(snapshot.digests), snapshot.complete) == (2500, True)


async def test_a_complete_store_is_brought_up_to_date_in_one_append(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.publisher.step()
    world.leadership.epochs["second"] = 2
    table, publisher = world.start_publisher("second")
    table.apply([(("west", str(number)), number) for number in range(2500)])
    world.journal.refuse("append")
    with pytest.raises(Unreachable):
        await publisher.step()
    await publisher.step()
    position = (await world.snapshot()).position
    assert await world.appends_since(Position(position.incarnation, 0)) == [2501]


async def test_what_changes_while_a_store_is_filled_is_said_next(world: World) -> None:
    world.near.apply([(A, 1), (B, 1)])

    async def change() -> None:
        world.near.apply([(A, 2), (B, None)])

    world.journal.race("append", change)
    await world.publisher.step()
    assert await world.said() == {A: 1, B: 1}
    await world.publisher.step()
    assert await world.said() == {A: 2}


async def test_the_bell_rings_when_there_is_something_to_say() -> None:
    rung: list[bool] = []
    world = World()
    publisher = Publisher(
        world.near,
        world.journal,
        OWNER,
        MessagePackCodec[int](int),
        epoch=world.leadership.ask("first"),
        complete=lambda: True,
        bell=lambda: rung.append(True),
    )
    world.near.apply([(A, 1)])
    assert rung == [True]
    publisher.close()
    world.near.apply([(A, 2)])
    assert rung == [True]


# Follower


async def test_a_follower_has_it_in_one_revision_with_the_journal_as_cause(world: World) -> None:
    cursor = world.far.cursor("west")
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    batch = cursor.take()
    assert batch.changes == {A: 1, B: 2}
    assert batch.revision == 1
    assert batch.causes == (Replicated(OWNER, (await world.snapshot()).position),)


async def test_a_follower_hears_of_changes_and_deletions(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    world.near.apply([(A, 3), (B, None)])
    await world.publisher.step()
    assert await world.follower.step() == 2
    assert dict(world.far.scan()) == {A: 3}


async def test_a_follower_writes_in_its_partition_only(world: World) -> None:
    world.far.apply([(("east", "a"), 1)])
    world.near.apply([(A, 1)])
    await world.both()
    assert dict(world.far.scan()) == {A: 1, ("east", "a"): 1}


async def test_a_flush_withdraws_nothing_and_the_refill_pushes_nothing(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    before = world.far.revision
    world.store.flush()
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 1, B: 2}
    await world.both()
    assert world.far.revision == before


async def test_a_store_being_filled_again_deletes_nothing_until_it_is_complete(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    world.store.flush()
    world.complete = False
    table, world.publisher = world.start_publisher("first")
    table.apply([(A, 1)])
    await world.both()
    assert dict(world.far.scan()) == {A: 1, B: 2}
    world.complete = True
    await world.both()
    assert dict(world.far.scan()) == {A: 1}


async def test_a_store_rolled_back_withdraws_nothing_and_takes_nothing_back(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    backup = copy.deepcopy(world.store._owners)
    world.near.apply([(A, 2), (B, 2)])
    await world.both()
    before = world.far.revision
    world.store._owners = backup
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 2, B: 2}
    await world.both()
    assert world.far.revision == before


async def test_a_store_rolled_back_to_an_incarnation_that_was_left_is_not_believed(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    backup = copy.deepcopy(world.store._owners)
    world.leadership.epochs = {"second": 2}
    table, world.publisher = world.start_publisher("second")
    table.apply([(A, 2), (B, 2)])
    await world.both()
    world.store._owners = backup
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 2, B: 2}
    table.apply([(C, 3), (B, None)])
    await world.both()
    assert dict(world.far.scan()) == {A: 2, C: 3}


async def test_a_store_that_was_away_and_comes_back_is_followed_on(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    away, world.store._owners = world.store._owners, {}
    await world.follower.step()
    world.store._owners = away
    world.near.apply([(A, 2)])
    await world.both()
    assert dict(world.far.scan()) == {A: 2}


async def test_after_another_leader_claimed_absence_means_nothing_until_it_has_said_everything(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    world.complete = False
    world.leadership.epochs = {"second": 2}
    table, world.publisher = world.start_publisher("second")
    table.apply([(C, 3)])
    await world.both()
    assert dict(world.far.scan()) == {A: 1, B: 2, C: 3}
    world.complete = True
    await world.both()
    assert dict(world.far.scan()) == {C: 3}


async def test_a_follower_that_read_before_the_last_page_deletes_leftovers_after_it(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    world.store.flush()
    table, publisher = world.start_publisher("first")
    table.apply([(A, 1)])
    world.journal.race("append", world.follower.step)
    await publisher.step()
    assert dict(world.far.scan()) == {A: 1, B: 2}
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 1}


async def test_a_deletion_said_by_an_incomplete_owner_is_believed(world: World) -> None:
    world.complete = False
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    world.near.apply([(A, None)])
    await world.both()
    assert dict(world.far.scan()) == {B: 2}


async def test_a_restarted_follower_with_equal_content_asks_for_no_values(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    world.journal.keys_asked.clear()
    again = world.start_follower(world.far)
    assert await again.step() == 0
    assert world.journal.keys_asked == []


async def test_values_are_asked_for_where_digests_differ_only(world: World) -> None:
    world.near.apply([(A, 1), (B, 2)])
    await world.both()
    world.near.apply([(B, 3)])
    await world.publisher.step()
    world.near.apply([(B, 2), (C, 1)])
    await world.publisher.step()
    world.journal.keys_asked.clear()
    await world.follower.step()
    assert world.journal.keys_asked == [MessagePackCodec[int](int).encode_key(C)]


async def test_after_a_gap_everything_is_compared_again() -> None:
    world = World(retained=2)
    world.near.apply([(A, 1), (B, 1), (C, 1)])
    await world.both()
    for number in range(5):
        world.near.apply([(A, number), (B, None if number == 1 else 1)])
        await world.publisher.step()
    world.near.apply([(C, None)])
    await world.publisher.step()
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 4, B: 1}


async def test_a_value_newer_than_the_log_is_applied_with_the_append_it_belongs_to(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    cursor = world.far.cursor("west", from_start=False)
    world.near.apply([(A, 2)])
    await world.publisher.step()

    async def change_meanwhile() -> None:
        world.near.apply([(A, 3), (B, 3)])
        await world.publisher.step()

    world.journal.race("values", change_meanwhile)
    await world.follower.step()
    assert cursor.take(limit=1).changes == {A: 3, B: 3}


async def test_a_row_set_back_before_its_value_was_read_changes_nothing(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    world.near.apply([(A, 2)])
    await world.publisher.step()

    async def set_back() -> None:
        world.near.apply([(A, 1)])
        await world.publisher.step()

    world.journal.race("values", set_back)
    before = world.journal.calls["values"]
    assert await world.follower.step() == 0
    assert world.journal.calls["values"] == before + 1


async def test_a_row_deleted_before_its_value_was_read_is_not_seen(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    world.near.apply([(B, 2)])
    await world.publisher.step()

    async def delete_meanwhile() -> None:
        world.near.apply([(B, None), (A, 5)])
        await world.publisher.step()

    world.journal.race("values", delete_meanwhile)
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 5}


async def test_a_flush_in_the_middle_of_a_step_withdraws_nothing(world: World) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    world.near.apply([(A, 2), (B, 2)])
    await world.publisher.step()

    async def flush() -> None:
        world.store.flush()

    world.journal.race("values", flush)
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 1}
    await world.both()
    assert dict(world.far.scan()) == {A: 2, B: 2}


async def test_a_publisher_that_never_rests_does_not_keep_a_follower_waiting(world: World) -> None:
    await world.both()

    async def change() -> None:
        world.near.apply([(A, world.near.revision)])
        await world.publisher.step()

    await change()
    for _ in range(100):
        world.journal.race("values", change)
    assert await world.follower.step() == 1
    assert world.far.get(A) is not None


@pytest.mark.parametrize("operation", ["read", "values"])
async def test_an_unreachable_journal_changes_nothing_and_costs_no_comparison_later(
    world: World, operation: str
) -> None:
    world.near.apply([(A, 1)])
    await world.both()
    world.near.apply([(A, 2)])
    await world.publisher.step()
    world.journal.refuse(operation)  # type: ignore[arg-type]
    snapshots = world.journal.calls["snapshot"]
    with pytest.raises(Unreachable):
        await world.follower.step()
    assert world.far.get(A) == 1
    await world.follower.step()
    assert world.far.get(A) == 2
    assert world.journal.calls["snapshot"] == snapshots


async def test_a_value_that_cannot_be_decoded_spoils_no_other_and_keeps_the_last_good(world: World) -> None:
    codec: MessagePackCodec[int] = MessagePackCodec(int)
    world.near.apply([(A, 1)])
    await world.both()
    bad = Entry(codec.encode_key(A), b"digest", msgspec.msgpack.encode("not a number"))
    await world.store.append(OWNER, 1, [bad, Entry(codec.encode_key(B), b"digest", codec.encode_value(2))])
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 1, B: 2}
    assert list(world.follower.faults) == [bad.key]
    assert "Expected `int`" in world.follower.faults[bad.key]


@pytest.mark.parametrize("healing", [3, 1, None])
async def test_a_fault_goes_when_the_journal_holds_something_better(world: World, healing: int | None) -> None:
    codec: MessagePackCodec[int] = MessagePackCodec(int)
    world.near.apply([(A, 1)])
    await world.both()
    await world.store.append(OWNER, 1, [Entry(codec.encode_key(A), b"digest", b"\xc1")])
    await world.follower.step()
    assert world.follower.faults
    digest, value = (DELETED, None) if healing is None else (world.near.digest(healing), codec.encode_value(healing))
    await world.store.append(OWNER, 1, [Entry(codec.encode_key(A), digest, value)])
    await world.follower.step()
    assert world.far.get(A) == healing
    assert not world.follower.faults


@pytest.mark.parametrize("key", [b"\xc1", b"", msgspec.msgpack.encode(["east", "a"]), msgspec.msgpack.encode([])])
async def test_a_key_that_is_none_of_the_owners_is_a_fault(world: World, key: bytes) -> None:
    codec: MessagePackCodec[int] = MessagePackCodec(int)
    await world.both()
    good = Entry(codec.encode_key(A), b"digest", codec.encode_value(1))
    await world.store.append(OWNER, 1, [Entry(key, b"digest", codec.encode_value(1)), good])
    await world.follower.step()
    assert dict(world.far.scan()) == {A: 1}
    assert list(world.follower.faults) == [key]
    await world.store.append(OWNER, 1, [Entry(key, DELETED, None)])
    await world.follower.step()
    assert not world.follower.faults


# Codec


def test_keys_come_back_equal_and_interned() -> None:
    codec: MessagePackCodec[int] = MessagePackCodec(int)
    key = codec.decode_key(codec.encode_key(("west", "Pod", "shop", "web-1")))
    assert key == ("west", "Pod", "shop", "web-1")
    assert all(part is sys.intern(part) for part in key)
    assert type(key) is tuple


def test_values_of_another_kind_are_refused() -> None:
    codec: MessagePackCodec[int] = MessagePackCodec(int)
    with pytest.raises(msgspec.DecodeError):
        codec.decode_value(msgspec.msgpack.encode("text"))
