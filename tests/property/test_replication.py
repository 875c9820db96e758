"""Any sequence of changes, elections, crashes, flushes and failures between the tables of several processes.

A source has keys that stay (once there, never deleted) and keys that come and go. Processes read the source, bit by bit
after a start; one of them leads and publishes; deposed ones go on trying. A follower reads the journal.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aggregator.cache.journal import Fenced, MemoryJournal
from aggregator.cache.replication import Follower, MessagePackCodec, Publisher
from aggregator.cache.table import Table
from tests.kit.flaky_journal import FlakyJournal, Operation, Unreachable

Key = tuple[str, ...]
R = TypeVar("R")

OWNER = "facts/west"
FORGED = -1
"""The value deposed processes have for every key, and nobody else."""

staying = st.sampled_from([("west", "stays", name) for name in "abc"])
fleeting = st.sampled_from([("west", "goes", name) for name in "abc"])
values = st.integers(0, 2)
operations: st.SearchStrategy[Operation] = st.sampled_from(["claim", "append", "snapshot", "values", "read"])


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine that waits for nothing."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as end:
            result: R = end.value
            return result


class Process:
    """A reader of the source with a publisher; it has all of the source once it is complete."""

    def __init__(self, machine: ReplicationMachine) -> None:
        self.epoch = machine.epoch
        self.complete = False
        self.table: Table[Key, int] = Table("near")

        async def epoch() -> int | None:
            return self.epoch if self.epoch == machine.epoch else None

        self.publisher: Publisher[Key, int] = Publisher(
            self.table,
            machine.journal,
            OWNER,
            MessagePackCodec[int](int),
            epoch=epoch,
            complete=lambda: self.complete,
            partition="west",
        )

    def step(self) -> None:
        try:
            run(self.publisher.step())
        except (Unreachable, Fenced):
            """Its owner would try again later."""


class ReplicationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.source: dict[Key, int] = {}
        self.store = MemoryJournal(retained=3)
        self.journal = FlakyJournal(self.store)
        self.epoch = 0
        self.deposed: list[Process] = []
        self.far: Table[Key, int] = Table("far")
        self.follower = self.new_follower()
        self.held: set[Key] = set()

    def new_follower(self) -> Follower[Key, int]:
        return Follower(self.far, self.journal, OWNER, MessagePackCodec[int](int), partition="west")

    @initialize()
    def first_leader(self) -> None:
        self.epoch = 1
        self.leader = Process(self)

    # The source, and what the leader hears of it

    @rule(key=staying | fleeting, value=values)
    def set(self, key: Key, value: int) -> None:
        self.source[key] = value
        self.leader.table.apply([(key, value)])

    @rule(key=fleeting)
    def delete(self, key: Key) -> None:
        self.source.pop(key, None)
        self.leader.table.apply([(key, None)])

    @rule(key=staying | fleeting)
    def hear_of_one(self, key: Key) -> None:
        if key in self.source:
            self.leader.table.apply([(key, self.source[key])])

    @rule()
    def hear_of_all(self) -> None:
        self.leader.table.replace(("west",), self.source.items())
        self.leader.complete = True

    # Processes

    @rule()
    def elect(self) -> None:
        """Another process leads, and the old one does not know; also how a crashed leader comes back."""
        self.deposed = [*self.deposed[-1:], self.leader]
        self.epoch += 1
        self.leader = Process(self)

    @rule()
    def publish(self) -> None:
        self.leader.step()

    @precondition(lambda self: self.deposed)
    @rule(data=st.data(), key=staying | fleeting, forget=st.booleans())
    def deposed_tries(self, data: st.DataObject, key: Key, *, forget: bool) -> None:
        process = data.draw(st.sampled_from(self.deposed))
        fenced = self.claimed_by_the_leader()
        before = run(self.store.snapshot(OWNER))
        process.table.apply([(key, None if forget and key[1] == "goes" else FORGED)])
        process.step()
        if fenced:
            assert run(self.store.snapshot(OWNER)) == before

    def claimed_by_the_leader(self) -> bool:
        """True when the store knows the leader's epoch, or no epoch at all."""
        owner = self.store._owners.get(OWNER)
        return owner is None or owner.epoch == self.epoch

    @rule()
    def follow(self) -> None:
        try:
            run(self.follower.step())
        except Unreachable:
            """Its owner would try again later."""

    @rule()
    def restart_follower_with_its_table(self) -> None:
        self.follower = self.new_follower()

    @rule()
    def restart_follower_without_its_table(self) -> None:
        self.far = Table("far")
        self.held = set()
        self.follower = self.new_follower()

    # Accidents

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule(operation=operations)
    def refuse(self, operation: Operation) -> None:
        self.journal.refuse(operation)

    @rule(operation=operations)
    def lose_answer(self, operation: Operation) -> None:
        self.journal.lose_answer(operation)

    @rule(operation=operations)
    def race_with_the_leader(self, operation: Operation) -> None:
        """The leader gets a word in just before an operation of the follower or of a deposed process."""

        async def publish() -> None:
            if not self.publishing:
                self.publishing = True
                try:
                    await self.leader.publisher.step()
                except (Unreachable, Fenced):
                    """Its owner would try again later."""
                finally:
                    self.publishing = False

        if operation in {"values", "read"}:  # only the follower calls these
            self.journal.race(operation, publish)

    publishing = False

    # What always holds

    @invariant()
    def what_stays_is_never_withdrawn(self) -> None:
        there = {key for key, _ in self.far.scan() if key[1] == "stays"}
        assert self.held <= there
        self.held = there

    @invariant()
    def nothing_is_ever_at_fault(self) -> None:
        assert not self.follower.faults

    # Where it ends

    def settle(self) -> None:
        """No more accidents; everyone has heard of everything."""
        self.journal.calm()
        self.leader.table.replace(("west",), self.source.items())
        self.leader.complete = True
        for _ in range(3):
            run(self.leader.publisher.step())
        for _ in range(2):
            run(self.follower.step())
        assert dict(self.far.scan()) == self.source

    @rule()
    def flush_and_refill_pushes_nothing(self) -> None:
        self.settle()
        revision = self.far.revision
        self.store.flush()
        run(self.follower.step())
        run(self.leader.publisher.step())
        run(self.follower.step())
        assert self.far.revision == revision
        run(self.follower.step())
        assert self.far.revision == revision
        assert self.far.root() == self.leader.table.root()

    def teardown(self) -> None:
        if self.epoch:
            self.settle()


ReplicationMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_replication = ReplicationMachine.TestCase
