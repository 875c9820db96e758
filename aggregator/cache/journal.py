"""The journal: what joins the tables of several processes. A store outside of them that holds, for each owner, the rows
last said (key, digest, value) and a log of which keys changed, written together in one atomic step.

An owner is a name for a set of rows with one writer at a time. Writers are fenced: each claims the owner with an epoch
that only grows from one leader to the next, and an older epoch, or any epoch after the store forgot the claim, is
refused. A store may be flushed, replaced or rolled back at any time; so every claim begins an incarnation of the log,
positions are good within one only, and `complete` says whether the writer of that incarnation has said everything it
had. Nothing is to be concluded from the absence of a row before that.

The operations are few enough for one hash, one stream and one script per owner in a store like Redis. `MemoryJournal`
is the journal of a single process: tests run on it, and it defines how any other must behave.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DELETED = b""
"""The digest a log gives for a key that was deleted."""


class Fenced(Exception):
    """The writer may not write: another epoch has claimed the owner, or the store remembers no claim."""

    def __init__(self, owner: str, epoch: int, newest: int | None) -> None:
        super().__init__(
            f"{owner}: epoch {epoch} may not write: "
            + ("nobody has claimed this owner" if newest is None else f"epoch {newest} has claimed this owner")
        )
        self.owner = owner
        self.epoch = epoch
        self.newest = newest
        """The epoch the store knows, None if it knows none."""

    @property
    def forgotten(self) -> bool:
        """True if nobody newer writes and the store lost the claim (new, flushed, rolled back): it may be claimed."""
        return self.newest is None or self.newest < self.epoch


class Position(Struct, frozen=True, gc=False):
    """A place in an owner's log: how many appends the incarnation holds up to there.

    Every claim begins an incarnation, with a name that never comes again ("" before any claim); what was written under
    an earlier one is met in a snapshot only.
    """

    incarnation: str = ""
    number: int = 0


class Entry(Struct, frozen=True, gc=False):
    """A row to write: the digest and bytes of its value, or no value to delete it."""

    key: bytes
    digest: bytes
    value: bytes | None


class Snapshot(Struct, frozen=True):
    """All keys of an owner and their digests at one position; values are asked for by key."""

    position: Position
    complete: bool
    digests: Mapping[bytes, bytes]


class Records(Struct, frozen=True):
    """Appends that followed a position: for each, oldest first, the keys it wrote with their digests or DELETED.

    `position` is the place after the last of them, `complete` the owner's mark at the time of reading.
    """

    position: Position
    complete: bool
    appends: tuple[tuple[tuple[bytes, bytes], ...], ...]


class Gap(Struct, frozen=True, gc=False):
    """The log cannot be read on from that position: another incarnation, trimmed, or rolled back. Take a snapshot."""


class Journal(Protocol):
    """What publishers and followers need of a store. Every operation is atomic and may raise what its transport raises.

    After such an exception the caller does not know whether a write happened; repeating one does no harm.
    """

    async def claim(self, owner: str, epoch: int) -> bool:
        """Make `epoch` the one that may write and begin an incarnation: rows stay, the complete mark is taken back.

        Returns whether the owner was complete until now. The present epoch may claim again, as it does when it doubts
        what the store holds. Raises Fenced if a newer epoch is known.
        """

    async def append(self, owner: str, epoch: int, entries: Sequence[Entry], *, complete: bool = False) -> Position:
        """Write the entries as one append, seen by readers as a whole; returns the position after it.

        `complete` sets the owner's mark in the same step; it stays until the next claim or flush. Without entries
        nothing is appended, but the epoch is checked and the mark set. Raises Fenced if the store knows another epoch
        or none.
        """

    async def snapshot(self, owner: str) -> Snapshot:
        """All keys and digests; of an owner nobody has claimed: no keys, not complete, at `Position()`."""

    async def values(self, owner: str, keys: Sequence[bytes]) -> list[tuple[bytes, bytes] | None]:
        """For each key its present digest and value, or None if there is no such row now."""

    async def read(self, owner: str, position: Position, limit: int) -> Records | Gap:
        """At most `limit` appends after `position`."""


class _Owner:
    """The store's side of one owner."""

    __slots__ = ("complete", "epoch", "incarnation", "log", "number", "rows")

    def __init__(self, retained: int) -> None:
        self.epoch = 0
        self.incarnation = ""
        self.number = 0
        self.complete = False
        self.rows: dict[bytes, tuple[bytes, bytes]] = {}
        self.log: deque[tuple[tuple[bytes, bytes], ...]] = deque(maxlen=retained)

    @property
    def position(self) -> Position:
        return Position(self.incarnation, self.number)


class MemoryJournal:
    """A journal in this process: `retained` appends are kept per owner, and `flush` forgets everything at once."""

    def __init__(self, retained: int = 1000) -> None:
        self._retained = retained
        self._owners: dict[str, _Owner] = {}

    def flush(self) -> None:
        """Lose all rows, logs, marks and claims, as a store does that was flushed or replaced by an empty one."""
        self._owners.clear()

    async def claim(self, owner: str, epoch: int) -> bool:
        """See `Journal.claim`."""
        known = self._owners.get(owner)
        if known is None:
            known = self._owners[owner] = _Owner(self._retained)
        elif epoch < known.epoch:
            raise Fenced(owner, epoch, known.epoch)
        known.epoch = epoch
        known.incarnation = uuid4().hex
        known.number = 0
        known.log.clear()
        complete, known.complete = known.complete, False
        return complete

    async def append(self, owner: str, epoch: int, entries: Sequence[Entry], *, complete: bool = False) -> Position:
        """See `Journal.append`."""
        known = self._owners.get(owner)
        if known is None:
            raise Fenced(owner, epoch, None)
        if epoch != known.epoch:
            raise Fenced(owner, epoch, known.epoch)
        for entry in entries:
            if entry.value is None:
                known.rows.pop(entry.key, None)
            else:
                known.rows[entry.key] = (entry.digest, entry.value)
        if entries:
            known.log.append(tuple((e.key, DELETED if e.value is None else e.digest) for e in entries))
            known.number += 1
        known.complete = known.complete or complete
        return known.position

    async def snapshot(self, owner: str) -> Snapshot:
        """See `Journal.snapshot`."""
        known = self._owners.get(owner)
        if known is None:
            return Snapshot(Position(), complete=False, digests={})
        return Snapshot(known.position, known.complete, {key: digest for key, (digest, _) in known.rows.items()})

    async def values(self, owner: str, keys: Sequence[bytes]) -> list[tuple[bytes, bytes] | None]:
        """See `Journal.values`."""
        known = self._owners.get(owner)
        return [None] * len(keys) if known is None else [known.rows.get(key) for key in keys]

    async def read(self, owner: str, position: Position, limit: int) -> Records | Gap:
        """See `Journal.read`."""
        known = self._owners.get(owner)
        if known is None:
            return Gap() if position != Position() else Records(position, complete=False, appends=())
        behind = known.number - position.number
        if position.incarnation != known.incarnation or not 0 <= behind <= len(known.log):
            return Gap()
        first = len(known.log) - behind
        appends = tuple(known.log[index] for index in range(first, min(first + limit, len(known.log))))
        return Records(Position(known.incarnation, position.number + len(appends)), known.complete, appends)
