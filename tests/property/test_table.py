"""Any sequence of writes, takes, bells, openings and closings, against a model that keeps every revision there was."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from aggregator.cache.table import Cursor, Table

Key = tuple[str, ...]
Content = dict[Key, int]

PARTITIONS = ("east", "west")
partitions = st.sampled_from(PARTITIONS)
keys = st.tuples(partitions, st.sampled_from("abc"))
changes = st.lists(st.tuples(keys, st.none() | st.integers(0, 3)), min_size=1, max_size=3)
limits = st.sampled_from([1, 1, 2, 3, None])


class Reader:
    """A cursor, what it was told, and how far it has come in the history of each partition it reads."""

    def __init__(self, table: Table[Key, int], partition: str | None, *, from_start: bool, history: History) -> None:
        self.rung = 0
        self.cursor: Cursor[Key, int] = table.cursor(partition, self.ring, from_start)
        self.partitions = PARTITIONS if partition is None else (partition,)
        # One that does not begin at the start knows what it did not take.
        self.told: Content = {} if from_start else dict(table.scan(() if partition is None else (partition,)))
        self.whole = not from_start or not self.cursor.pending
        self.reached = {name: len(history[name]) - 1 for name in self.partitions}

    def ring(self) -> None:
        self.rung += 1


History = dict[str, list[Content]]


class TableMachine(RuleBasedStateMachine):
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.table: Table[Key, int] = Table("numbers")
        self.content: Content = {}
        self.history: History = {name: [{}] for name in PARTITIONS}
        self.open: list[Reader] = []

    @rule(changes=changes)
    def apply(self, changes: list[tuple[Key, int | None]]) -> None:
        after = dict(self.content)
        for key, value in changes:
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        self.write(lambda: self.table.apply(changes, cause=object()), after)

    @rule(partition=partitions, name=st.none() | st.sampled_from("abc"), values=st.lists(st.integers(0, 2), max_size=4))
    def replace(self, partition: str, name: str | None, values: list[int]) -> None:
        prefix = (partition,) if name is None else (partition, name)
        items = [((*prefix, str(number)), value) for number, value in enumerate(values)]
        after = {key: value for key, value in self.content.items() if key[: len(prefix)] != prefix} | dict(items)
        self.write(lambda: self.table.replace(prefix, items), after)

    def write(self, call: object, after: Content) -> None:
        pending = [(reader, reader.cursor.pending, reader.rung) for reader in self.open]
        revision = self.table.revision
        assert callable(call)
        assert call() == self.table.revision == revision + (after != self.content)
        touched = {key[0] for key in after.keys() | self.content.keys() if after.get(key) != self.content.get(key)}
        self.content = after
        for name in touched:
            self.history[name].append({key: value for key, value in after.items() if key[0] == name})
        for reader, was_pending, rung in pending:
            woken = not was_pending and not touched.isdisjoint(reader.partitions)
            assert reader.rung == rung + woken
            assert reader.cursor.pending == (was_pending or woken)

    @initialize(target=readers)
    def begin_before_anything_is_there(self) -> object:
        return multiple(*(self.begin(partition, from_start=True) for partition in (None, "west")))

    @rule(target=readers, partition=st.none() | partitions, from_start=st.booleans())
    def begin(self, partition: str | None, *, from_start: bool) -> Reader:
        reader = Reader(self.table, partition, from_start=from_start, history=self.history)
        self.open.append(reader)
        return reader

    @rule(reader=readers, limit=limits)
    def take(self, reader: Reader, limit: int | None) -> None:
        batch = reader.cursor.take(limit)
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

    @rule(reader=consumes(readers))
    def end(self, reader: Reader) -> None:
        reader.cursor.close()
        self.open.remove(reader)
        assert not reader.cursor.pending

    @rule(target=readers)
    def everyone_takes(self) -> object:
        for reader in self.open:
            self.take(reader, None)
        for partition in self.table._partitions.by_name.values():
            assert not len(partition.log)
        named = {name for reader in self.open if len(reader.partitions) == 1 for name in reader.partitions}
        assert set(self.table._partitions.by_name) == named | set(self.table.partitions())
        return multiple()

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


TableMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
test_table = TableMachine.TestCase
