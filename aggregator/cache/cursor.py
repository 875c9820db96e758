"""Cursors: how readers of a table hear of change, each at its own pace, and what they are given.

A cursor is the queue between two stages: it coalesces (the newest value per key), is bounded (an entry per changed
key), and wakes its reader once, by a bell. It is made by `Table.cursor`; it holds places in the change logs of the
partitions it reads, and no values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from aggregator.cache.changelog import KEPT_CAUSES

if TYPE_CHECKING:
    from aggregator.cache.changelog import Reader
    from aggregator.cache.partitions import Partition, Partitions

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


class Cursor(Generic[K, V]):
    """A reader's place in a table; made by `Table.cursor`, freed by `close`.

    A cursor that never takes makes the table hold one entry per changed key, not one per change. One from the start
    that was not yet taken from makes it hold nothing.
    """

    __slots__ = ("_bell", "_partition", "_partitions", "_readers", "_revision", "_waiting", "_waits_to_begin")

    def __init__(
        self, partitions: Partitions[K, V], partition: str | None, bell: Bell | None, *, from_start: bool
    ) -> None:
        self._partitions: Partitions[K, V] | None = partitions
        self._partition = partition
        self._bell = bell
        self._revision = partitions.revision
        self._readers: dict[str, Reader[K, V]] = {}
        self._waiting: dict[Reader[K, V], None] = {}
        """Readers with something to read, in the order of their turns."""
        self._waits_to_begin = from_start and partitions.has_rows(partition)
        if not self._waits_to_begin:
            self._join(partitions, with_backlog=False)

    @property
    def pending(self) -> bool:
        """True when there is something to take; a cursor from the start is pending until it was first taken from."""
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
        partitions = self._partitions
        if partitions is None:
            raise RuntimeError("the cursor is closed")
        if limit is not None and limit < 1:
            raise ValueError(f"a limit of {limit} keys would take nothing, for ever")
        if self._waits_to_begin:
            self._waits_to_begin = False
            self._join(partitions, with_backlog=limit is not None)
            if limit is None:
                return self._take_content(partitions)
        if not self._waiting:
            return Batch({}, (), self._revision)
        if limit is None and self._partition is not None:
            return self._take_partition(partitions, next(iter(self._waiting)))
        return self._take_turns(partitions, limit)

    def unread(self, key: K) -> bool:
        """Whether the next `take` without limit returns this key. Costs a look-up, but for a cursor from the start that
        takes in pages, whose first pages it searches.
        """
        if self._waits_to_begin:
            partition = self._partitions.by_name.get(key[0]) if self._partitions is not None else None
            return partition is not None and self._partition in (None, key[0]) and key in partition.rows
        reader = self._readers.get(key[0])
        return reader is not None and reader.partition.log.unread(reader, key)

    def close(self) -> None:
        """Stop reading and free what was kept for this cursor. May be called again, and from a bell."""
        partitions, self._partitions = self._partitions, None
        if partitions is None:
            return
        self._bell = None
        self._waits_to_begin = False
        self._waiting.clear()
        partitions.roaming.pop(self, None)
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            partition = reader.partition
            partition.log.leave(reader)
            if self._partition is not None:
                partition.held -= 1
            partitions.drop_if_unused(partition)

    def wake(self, reader: Reader[K, V]) -> bool:
        """Note, for the table, that one of this cursor's readers has something to read; True if it is to be rung."""
        first = not self._waiting
        self._waiting[reader] = None
        return first and self._bell is not None

    def ring(self) -> None:
        """Ring the bell, for the table, unless another bell's owner has taken from this cursor or closed it already."""
        if self._waiting and self._bell is not None:
            self._bell()

    def follow(self, partition: Partition[K, V]) -> None:
        """Read a partition that has just come to be."""
        self._readers[partition.name] = partition.log.join(self, partition, [])

    def forget(self, partition: Partition[K, V]) -> None:
        """Let go of a partition that is no more."""
        del self._readers[partition.name]

    def _join(self, partitions: Partitions[K, V], *, with_backlog: bool) -> None:
        if self._partition is None:
            partitions.roaming[self] = None
            joined = list(partitions.by_name.values())
        else:
            joined = [partitions.open(self._partition)]
            joined[0].held += 1
        for partition in joined:
            backlog = list(reversed(partition.rows)) if with_backlog else []
            reader = self._readers[partition.name] = partition.log.join(self, partition, backlog)
            if backlog:
                self._waiting[reader] = None

    def _take_content(self, partitions: Partitions[K, V]) -> Batch[K, V]:
        """All rows there are, for readers that have just joined at the newest revision."""
        changes: dict[K, V | None] = {}
        for reader in self._readers.values():
            changes.update(reader.partition.rows)
        self._revision = partitions.revision
        return Batch(changes, (), self._revision)

    def _take_partition(self, partitions: Partitions[K, V], reader: Reader[K, V]) -> Batch[K, V]:
        """Take all of the one partition; cursors that stood at the same place are given the same batch."""
        partition = reader.partition
        place = (reader.position, reader.caused)
        whole = not reader.backlog
        del self._waiting[reader]
        if whole and partition.shared is not None and partition.shared[0] == place:
            partition.log.skip(reader)
            batch = partition.shared[1]
        else:
            changes: dict[K, V | None] = {}
            causes: list[tuple[int, object]] = []
            dropped = partition.log.read(reader, partition.rows, None, changes, causes)
            batch = _batch(changes, causes, reader.position, dropped)
            partition.shared = (place, batch) if whole else None
        self._revision = batch.revision
        if partition.log.idle:
            partition.shared = None
            partitions.drop_if_unused(partition)
        return batch

    def _take_turns(self, partitions: Partitions[K, V], limit: int | None) -> Batch[K, V]:
        """Take of several partitions in turn, to each a fair share of the limit."""
        waiting = self._waiting
        changes: dict[K, V | None] = {}
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
            else:
                partitions.drop_if_unused(partition)
        return _batch(changes, causes, self._revision, dropped)


def _batch(changes: Mapping[K, V | None], causes: list[tuple[int, object]], revision: int, dropped: int) -> Batch[K, V]:
    """A batch of what one or more partitions gave: a cause once, though its revision touched several of them."""
    if not causes:
        return Batch(changes, (), revision, dropped)
    if len(causes) > 1:
        causes.sort(key=lambda entry: entry[0])
    distinct = tuple({id(cause): cause for _, cause in causes}.values())
    return Batch(changes, distinct[-KEPT_CAUSES:], revision, dropped + max(0, len(distinct) - KEPT_CAUSES))
