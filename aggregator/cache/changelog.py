"""What changed in one partition of a table, for the readers that have not heard of it yet.

The table records the keys of every revision here, readers take them from their own position on; values are not kept,
a reader is given the value a key has when it reads. So a slow reader costs one entry for each key that changed and
not one for each change, and once every reader has passed an entry the entry goes.

Two things must hold whatever the speed of a reader: a revision is never read in parts (a reference would arrive without
its target), and no step is proportional to the number of readers unless that many steps came before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from aggregator.cache.cursor import Cursor
    from aggregator.cache.partitions import Partition

K = TypeVar("K", bound="tuple[str, ...]")
V = TypeVar("V")

KEPT_CAUSES = 64
"""How many causes a partition remembers for its readers; of older ones only the number is known."""

_STALE_ENTRIES = 32
"""Entries that may be stale however small the log, so that tiny logs are not compacted at every change."""

_REVISION: Callable[[tuple[int, object]], int] = itemgetter(0)


class Reader(Generic[K, V]):
    """The place of one cursor in one partition.

    `position` is the revision up to which everything was read, `caused` how many causes it has accounted for.
    `backlog` holds (newest first, to be popped) keys that existed when the reader began and were not handed out yet.
    """

    __slots__ = ("backlog", "caused", "cursor", "partition", "position")

    def __init__(
        self, cursor: Cursor[K, V], partition: Partition[K, V], position: int, caused: int, backlog: list[K]
    ) -> None:
        self.cursor = cursor
        self.partition = partition
        self.position = position
        self.caused = caused
        self.backlog = backlog


class ChangeLog(Generic[K, V]):
    """Keys by the revision that changed them, oldest first, for as long as one reader has not passed them.

    `_keys` and `_revisions` run in parallel; an entry whose key changed again later is stale (`_newest` says so), gives
    a reader nothing new, and at most half of the entries are stale. `_cuts` are the revisions a bounded read may stop
    after: if revision 9 changed a key that revision 3 had changed, whoever reads 3 is given the value of 9 and so must
    read all of 9 too, and no cut lies between them.
    """

    __slots__ = (
        "_caused",
        "_causes",
        "_credit",
        "_cuts",
        "_keys",
        "_newest",
        "_readers",
        "_resting",
        "_revisions",
        "head",
    )

    def __init__(self, head: int) -> None:
        self.head = head
        """The revision of the partition's last change."""
        self._keys: list[K] = []
        self._revisions: list[int] = []
        self._newest: dict[K, int] = {}
        self._cuts: list[int] = []
        self._causes: list[tuple[int, object]] = []
        self._caused = 0
        self._readers: dict[Reader[K, V], None] = {}
        self._resting: dict[Reader[K, V], None] = {}
        self._credit = 0

    def __len__(self) -> int:
        """Entries held, stale ones included."""
        return len(self._keys)

    @property
    def idle(self) -> bool:
        """True when every reader has read everything."""
        return len(self._resting) == len(self._readers)

    def join(self, cursor: Cursor[K, V], partition: Partition[K, V], backlog: list[K]) -> Reader[K, V]:
        """Add a reader that has everything up to now but `backlog` behind it."""
        reader = Reader(cursor, partition, self.head, self._caused, backlog)
        self._readers[reader] = None
        if not backlog:
            self._resting[reader] = None
        return reader

    def leave(self, reader: Reader[K, V]) -> None:
        """Remove a reader and what was kept for it alone."""
        self._readers.pop(reader, None)
        self._resting.pop(reader, None)
        self._passed(1)

    def dismiss(self) -> Iterable[Reader[K, V]]:
        """Let all readers go and return them; the log is not used any more, and keeps nobody alive."""
        readers, self._readers, self._resting = self._readers, {}, {}
        return readers

    def record(self, changed: Iterable[tuple[K, V | None]], revision: int, cause: object) -> Collection[Reader[K, V]]:
        """Note the keys of a new revision, each once; returns the readers that had nothing to read until now."""
        self.head = revision
        if not self._readers:
            return ()
        keys, newest = self._keys, self._newest
        oldest = revision
        for key, _ in changed:
            previous = newest.get(key)
            if previous is not None and previous < oldest:
                oldest = previous
            newest[key] = revision
            keys.append(key)
        revisions = self._revisions
        revisions += [revision] * (len(keys) - len(revisions))
        cuts = self._cuts
        while cuts and cuts[-1] >= oldest:
            cuts.pop()
        cuts.append(revision)
        if cause is not None:
            self._caused += 1
            self._causes.append((revision, cause))
            if len(self._causes) > KEPT_CAUSES:
                del self._causes[0]
        if len(keys) > 2 * len(newest) + _STALE_ENTRIES:
            self._compact()
        woken = self._resting
        if woken:
            self._resting = {}
        return woken

    def read(
        self,
        reader: Reader[K, V],
        rows: Mapping[K, V],
        limit: int | None,
        changes: dict[K, V | None],
        causes: list[tuple[int, object]],
    ) -> int:
        """Move a reader on, adding to `changes` and `causes` what it reads; returns how many causes were forgotten.

        Without limit it reads everything. With one it stops at the first place, once `limit` keys were read, where no
        revision is left half read; the backlog of a reader that begins is not a revision and stops exactly there.
        """
        start = len(changes)
        begun = reader.position
        backlog, newest = reader.backlog, self._newest
        while backlog and (limit is None or len(changes) - start < limit):
            key = backlog.pop()
            # A key that changed since comes with its revision instead: once, and as a deletion if it is one.
            if newest.get(key, 0) <= begun:
                changes[key] = rows[key]
        if backlog:
            self._passed(len(changes) - start + 1)
            return 0
        revisions, keys = self._revisions, self._keys
        index = bisect_right(revisions, begun)
        end = self.head if limit is None else self._end(begun, index, limit - (len(changes) - start))
        stop = len(keys) if end == self.head else bisect_right(revisions, end, index)
        for key in keys[index:stop]:
            changes[key] = rows.get(key)
        forgotten = self._read_causes(reader, end, causes)
        reader.position = end
        if end == self.head:
            self._resting[reader] = None
        self._passed(stop - index + 1)
        return forgotten

    def unread(self, reader: Reader[K, V], key: K) -> bool:
        """Whether a key is among what a reader has still to read."""
        return self._newest.get(key, 0) > reader.position or key in reader.backlog

    def skip(self, reader: Reader[K, V]) -> None:
        """Move a reader to the newest revision without reading, because it was given what another reader read."""
        reader.position = self.head
        reader.caused = self._caused
        self._resting[reader] = None
        self._passed(1)

    def _end(self, begun: int, index: int, wanted: int) -> int:
        """The revision after which a read from entry `index` stops: the first cut with `wanted` keys before it."""
        stop = index
        while stop < len(self._keys) and wanted > 0:
            wanted -= self._newest[self._keys[stop]] == self._revisions[stop]
            stop += 1
        if stop == index:
            return begun
        return self._cuts[bisect_left(self._cuts, self._revisions[stop - 1])]

    def _read_causes(self, reader: Reader[K, V], end: int, causes: list[tuple[int, object]]) -> int:
        """Add the causes of the revisions up to `end`; returns how many of them are no longer known."""
        forgotten = max(0, self._caused - len(self._causes) - reader.caused)
        start = bisect_right(self._causes, reader.position, key=_REVISION)
        stop = bisect_right(self._causes, end, start, key=_REVISION)
        causes += self._causes[start:stop]
        reader.caused += forgotten + stop - start
        return forgotten

    def _passed(self, steps: int) -> None:
        """Drop what every reader has passed: at once when nobody is behind, else after as many steps as it costs."""
        if len(self._resting) == len(self._readers):
            if self._keys:
                self._keys.clear()
                self._revisions.clear()
                self._newest.clear()
                self._cuts.clear()
            self._causes.clear()
            self._credit = 0
            return
        self._credit += steps
        if self._credit < len(self._readers) + len(self._keys):
            return
        self._credit = 0
        low = min(reader.position for reader in self._readers)
        end = bisect_right(self._revisions, low)
        newest = self._newest
        for key in self._keys[:end]:
            if newest.get(key, low + 1) <= low:
                del newest[key]
        del self._keys[:end]
        del self._revisions[:end]
        del self._cuts[: bisect_right(self._cuts, low)]

    def _compact(self) -> None:
        """Drop the entries of keys that changed again later."""
        newest = self._newest
        live = [(key, at) for key, at in zip(self._keys, self._revisions, strict=True) if newest[key] == at]
        self._keys = [key for key, _ in live]
        self._revisions = [at for _, at in live]
