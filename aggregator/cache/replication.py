"""A table in one process, the same table in another: `Publisher` writes a table's rows to a journal, `Follower` reads
them into a table there. Readers of that table see batches, causes and revisions as if it were the first.

The publisher's table is its own queue: a cursor tells what is still to be said, so an unreachable journal costs one
entry per changed key. Whatever may have been lost (a flush, a restart, an answer that never came, another leader's
writes) is met in one way: the digests of all rows are compared and what differs is said, and nothing else.

Truths kept here: absence from a journal that is not complete means nothing; a row is deleted only by a writer that saw
the deletion or has all there is; a deposed leader does not write. Neither side waits or retries by itself: its owner
calls `step` when a bell rings or time has passed, one call at a time. What a journal raises comes out of `step`, which
may be cancelled at any await; the next call goes on from what is certain.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from aggregator.cache.journal import DELETED, Entry, Fenced, Gap, Position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aggregator.cache.journal import Journal, Snapshot
    from aggregator.cache.table import Table

K = TypeVar("K", bound="tuple[str, ...]")
V = TypeVar("V")

_SLICE = 1000
"""Rows compared, encoded or decoded before other tasks get a turn: a few milliseconds."""

_PAGE = 1000
"""Rows per append while a store is being filled, and values asked for at once."""

_APPENDS = 1000
"""Appends read at once."""

_ROUNDS = 8
"""How often a follower reads on because a value is newer than the log it has read."""


_INCARNATIONS = 64
"""How many incarnations a follower remembers to have left behind."""


class Codec(Protocol[K, V]):
    """How rows become bytes and rows again. Decoding checks what it is given and raises on what is not a row."""

    def encode_key(self, key: K) -> bytes:
        """The key as bytes, different for different keys."""

    def decode_key(self, data: bytes) -> K:
        """The key again."""

    def encode_value(self, value: V) -> bytes:
        """The value as bytes."""

    def decode_value(self, data: bytes) -> V:
        """A value equal to the one that was encoded."""


class MessagePackCodec(Generic[V]):
    """The codec for tables of msgspec records: keys and values as MessagePack, checked against `kind` when decoded.

    Parts of decoded keys are interned, since the same names come back in thousands of keys.
    """

    def __init__(self, kind: object) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._keys: msgspec.msgpack.Decoder[tuple[str, ...]] = msgspec.msgpack.Decoder(tuple[str, ...])
        self._values: msgspec.msgpack.Decoder[V] = msgspec.msgpack.Decoder(kind)

    def encode_key(self, key: tuple[str, ...]) -> bytes:
        """See `Codec.encode_key`."""
        return self._encoder.encode(key)

    def decode_key(self, data: bytes) -> tuple[str, ...]:
        """The key; raises msgspec.DecodeError if it is not a tuple of strings."""
        return tuple(map(sys.intern, self._keys.decode(data)))

    def encode_value(self, value: V) -> bytes:
        """See `Codec.encode_value`."""
        return self._encoder.encode(value)

    def decode_value(self, data: bytes) -> V:
        """The value; raises msgspec.DecodeError if it is not of the kind."""
        return self._values.decode(data)


class Replicated(msgspec.Struct, frozen=True, gc=False):
    """The cause of a change that came through a journal: whose, and the journal position it brings the table to."""

    owner: str
    position: Position


class Publisher(Generic[K, V]):
    """Keeps a journal's rows of one owner equal to a table's, or to one partition of it.

    `epoch` asks the leadership for the epoch this process may write with now, None while another leads; it is asked
    before every claim, so that a store which lost its claims is claimed by the present leader only. `complete` tells
    whether the table holds all there is (every source has answered once); before that, rows are added and changed and
    deletions seen are said, but what the journal has beyond the table stays. `bell` is rung when there is something to
    say; a flush rings nothing, so `step` is to be called from time to time as well.
    """

    def __init__(
        self,
        table: Table[K, V],
        journal: Journal,
        owner: str,
        codec: Codec[K, V],
        *,
        epoch: Callable[[], Awaitable[int | None]],
        complete: Callable[[], bool],
        partition: str | None = None,
        bell: Callable[[], None] | None = None,
    ) -> None:
        self._table = table
        self._journal = journal
        self._owner = owner
        self._codec = codec
        self._ask_epoch = epoch
        self._complete = complete
        self._prefix = () if partition is None else (partition,)
        self._cursor = table.cursor(partition, bell, from_start=False)
        self._epoch = 0
        self._position: Position | None = None
        """Where the journal stands if it holds what was said; None when that is not certain."""
        self._said_complete = False
        self._was_complete = False
        self._deleted: set[K] = set()
        """Deletions seen that the journal is not certain to have."""

    async def step(self) -> int:
        """Bring the journal up to the table; returns how many rows were written or deleted.

        Does nothing while another leads. Raises Fenced when a newer epoch is met or the store is flushed while it is
        filled, and whatever the journal raises; the next call begins with the epoch again.
        """
        said = 0
        if self._complete() and not self._said_complete:
            self._position = None
        if self._position is not None:
            try:
                said = await self._say_changes(self._position)
            except Fenced as refusal:
                if not refusal.forgotten:
                    raise
        if self._position is None:
            said += await self._say_everything()
        return said

    def close(self) -> None:
        """Stop following the table."""
        self._cursor.close()

    async def _say_changes(self, position: Position) -> int:
        self._position = None
        entries = await self._entries(self._take().items())
        reached = await self._journal.append(self._owner, self._epoch, entries)
        self._deleted.clear()
        self._position = reached if reached == _after(position, entries) else None
        return len(entries)

    async def _say_everything(self) -> int:
        self._position = None
        epoch = await self._ask_epoch()
        if epoch is None:
            return 0
        # Kept over attempts that fail after the claim, which takes the mark back.
        self._was_complete = await self._journal.claim(self._owner, epoch) or self._was_complete
        snapshot = await self._journal.snapshot(self._owner)
        # The rows and the cursor are of one moment: what changes from here on is said after them.
        complete = self._complete()
        self._take()
        rows = list(self._table.scan(self._prefix))
        changes = await self._difference(rows, snapshot, complete=complete)
        # Readers of what was complete must not see half of a change; what is being filled has no whole to break.
        page = max(1, len(changes)) if self._was_complete and snapshot.digests else _PAGE
        remaining = iter(changes.items())
        said = 0
        expected = snapshot.position
        while True:
            entries = await self._entries(islice(remaining, page))
            said += len(entries)
            expected = _after(expected, entries)
            last = said == len(changes)
            reached = await self._journal.append(self._owner, epoch, entries, complete=complete and last)
            if last:
                break
        self._deleted.clear()
        self._epoch, self._said_complete, self._was_complete = epoch, complete, False
        self._position = reached if reached == expected else None
        return said

    async def _difference(
        self, rows: list[tuple[K, V]], snapshot: Snapshot, *, complete: bool
    ) -> dict[bytes, V | None]:
        """What to write so that the journal holds `rows`, and nothing else if they are all there is."""
        changes: dict[bytes, V | None] = dict.fromkeys(map(self._codec.encode_key, self._deleted))
        leftover = dict(snapshot.digests)
        for number, (key, value) in enumerate(rows, 1):
            data = self._codec.encode_key(key)
            if leftover.pop(data, DELETED) != self._table.digest(value):
                changes[data] = value
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        if complete:
            changes.update(dict.fromkeys(leftover))
        return changes

    async def _entries(self, changes: Iterable[tuple[bytes, V | None]]) -> list[Entry]:
        entries = []
        for number, (data, value) in enumerate(changes, 1):
            if value is None:
                entries.append(Entry(data, DELETED, None))
            else:
                entries.append(Entry(data, self._table.digest(value), self._codec.encode_value(value)))
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        return entries

    def _take(self) -> dict[bytes, V | None]:
        changes: dict[bytes, V | None] = {}
        for key, value in self._cursor.take().changes.items():
            changes[self._codec.encode_key(key)] = value
            if value is None:
                self._deleted.add(key)
            else:
                self._deleted.discard(key)
        return changes


def _after(position: Position, entries: Sequence[Entry]) -> Position:
    """Where one append brings a log with one writer; if it is elsewhere, the store was rolled back or replaced."""
    return Position(position.incarnation, position.number + 1) if entries else position


class Follower(Generic[K, V]):
    """Keeps a table, or one partition of it, equal to a journal's rows of one owner; the only writer there.

    Rows appear as they are said. Rows the journal does not have are deleted when it says so or when it is complete, so
    a store that is empty, flushed, rolled back or being filled again withdraws nothing. A row that cannot be decoded,
    or that lies in another partition, leaves the table as it is and is listed in `faults` (key as bytes: reason) until
    the journal holds something better.
    """

    def __init__(
        self, table: Table[K, V], journal: Journal, owner: str, codec: Codec[K, V], *, partition: str | None = None
    ) -> None:
        self._table = table
        self._journal = journal
        self._owner = owner
        self._codec = codec
        self._prefix = () if partition is None else (partition,)
        self._position: Position | None = None
        """The journal's place the table is at; None until a snapshot was read."""
        self._left: deque[str] = deque(maxlen=_INCARNATIONS)
        """Incarnations read and left for others; a store that shows one again was rolled back.

        A store rolled back to an incarnation that was never read here cannot be told from a new one, and is believed.
        """
        self._whole = False
        """True when everything in the table was in the journal once its present writer had said everything."""
        self.faults: dict[bytes, str] = {}

    async def step(self) -> int:
        """Bring the table up to the journal, as one revision; returns how many rows were set or deleted.

        Appends are applied whole: if a value is already newer than the log that was read, the log is read on. Raises
        what the journal raises, and then has changed nothing.
        """
        digests: dict[bytes, bytes] = {}
        whole = self._whole
        position = None if self._position is None else await self._read_on(self._position, digests, whole=whole)
        if position is None:
            snapshot = await self._journal.snapshot(self._owner)
            if snapshot.position == Position() or self._rolled_back(snapshot.position):
                return 0  # it says nothing, or nothing new, until a writer has claimed it again
            position, whole, digests = snapshot.position, snapshot.complete, dict(snapshot.digests)
            self.faults = {data: reason for data, reason in self.faults.items() if data in digests}
            if whole:
                rows = [self._codec.encode_key(key) for key, _ in self._table.scan(self._prefix)]
                digests.update({data: DELETED for data in rows if data not in digests})
        wanted: dict[bytes, tuple[K, bytes]] = {}
        found: dict[bytes, tuple[bytes, bytes] | None] = {}
        rounds = 0
        await self._compare(digests, wanted)
        while not await self._fetch(wanted, found) and rounds < _ROUNDS:
            rounds += 1
            digests = {}
            further = await self._read_on(position, digests, whole=whole)
            if further is None:
                return 0
            position = further
            await self._compare(digests, wanted)
        changes = self._decode(wanted, found)
        if changes:
            self._table.apply(changes.items(), cause=Replicated(self._owner, position))
        self._arrive(position)
        self._whole = whole
        return len(changes)

    def _rolled_back(self, position: Position) -> bool:
        """True if the table has been further than the store is now."""
        known = self._position
        if known is not None and known.incarnation == position.incarnation:
            return position.number < known.number
        return position.incarnation in self._left

    def _arrive(self, position: Position) -> None:
        known, self._position = self._position, position
        if known is not None and known.incarnation != position.incarnation:
            self._left.append(known.incarnation)

    async def _read_on(self, position: Position, digests: dict[bytes, bytes], *, whole: bool) -> Position | None:
        """Add what was written after a position; returns where the log ends, or None if only a snapshot helps."""
        while True:
            records = await self._journal.read(self._owner, position, _APPENDS)
            if isinstance(records, Gap) or (records.complete and not whole):
                return None
            for append in records.appends:
                digests.update(append)
            position = records.position
            if len(records.appends) < _APPENDS:
                return position

    async def _compare(self, digests: dict[bytes, bytes], wanted: dict[bytes, tuple[K, bytes]]) -> None:
        """Note in `wanted` (key and digest by encoded key) where the table differs from the journal."""
        size = len(self._prefix)
        for number, (data, digest) in enumerate(digests.items(), 1):
            if number % _SLICE == 0:
                await asyncio.sleep(0)
            try:
                key = self._codec.decode_key(data)
                if not key or key[:size] != self._prefix:
                    raise ValueError(f"{key} does not belong to {self._owner}")
            except Exception as failure:  # noqa: BLE001 - whatever a foreign key makes a codec raise, it is no key
                if digest == DELETED:
                    self.faults.pop(data, None)
                else:
                    self.faults[data] = f"key: {failure}"
                continue
            row = self._table.get(key)
            if digest == (DELETED if row is None else self._table.digest(row)):
                wanted.pop(data, None)
                self.faults.pop(data, None)
            else:
                wanted[data] = (key, digest)

    async def _fetch(
        self, wanted: dict[bytes, tuple[K, bytes]], found: dict[bytes, tuple[bytes, bytes] | None]
    ) -> bool:
        """Ask for the values in want; True when each is the one the log speaks of."""
        matching = True
        missing = [
            data
            for data, (_, digest) in wanted.items()
            if digest != DELETED and (found.get(data) or (DELETED,))[0] != digest
        ]
        for start in range(0, len(missing), _PAGE):
            page = missing[start : start + _PAGE]
            for data, value in zip(page, await self._journal.values(self._owner, page), strict=True):
                found[data] = value
                matching = matching and value is not None and value[0] == wanted[data][1]
        return matching

    def _decode(
        self, wanted: dict[bytes, tuple[K, bytes]], found: dict[bytes, tuple[bytes, bytes] | None]
    ) -> dict[K, V | None]:
        changes: dict[K, V | None] = {}
        for data, (key, digest) in wanted.items():
            if digest == DELETED:
                changes[key] = None
                self.faults.pop(data, None)
            elif (row := found.get(data)) is not None:
                try:
                    changes[key] = self._codec.decode_value(row[1])
                    self.faults.pop(data, None)
                except Exception as failure:  # noqa: BLE001 - one row that is not what it should be spoils no other
                    self.faults[data] = f"value: {failure}"
        return changes
