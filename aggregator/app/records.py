"""Records: what the stages say they did, kept in one bounded ring and read afterwards.

In: Batch and Pass from the aggregator, Push, Ack, StreamOpened and StreamClosed from the xDS server (xds/records.py),
each with its causes and times. Out: whoever reads them when it suits him: counters (metrics.py), traces (traces.py),
pages. A stage only appends, which costs a tenth of a microsecond and neither blocks nor fails, whoever reads or does
not. One thread: the event loop's.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from xds.metrics import NO_WORK, Work

if TYPE_CHECKING:
    from collections.abc import Callable

RING = 8192
"""How many records are kept: about 2 MB when all of them are pushes."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The aggregator took changed facts and holds them until its next pass begins.

    `causes` are those of the facts (watchers' Cause); `dropped` counts causes that were not kept. Times are
    `time.time_ns()`.
    """

    revision: int
    changes: int
    causes: tuple[object, ...]
    dropped: int
    taken_ns: int


class Pass(msgspec.Struct, frozen=True, gc=False):
    """A pass of the graph: from changed facts to one published revision.

    `evaluated` counts functions run, `changed` published items of every kind that differ from before (resources,
    settled marks, admissions, findings), `published` the resources among them. `work` is what messages took to make.
    Times are `time.time_ns()`; `causes` those of its facts.
    """

    revision: int
    causes: tuple[object, ...]
    started_ns: int
    ended_ns: int
    evaluated: int
    changed: int
    published: int
    work: Work = NO_WORK


class Reader:
    """A place in the ring. `missed` counts records that were overwritten before they were read."""

    def __init__(self, records: Records, bell: Callable[[], None] | None) -> None:
        self.missed = 0
        self._records = records
        self._bell = bell
        self._next = records.appended

    def take(self) -> list[object]:
        """The records since last time, oldest first."""
        taken = self._records._since(self._next)
        self.missed += self._records.appended - self._next - len(taken)
        self._next = self._records.appended
        self._records._rearm()
        return taken

    def close(self) -> None:
        """No longer counts as a reader: its bell is not rung again."""
        self._records._forget(self)

    @property
    def unread(self) -> int:
        """How many records it is behind, kept ones or not."""
        return self._records.appended - self._next

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell()


class Records:
    """The ring. Satisfies the sinks the stages declare: `append(record)`."""

    def __init__(self, size: int = RING) -> None:
        self.appended = 0
        self._ring: deque[object] = deque(maxlen=size)
        self._readers: list[Reader] = []
        self._half = max(1, size // 2)
        self._alarm = -1

    def append(self, record: object) -> None:
        """Keeps a record, in place of the oldest one when the ring is full. Never blocks, never fails."""
        self._ring.append(record)
        self.appended += 1
        if self.appended == self._alarm:
            self._wake()

    def reader(self, bell: Callable[[], None] | None = None) -> Reader:
        """A reader of what is appended from now on.

        `bell` is rung, inside `append`, when half the ring is unread: who then takes promptly misses nothing. It may
        take there and then; it must not raise.
        """
        reader = Reader(self, bell)
        self._readers.append(reader)
        self._rearm()
        return reader

    def recent(self) -> list[object]:
        """All that is kept, oldest first; moves no reader."""
        return list(self._ring)

    def _since(self, position: int) -> list[object]:
        """What is still kept of the records from number `position` on, oldest first."""
        count = min(self.appended - position, len(self._ring))
        newest = list(islice(reversed(self._ring), count))
        newest.reverse()
        return newest

    def _rearm(self) -> None:
        """Sets the number of the record at which the first reader is half a ring behind."""
        behind = [self.appended - reader.unread + self._half for reader in self._readers]
        self._alarm = min((number for number in behind if number > self.appended), default=-1)

    def _forget(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            self._rearm()

    def _wake(self) -> None:
        for reader in list(self._readers):
            if reader.unread == self._half:
                reader._ring()
        self._rearm()
