"""Any sequence of writes, takes, bells, openings and closings, against a model that keeps every revision there was."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aggregator.cache.table import Cursor, Table

Key = tuple[str, ...]
Content = dict[Key, int]
Changes = list[tuple[Key, int | None]]
History = dict[str, list[Content]]

PARTITIONS = ("east", "west")
KEYS: list[Key] = [*product(["west"], "abcd"), ("east", "a"), ("east", "b")]

# Revisions are drawn whole and not change by change: more of them fit into a second.
SINGLE: list[Changes] = [[(key, value)] for key in KEYS for value in (None, 1, 2, 3)]
DOUBLE: list[Changes] = [
    [(one, value), (other, value)] for one in KEYS for other in KEYS if one < other for value in (1, 2)
]
MIXED: list[Changes] = [[(KEYS[0], None), (KEYS[1], 5), (KEYS[4], 5)], [(KEYS[2], 4), (KEYS[0], 4), (KEYS[2], 7)]]


class Reader:
    """A cursor, what it was told, and how far it has come in the history of each partition it reads."""

    def __init__(self, table: Table[Key, int], partition: str | None, *, from_start: bool, history: History) -> None:
        self.rung = 0
        self.cursor: Cursor[Key, int] = table.cursor(partition, self.ring, from_start)
        self.partition = partition
        self.partitions = PARTITIONS if partition is None else (partition,)
        # One that does not begin at the start knows what it did not take.
        self.told: Content = {} if from_start else dict(table.scan(() if partition is None else (partition,)))
        self.whole = not self.cursor.pending
        self.reached = {name: len(history[name]) - 1 for name in self.partitions}

    def ring(self) -> None:
        self.rung += 1


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table: Table[Key, int] = Table("numbers")
        self.content: Content = {}
        self.history: History = {name: [{}] for name in PARTITIONS}
        self.readers: list[Reader] = []

    @initialize(begin=st.booleans())
    def open_cursors(self, *, begin: bool) -> None:
        if begin:
            self.apply([(key, 0) for key in KEYS])
        for partition in (None, "west", "west", "east", None):
            self.readers.append(Reader(self.table, partition, from_start=True, history=self.history))

    @rule(changes=st.sampled_from(SINGLE) | st.sampled_from(DOUBLE) | st.sampled_from(MIXED))
    def apply(self, changes: Changes) -> None:
        after = dict(self.content)
        for key, value in changes:
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        self.write(lambda: self.table.apply(changes, cause=object()), after)

    @rule(prefix=st.sampled_from([("west",), ("east",), ("west", "a")]), count=st.integers(0, 3))
    def replace(self, prefix: Key, count: int) -> None:
        items = [((*prefix, name), 9) for name in "bcd"[:count]]
        after = {key: value for key, value in self.content.items() if key[: len(prefix)] != prefix} | dict(items)
        self.write(lambda: self.table.replace(prefix, items), after)

    def write(self, call: Callable[[], int], after: Content) -> None:
        pending = [(reader, reader.cursor.pending, reader.rung) for reader in self.readers]
        revision = self.table.revision
        assert call() == self.table.revision == revision + (after != self.content)
        touched = {key[0] for key in after.keys() | self.content.keys() if after.get(key) != self.content.get(key)}
        self.content = after
        for name in touched:
            self.history[name].append({key: value for key, value in after.items() if key[0] == name})
        for reader, was_pending, rung in pending:
            woken = not was_pending and not touched.isdisjoint(reader.partitions)
            assert reader.rung == rung + woken
            assert reader.cursor.pending == (was_pending or woken)

    @rule(place=st.integers(0, 4), limit=st.integers(1, 3))
    def take_some(self, place: int, limit: int) -> None:
        self.take(self.readers[place], limit)

    @rule(place=st.integers(0, 4))
    def take_all(self, place: int) -> None:
        self.take(self.readers[place], None)

    def take(self, reader: Reader, limit: int | None) -> None:
        known = {*KEYS, *self.content, *reader.told}
        unread = {key for key in known if reader.cursor.unread(key)}
        batch = reader.cursor.take(limit)
        assert unread >= batch.changes.keys() & known
        if limit is None:
            assert unread == batch.changes.keys() & known
        for key, value in batch.changes.items():
            if value is None:
                reader.told.pop(key, None)
            else:
                reader.told[key] = value
        assert limit is not None or not reader.cursor.pending
        if not reader.cursor.pending:
            reader.whole = True
            assert reader.told == {key: value for key, value in self.content.items() if key[0] in reader.partitions}
        if reader.whole:
            for name in reader.partitions:
                # What it knows of a partition is what the partition was at one revision, and never an earlier one.
                seen = {key: value for key, value in reader.told.items() if key[0] == name}
                start = reader.reached[name]
                assert seen in self.history[name][start:]
                reader.reached[name] = self.history[name].index(seen, start)

    @rule(place=st.integers(0, 4), from_start=st.booleans())
    def open_anew(self, place: int, *, from_start: bool) -> None:
        old = self.readers[place]
        old.cursor.close()
        assert not old.cursor.pending
        self.readers[place] = Reader(self.table, old.partition, from_start=from_start, history=self.history)

    @rule()
    def everyone_takes(self) -> None:
        for reader in self.readers:
            self.take(reader, None)
        for partition in self.table._partitions.by_name.values():
            assert not len(partition.log)

    @rule()
    def everyone_leaves(self) -> None:
        for reader in self.readers:
            reader.cursor.close()
        assert set(self.table._partitions.by_name) == set(self.table.partitions())
        self.readers = [
            Reader(self.table, reader.partition, from_start=False, history=self.history) for reader in self.readers
        ]

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        assert dict(self.table.scan()) == self.content
        assert len(self.table) == len(self.content)
        assert set(self.table.partitions()) == {key[0] for key in self.content}

    @rule()
    def roots_are_those_of_the_content(self) -> None:
        fresh: Table[Key, int] = Table("fresh")
        fresh.apply(self.content.items())
        assert self.table.root() == fresh.root()
        for name in PARTITIONS:
            assert self.table.root(name) == fresh.root(name)


TableMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
test_short_walks = TableMachine.TestCase


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_long_walks(seed: int) -> None:
    """The same steps without hypothesis in between: far more of them, for what takes many (trimming, compaction)."""
    chance = random.Random(seed)
    machine = TableMachine()
    machine.open_cursors(begin=chance.random() < 0.5)
    busy = chance.random()
    for _ in range(300):
        if chance.random() < busy:
            machine.apply(chance.choice(chance.choice([SINGLE, DOUBLE, MIXED])))
        elif (dice := chance.random()) < 0.6:
            machine.take_some(chance.randrange(5), chance.randrange(1, 4))
        elif dice < 0.8:
            machine.take_all(chance.randrange(5))
        elif dice < 0.85:
            machine.replace(chance.choice([("west",), ("east",), ("west", "a")]), chance.randrange(4))
        elif dice < 0.95:
            machine.open_anew(chance.randrange(5), from_start=chance.random() < 0.5)
        else:
            chance.choice([machine.everyone_takes, machine.everyone_leaves, machine.roots_are_those_of_the_content])()
        machine.rows_are_those_of_the_model()
