"""The table: a keyed map in memory through which everything flows, from facts to resources to acknowledgements.

Writers `apply` changes or `replace` all that lies under a prefix; readers `get`, `scan` or hold a `Cursor`, which
tells them the newest value of every key that changed since they last asked, in whole revisions. Content equal to what
is there changes nothing and wakes nobody, so circles through tables come to rest and a relist costs its difference.

Synchronous and for one thread. A table never calls a writer back, never waits, and knows no time: a reader that wants
to be woken gives a bell, which only tells that there is something to take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from aggregator.cache.changelog import KEPT_CAUSES, ChangeLog, Reader
from aggregator.cache.merkle import BUCKETS, Tree, content_digest, table_root

K = TypeVar("K", bound="tuple[str, ...]")
V = TypeVar("V")

Bell = Callable[[], None]


class Batch(Struct, Generic[K, V], frozen=True):
    """What a cursor took.

    `changes` holds the newest value per key, None for a deleted one; to be read only, since cursors that stand at the
    same place share it. `causes` are the causes given by the writers, oldest first, each once, the newest 64 at most;
    `dropped` says how many others there were. `revision` is the newest revision of the table that any of it can be of.
    """

    changes: Mapping[K, V | None]
    causes: tuple[object, ...]
    revision: int
    dropped: int = 0


class Partition(Generic[K, V]):
    """The rows under one first key part, their change log, and their tree once a root was asked for."""

    __slots__ = ("held", "log", "name", "rows", "shared", "tree")

    def __init__(self, name: str, revision: int) -> None:
        self.name = name
        self.rows: dict[K, V] = {}
        self.log: ChangeLog[K, V] = ChangeLog(revision)
        self.tree: Tree[K, V] | None = None
        self.held = 0
        """Cursors on this partition alone; they keep it even when it is empty."""
        self.shared: tuple[int, int, Batch[K, V]] | None = None
        """The last batch taken up to the newest revision, with the position and cause count it was taken from."""

    def write(self, changes: list[tuple[K, V | None]], revision: int, cause: object) -> Iterable[Reader[K, V]]:
        """Make changes that are known to differ from the rows; returns the readers that had nothing to read before."""
        rows, tree = self.rows, self.tree
        if tree is not None:
            for key, _ in changes:
                tree.note(key, rows.get(key))
            if tree.stale(len(rows)):
                self.tree = None
        for key, value in changes:
            if value is None:
                del rows[key]
            else:
                rows[key] = value
        if not rows:
            rows.clear()  # an emptied dict keeps the memory of its largest size, a cleared one does not
        self.shared = None
        return self.log.record(changes, revision, cause)

    def up_to_date(self, digest: Callable[[V], bytes]) -> Tree[K, V]:
        """The tree of the rows, made now if there was none."""
        if self.tree is None:
            self.tree = Tree(self.rows, digest)
        return self.tree


class Table(Generic[K, V]):
    """A map from tuples of strings to values, in partitions by the first part of the key.

    `digest` gives the content digest of a value; it is called only when a root or a journal asks. Values are never None
    and are compared with `==`. Every call that changes something is one revision of the table, a number that only
    grows; the partitions it touched share that number. One prefix has one writer: the table does not arbitrate.
    """

    def __init__(self, name: str, digest: Callable[[V], bytes] = content_digest) -> None:
        self.name = name
        self.digest = digest
        self._revision = 0
        self._partitions: dict[str, Partition[K, V]] = {}
        self._roaming: dict[Cursor[K, V], None] = {}

    def __repr__(self) -> str:
        return f"Table({self.name!r}, rows={len(self)}, revision={self._revision})"

    def __len__(self) -> int:
        return sum(len(partition.rows) for partition in self._partitions.values())

    @property
    def revision(self) -> int:
        """Number of the last change, 0 before the first."""
        return self._revision

    def partitions(self) -> tuple[str, ...]:
        """The first key parts under which there are rows."""
        return tuple(name for name, partition in self._partitions.items() if partition.rows)

    def get(self, key: K) -> V | None:
        """The value of a key, None if it has none."""
        partition = self._partitions.get(key[0])
        return None if partition is None else partition.rows.get(key)

    def scan(self, prefix: tuple[str, ...] = ()) -> Iterator[tuple[K, V]]:
        """Rows whose key starts with `prefix`, in no promised order; reads the whole partition, not an index.

        The rows are not copied: a change while the iterator is in use ends it with RuntimeError.
        """
        if not prefix:
            for partition in self._partitions.values():
                yield from partition.rows.items()
            return
        found = self._partitions.get(prefix[0])
        if found is None:
            return
        size = len(prefix)
        if size == 1:
            yield from found.rows.items()
            return
        for key, value in found.rows.items():
            if key[:size] == prefix:
                yield key, value

    def apply(self, changes: Iterable[tuple[K, V | None]], cause: object = None) -> int:
        """Set keys to values, or delete those given None, as one revision; of a key given twice the last value counts.

        Returns the table's revision, which is a new one only if something differs. If `changes` or a comparison raises,
        nothing has changed. An exception of a bell comes after all is done, see `cursor`.
        """
        return self._write(dict(changes), cause)

    def replace(self, prefix: tuple[str, ...], items: Iterable[tuple[K, V]], cause: object = None) -> int:
        """Make `items` all there is under `prefix`, as one revision that holds the difference only.

        Reads the partition, whatever the length of the prefix. Raises ValueError if the prefix is empty or an item lies
        outside of it, and then changes nothing; otherwise as `apply`.
        """
        if not prefix:
            raise ValueError(f"table {self.name}: replace needs a prefix; an empty one would delete everything")
        staged: dict[K, V | None] = dict(items)
        first, size = prefix[0], len(prefix)
        for key in staged:
            if key[0] != first or (size > 1 and key[:size] != prefix):
                raise ValueError(f"table {self.name}: {key} is not under the prefix {prefix} that is being replaced")
        partition = self._partitions.get(first)
        if partition is not None:
            gone = [key for key in partition.rows if key not in staged and key[:size] == prefix]
            staged.update(dict.fromkeys(gone))
        return self._write(staged, cause)

    def root(self, partition: str | None = None) -> bytes:
        """The 16-byte root of a partition's content or of the whole table's; equal content has equal roots anywhere."""
        if partition is None:
            filled = [part for part in self._partitions.values() if part.rows]
            return table_root((part.name, part.up_to_date(self.digest).root(part.rows)) for part in filled)
        found = self._partitions.get(partition)
        return Tree[K, V]({}, self.digest).root({}) if found is None else found.up_to_date(self.digest).root(found.rows)

    def buckets(self, partition: str) -> tuple[int, ...]:
        """The 256 sums below a partition's root, for `merkle.difference` with those of a copy."""
        found = self._partitions.get(partition)
        return (0,) * BUCKETS if found is None else found.up_to_date(self.digest).buckets(found.rows)

    def cursor(self, partition: str | None = None, bell: Bell | None = None, from_start: bool = True) -> Cursor[K, V]:
        """Hear of the changes of one partition, or of all partitions there are and will be. To be closed when done.

        `from_start`: what the table holds when the cursor is first taken from counts as changed; otherwise only what
        changes after this call. The bell is rung once whenever the cursor goes from nothing pending to something
        pending, after the change is complete and visible to everyone, never during this call (a cursor may be born
        pending: look at `pending`), and not again until everything pending was taken. A bell may read, write, take and
        close. If bells raise, the others are still rung, then the writer's call raises an ExceptionGroup of what they
        raised; the change stands.
        """
        return Cursor(self, partition, bell, from_start)

    def _write(self, staged: dict[K, V | None], cause: object) -> int:
        differing: dict[str, list[tuple[K, V | None]]] = {}
        name: str | None = None
        rows: Mapping[K, V] = {}
        changes: list[tuple[K, V | None]] | None = None
        for item in staged.items():
            key, value = item
            if key[0] != name:
                name = key[0]
                partition = self._partitions.get(name)
                rows = {} if partition is None else partition.rows
                changes = differing.get(name)
            old = rows.get(key)
            if old is not value and old != value:
                if changes is None:
                    changes = differing[key[0]] = []
                changes.append(item)
        if not differing:
            return self._revision
        revision = self._revision + 1
        ringing: list[Cursor[K, V]] = []
        for name, changes in differing.items():
            partition = self._partitions.get(name) or self._open(name)
            for reader in partition.write(changes, revision, cause):
                cursor = reader.cursor
                if not cursor._waiting and cursor._bell is not None:
                    ringing.append(cursor)
                cursor._waiting[reader] = None
            if not partition.rows:
                self._drop_if_unused(partition)
        self._revision = revision
        if ringing:
            self._ring(ringing)
        return self._revision

    def _ring(self, cursors: list[Cursor[K, V]]) -> None:
        failures: list[Exception] = []
        for cursor in cursors:
            # An earlier bell may have taken from this cursor or closed it.
            if cursor._waiting and cursor._bell is not None:
                try:
                    cursor._bell()
                except Exception as failure:  # noqa: BLE001 - of the bell, not ours; raised when all have rung
                    failures.append(failure)
        if failures:
            raise ExceptionGroup(f"table {self.name}: bells failed", failures)

    def _open(self, name: str) -> Partition[K, V]:
        """The partition of that name, made if there is none, with everyone who reads all partitions reading it too."""
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = Partition(name, self._revision)
            for cursor in self._roaming:
                cursor._readers[name] = partition.log.join(cursor, partition, [])
        return partition

    def _drop_if_unused(self, partition: Partition[K, V]) -> None:
        """Leave nothing of a partition that is empty, that all have read to the end, and that nobody reads by name."""
        if partition.rows or partition.held or not partition.log.idle:
            return
        if self._partitions.get(partition.name) is partition:
            del self._partitions[partition.name]
        for reader in partition.log.readers:
            del reader.cursor._readers[partition.name]


class Cursor(Generic[K, V]):
    """A reader's place in a table; made by `Table.cursor`, freed by `close`.

    A cursor that never takes makes the table hold one entry per changed key, not one per change. Cursors not yet taken
    from for the first time (`from_start`) make it hold nothing.
    """

    __slots__ = ("_bell", "_partition", "_readers", "_revision", "_table", "_waiting", "_waits_to_begin")

    def __init__(self, table: Table[K, V], partition: str | None, bell: Bell | None, from_start: bool) -> None:
        self._table: Table[K, V] | None = table
        self._partition = partition
        self._bell = bell
        self._revision = table.revision
        self._readers: dict[str, Reader[K, V]] = {}
        self._waiting: dict[Reader[K, V], None] = {}
        prefix = () if partition is None else (partition,)
        self._waits_to_begin = from_start and any(True for _ in table.scan(prefix))
        if not self._waits_to_begin:
            self._join(table, with_backlog=False)

    @property
    def pending(self) -> bool:
        """True when there is something to take; a cursor from the start is pending until first taken from."""
        return self._waits_to_begin or bool(self._waiting)

    def take(self, limit: int | None = None) -> Batch[K, V]:
        """The newest value of every key that changed since the last take; an empty batch when nothing did.

        Revisions are taken whole, those of one partition in order. With a limit (at least 1) the batch ends once that
        many keys were taken, at the first place where no revision is torn: revisions that changed the same key again
        count as one, and a batch may be larger than the limit. Partitions take turns, so none is starved.

        The first take of a cursor from the start also gives the content there is at that moment. With a limit it comes
        in pages of that size, which are not revisions: rows that were there at the first take and did not change since,
        then the changes since then in whole revisions. So every row arrives once at its newest value, and a row that is
        deleted meanwhile arrives as None, whether its page had come or not. A reader that must see the beginning whole
        takes it without limit. Raises ValueError for a limit below 1, RuntimeError once closed.
        """
        table = self._table
        if table is None:
            raise RuntimeError("the cursor is closed")
        if limit is not None and limit < 1:
            raise ValueError(f"a limit of {limit} keys would take nothing, for ever")
        changes: dict[K, V | None] = {}
        if self._waits_to_begin:
            self._waits_to_begin = False
            self._join(table, with_backlog=limit is not None)
            if limit is None:
                for reader in self._readers.values():
                    changes.update(reader.partition.rows)
                self._revision = table.revision
                return Batch(changes, (), self._revision)
        waiting = self._waiting
        if not waiting:
            return Batch(changes, (), self._revision)
        if limit is None and self._partition is not None:
            return self._take_partition(table, next(iter(waiting)))
        causes: list[tuple[int, object]] = []
        dropped = 0
        while waiting and (limit is None or len(changes) < limit):
            share = None if limit is None else max(1, (limit - len(changes)) // len(waiting))
            reader = next(iter(waiting))
            del waiting[reader]
            partition = reader.partition
            dropped += partition.log.read(reader, partition.rows, share, changes, causes)
            self._revision = max(self._revision, reader.position)
            if reader.backlog or reader.position != partition.log.head:
                waiting[reader] = None
            elif not partition.rows:
                table._drop_if_unused(partition)
        return _batch(changes, causes, self._revision, dropped)

    def close(self) -> None:
        """Stop reading and free what was kept for this cursor. May be called again, and from a bell."""
        table, self._table = self._table, None
        if table is None:
            return
        self._bell = None
        self._waits_to_begin = False
        self._waiting.clear()
        table._roaming.pop(self, None)
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            partition = reader.partition
            partition.log.leave(reader)
            if self._partition is not None:
                partition.held -= 1
            table._drop_if_unused(partition)

    def _join(self, table: Table[K, V], *, with_backlog: bool) -> None:
        if self._partition is None:
            table._roaming[self] = None
            partitions = list(table._partitions.values())
        else:
            partitions = [table._open(self._partition)]
            partitions[0].held += 1
        for partition in partitions:
            backlog = list(reversed(partition.rows)) if with_backlog else []
            reader = partition.log.join(self, partition, backlog)
            self._readers[partition.name] = reader
            if backlog:
                self._waiting[reader] = None

    def _take_partition(self, table: Table[K, V], reader: Reader[K, V]) -> Batch[K, V]:
        """Take all of the one partition; cursors that stood at the same place are given the same batch."""
        partition = reader.partition
        begun, caused = reader.position, reader.caused
        whole = not reader.backlog
        changes: dict[K, V | None] = {}
        causes: list[tuple[int, object]] = []
        del self._waiting[reader]
        shared = partition.shared
        if whole and shared is not None and shared[0] == begun and shared[1] == caused:
            partition.log.skip(reader)
            batch = shared[2]
        else:
            dropped = partition.log.read(reader, partition.rows, None, changes, causes)
            batch = _batch(changes, causes, reader.position, dropped)
            partition.shared = (begun, caused, batch) if whole else None
        self._revision = batch.revision
        if partition.log.idle:
            partition.shared = None
            if not partition.rows:
                table._drop_if_unused(partition)
        return batch


def _batch(changes: Mapping[K, V | None], causes: list[tuple[int, object]], revision: int, dropped: int) -> Batch[K, V]:
    """A batch of what one or more partitions gave: a cause once, though its revision touched several partitions."""
    if not causes:
        return Batch(changes, (), revision, dropped)
    if len(causes) > 1:
        causes.sort(key=lambda entry: entry[0])
    distinct = tuple({id(cause): cause for _, cause in causes}.values())
    return Batch(changes, distinct[-KEPT_CAUSES:], revision, dropped + max(0, len(distinct) - KEPT_CAUSES))
