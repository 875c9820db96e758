"""Any sequence of changes, elections, flushes, failures and races between the tables of several processes.

A source has keys that stay (once there, never deleted), keys that come and go, and a pair of keys of which the left is
never greater than the right: the left alone falls to 0, both rise together. Processes read the source, bit by bit after
a start; one of them leads and publishes, deposed ones go on trying. A follower reads the journal.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aggregator.cache.journal import Fenced, MemoryJournal
from aggregator.cache.replication import Follower, MessagePackCodec, Publisher
from aggregator.cache.table import Table
from tests.kit.flaky_journal import FlakyJournal, Operation, Unreachable

Key = tuple[str, ...]
R = TypeVar("R")

OWNER = "facts/west"
STAYING: list[Key] = [("west", "stays", name) for name in "abc"]
FLEETING: list[Key] = [("west", "goes", name) for name in "abc"]
LEFT: Key = ("west", "pair", "left")
RIGHT: Key = ("west", "pair", "right")
PAIR: list[Key] = [LEFT, RIGHT]
TOGETHER: list[list[Key]] = [*([key] for key in STAYING + FLEETING), [LEFT], PAIR]
OPERATIONS: list[Operation] = ["claim", "append", "snapshot", "values", "read"]


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
        self.backup = copy.deepcopy(self.store._owners)
        self.epoch = 1
        self.leader = Process(self)
        self.deposed: list[Process] = []
        self.far: Table[Key, int] = Table("far")
        self.follower = self.new_follower()
        self.held: set[Key] = set()
        self.publishing = False
        self.following = False
        self.spoken = 0

    def new_follower(self) -> Follower[Key, int]:
        return Follower(self.far, self.journal, OWNER, MessagePackCodec[int](int), partition="west")

    @initialize(settled=st.booleans())
    def start(self, *, settled: bool) -> None:
        if settled:
            self.source = dict.fromkeys(STAYING + FLEETING + PAIR, 0)
            self.settle()

    # The source, and what the leader hears of it

    @rule(keys=st.sampled_from(TOGETHER), value=st.integers(0, 3))
    def change(self, keys: list[Key], value: int) -> None:
        if keys == [LEFT]:
            value = 0
        elif keys == PAIR:
            value += self.source.get(RIGHT, 0)
        changes: dict[Key, int] = dict.fromkeys(keys, value)
        self.source.update(changes)
        self.leader.table.apply(changes.items())

    @rule(key=st.sampled_from(FLEETING))
    def delete(self, key: Key) -> None:
        self.source.pop(key, None)
        self.leader.table.apply([(key, None)])

    @rule(keys=st.sampled_from(TOGETHER))
    def hear_of_some(self, keys: list[Key]) -> None:
        keys = PAIR if LEFT in keys else keys
        self.leader.table.apply([(key, self.source[key]) for key in keys if key in self.source])

    @rule()
    def hear_of_all(self) -> None:
        self.leader.table.replace(("west",), self.source.items())
        self.leader.complete = True

    # Processes

    @rule(publish=st.booleans())
    def elect(self, *, publish: bool) -> None:
        """Another process leads, and the old one does not know; also how a crashed leader comes back."""
        self.deposed = [*self.deposed[-1:], self.leader]
        self.epoch += 1
        self.leader = Process(self)
        if publish:
            self.publish()

    @rule()
    def publish(self) -> None:
        before = run(self.store.snapshot(OWNER)).digests
        self.publishing = True
        self.leader.step()
        self.publishing = False
        after = run(self.store.snapshot(OWNER)).digests
        assert all(data in after for data in before if b"stays" in data)

    @rule(keys=st.sampled_from(TOGETHER), forget=st.booleans())
    def deposed_tries(self, keys: list[Key], *, forget: bool) -> None:
        for process in self.deposed:
            owner = self.store._owners.get(OWNER)
            before = run(self.store.snapshot(OWNER))
            value = None if forget and keys[0] in FLEETING else 0
            process.table.apply([(key, value) for key in keys if key in self.source])
            spoken = self.spoken
            process.step()
            # Until its successor has claimed, a deposed leader cannot be told from one; ever after it can.
            if (owner is None or owner.epoch == self.epoch) and spoken == self.spoken:
                assert run(self.store.snapshot(OWNER)) == before

    @rule()
    def follow(self) -> None:
        self.following = True
        try:
            run(self.follower.step())
        except Unreachable:
            """Its owner would try again later."""
        finally:
            self.following = False

    @rule()
    def publish_and_follow(self) -> None:
        self.publish()
        self.follow()

    @rule()
    def restart_follower(self) -> None:
        self.far = Table("far")
        self.held = set()
        self.follower = self.new_follower()

    # Accidents

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def back_up(self) -> None:
        self.backup = copy.deepcopy(self.store._owners)

    @rule()
    def roll_back(self) -> None:
        """To a state whose incarnation the follower has followed; what it has never seen, it cannot tell from news."""
        owner = self.backup.get(OWNER)
        followed = {*self.follower._left, self.follower._position and self.follower._position.incarnation}
        if owner is None or owner.incarnation in followed:
            self.store._owners = copy.deepcopy(self.backup)

    @rule(operation=st.sampled_from(OPERATIONS), answered=st.booleans())
    def fail(self, operation: Operation, *, answered: bool) -> None:
        if answered:
            self.journal.refuse(operation)
        else:
            self.journal.lose_answer(operation)

    @rule(operation=st.sampled_from(["values", "read"]), keys=st.sampled_from(TOGETHER), value=st.integers(0, 3))
    def speak_before(self, operation: Operation, keys: list[Key], value: int) -> None:
        """The leader says something just before the follower asks."""

        async def change_and_publish() -> None:
            self.change(keys, value)
            self.spoken += 1
            if not self.publishing:
                try:
                    await self.leader.publisher.step()
                except (Unreachable, Fenced):
                    """Its owner would try again later."""

        self.journal.race(operation, change_and_publish)

    @rule()
    def read_before_append(self) -> None:
        """The follower reads when a publisher has claimed and not yet written, or between two of its appends."""

        async def follow() -> None:
            if not self.following:
                try:
                    await self.follower.step()
                except Unreachable:
                    """Its owner would try again later."""

        self.journal.race("append", follow)

    # What always holds

    @invariant()
    def what_stays_is_never_withdrawn(self) -> None:
        there = {key for key, _ in self.far.scan() if key[1] == "stays"}
        assert self.held <= there
        self.held = there

    @invariant()
    def what_changes_together_is_seen_together(self) -> None:
        left, right = self.far.get(LEFT), self.far.get(RIGHT)
        assert left is None or right is None or left <= right

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
        self.settle()


ReplicationMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_short_walks = ReplicationMachine.TestCase


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_long_walks(seed: int) -> None:
    """The same steps without hypothesis in between: far more of them, for what takes many to come about."""
    chance = random.Random(seed)
    machine = ReplicationMachine()
    machine.start(settled=chance.random() < 0.8)
    some_keys = [*TOGETHER, *([LEFT], PAIR) * 3]
    steps: list[Callable[[], None]] = [
        lambda: machine.change(chance.choice(some_keys), chance.randrange(4)),
        lambda: machine.delete(chance.choice(FLEETING)),
        lambda: machine.hear_of_some(chance.choice(some_keys)),
        machine.hear_of_all,
        lambda: machine.elect(publish=chance.random() < 0.7),
        machine.publish,
        lambda: machine.deposed_tries(chance.choice(some_keys), forget=chance.random() < 0.3),
        machine.follow,
        machine.publish_and_follow,
        machine.restart_follower,
        machine.flush,
        machine.back_up,
        machine.roll_back,
        lambda: machine.fail(chance.choice(OPERATIONS), answered=chance.random() < 0.5),
        lambda: machine.speak_before(chance.choice(["values", "read"]), chance.choice(some_keys), chance.randrange(4)),
        machine.read_before_append,
        machine.flush_and_refill_pushes_nothing,
    ]
    # Each walk sees much of some events and nothing of others.
    weights = [chance.choice([0, 1, 1, 4]) for _ in steps]
    weights[8] = 4
    for _ in range(150):
        chance.choices(steps, weights)[0]()
        machine.what_stays_is_never_withdrawn()
        machine.what_changes_together_is_seen_together()
        machine.nothing_is_ever_at_fault()
    machine.teardown()
