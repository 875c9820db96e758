"""The table: a keyed map in memory through which everything flows, from facts to resources to acknowledgements.

Writers `apply` changes or `replace` all that lies under a prefix; readers `get`, `scan` or hold a `Cursor`, which
tells them the newest value of every key that changed since they last asked, in whole revisions. Content equal to what
is there changes nothing and wakes nobody, so circles through tables come to rest and a relist costs its difference.

Synchronous and for one thread. A table never calls a writer back, never waits, and knows no time: a reader that wants
to be woken gives a bell, which only tells that there is something to take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from aggregator.cache.cursor import Batch, Bell, Cursor
from aggregator.cache.merkle import BUCKETS, Tree, content_digest, table_root
from aggregator.cache.partitions import Partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["Batch", "Bell", "Cursor", "Table"]

K = TypeVar("K", bound="tuple[str, ...]")
V = TypeVar("V")


class Table(Generic[K, V]):
    """A map from tuples of strings to values, in partitions by the first part of the key.

    `digest` gives the content digest of a value; it is called only when a root or a journal asks. Values are never None
    and are compared with `==`. Every call that changes something is one revision of the table, a number that only
    grows; the partitions it touched share that number. One prefix has one writer: the table does not arbitrate.

    `repeats`, given the rows of a partition and the changes about to be made to them, names rows beside those that
    count as changed too, in the same revision and though they are equal: content whose readers must hear of it again.
    """

    def __init__(
        self,
        name: str,
        digest: Callable[[V], bytes] = content_digest,
        repeats: Callable[[Mapping[K, V], Sequence[tuple[K, V | None]]], Iterable[K]] | None = None,
    ) -> None:
        self.name = name
        self.digest = digest
        self._repeats = repeats
        self._partitions: Partitions[K, V] = Partitions()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, rows={len(self)}, revision={self._partitions.revision})"

    def __len__(self) -> int:
        return sum(len(partition.rows) for partition in self._partitions.by_name.values())

    @property
    def revision(self) -> int:
        """Number of the last change, 0 before the first."""
        return self._partitions.revision

    def partitions(self) -> tuple[str, ...]:
        """The first key parts under which there are rows."""
        return tuple(name for name, partition in self._partitions.by_name.items() if partition.rows)

    def get(self, key: K) -> V | None:
        """The value of a key, None if it has none."""
        partition = self._partitions.by_name.get(key[0])
        return None if partition is None else partition.rows.get(key)

    def scan(self, prefix: tuple[str, ...] = ()) -> Iterator[tuple[K, V]]:
        """Rows whose key starts with `prefix`, in no promised order; reads the whole partition, not an index.

        The rows are not copied: a change while the iterator is in use ends it with RuntimeError.
        """
        if not prefix:
            for partition in self._partitions.by_name.values():
                yield from partition.rows.items()
            return
        found = self._partitions.by_name.get(prefix[0])
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
        partition = self._partitions.by_name.get(first)
        if partition is not None:
            gone = [key for key in partition.rows if key not in staged and key[:size] == prefix]
            staged.update(dict.fromkeys(gone))
        return self._write(staged, cause)

    def root(self, partition: str | None = None) -> bytes:
        """The 16-byte root of a partition's content or of the whole table's; equal content has equal roots anywhere."""
        if partition is None:
            filled = [part for part in self._partitions.by_name.values() if part.rows]
            return table_root((part.name, part.up_to_date(self.digest).root(part.rows)) for part in filled)
        found = self._partitions.by_name.get(partition)
        return Tree[K, V]({}, self.digest).root({}) if found is None else found.up_to_date(self.digest).root(found.rows)

    def buckets(self, partition: str) -> tuple[int, ...]:
        """The 256 sums below a partition's root, for `merkle.difference` with those of a copy."""
        found = self._partitions.by_name.get(partition)
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
        return Cursor(self._partitions, partition, bell, from_start=from_start)

    def _write(self, staged: dict[K, V | None], cause: object) -> int:
        by_name = self._partitions.by_name
        differing: dict[str, list[tuple[K, V | None]]] = {}
        name: str | None = None
        rows: Mapping[K, V] = {}
        changes: list[tuple[K, V | None]] | None = None
        for item in staged.items():
            key, value = item
            if key[0] != name:
                name = key[0]
                partition = by_name.get(name)
                rows = {} if partition is None else partition.rows
                changes = differing.get(name)
            old = rows.get(key)
            if old is not value and old != value:
                if changes is None:
                    changes = differing[key[0]] = []
                changes.append(item)
        if differing:
            if self._repeats is not None:
                for name, changes in differing.items():
                    if (partition := by_name.get(name)) is not None and partition.rows:
                        rows = partition.rows
                        changes += [(key, rows[key]) for key in self._repeats(rows, changes)]
            self._commit(differing, cause)
        return self._partitions.revision

    def _commit(self, differing: dict[str, list[tuple[K, V | None]]], cause: object) -> None:
        """Make changes that are known to differ, then ring. No code but ours runs before the bells."""
        partitions = self._partitions
        revision = partitions.revision + 1
        ringing: list[Cursor[K, V]] = []
        for name, changes in differing.items():
            partition = partitions.open(name)
            woken = partition.write(changes, revision, cause)
            if woken:
                ringing += [reader.cursor for reader in woken if reader.cursor.wake(reader)]
            if not partition.rows:
                partitions.drop_if_unused(partition)
        partitions.revision = revision
        if ringing:
            self._ring(ringing)

    def _ring(self, cursors: list[Cursor[K, V]]) -> None:
        failures: list[Exception] = []
        for cursor in cursors:
            try:
                cursor.ring()
            except Exception as failure:  # noqa: BLE001 - of the bell, not ours; raised when all have rung
                failures.append(failure)
        if failures:
            raise ExceptionGroup(f"table {self.name}: bells failed", failures)
