"""Leader election by a Lease, without I/O: what a candidate does next, and whether it leads.

In: the Lease as it was read, whether a write of it succeeded, the time. Out: the next request and when it is due. The
rules are those of Kubernetes' own components (client-go's leaderelection), so that both can share a Lease. A candidate
waits until the Lease has stood unchanged for as long as its holder said, by the candidate's own clock since it saw the
last change: times in the Lease are for people, and clocks that differ do no harm. A leader counts its renewals from
when it asked for them, and stops well before others may take over; so no two lead as long as their clocks run alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

JITTER = 1.2
"""A candidate waits up to so many times the period longer, so that candidates do not all ask at once."""


class Pace(msgspec.Struct, frozen=True):
    """Seconds: how long a Lease lasts that is not renewed, how long a leader tries to before it stops leading, and how
    often both are tried.
    """

    duration: float = 15.0
    deadline: float = 10.0
    period: float = 2.0


class Record(msgspec.Struct, frozen=True):
    """What a Lease says. ``acquired`` and ``renewed`` are RFC 3339, and only for people."""

    holder: str
    seconds: int
    acquired: str
    renewed: str
    transitions: int


class Read(msgspec.Struct, frozen=True):
    """Read the Lease."""


class Create(msgspec.Struct, frozen=True):
    """Create the Lease, saying this."""

    record: Record


class Replace(msgspec.Struct, frozen=True):
    """Make the Lease say this, if it is still at the version that was read last."""

    record: Record


Step: TypeAlias = Read | Create | Replace


class Election:
    """One candidate, ``identity``, which no other may have.

    `begin` starts an attempt, which is one request after another: each `Step` is answered by `read`, `written` or
    `failed`, until none is to follow; the next attempt is to begin at `due`. ``chance`` gives numbers from 0 to 1,
    ``stamp`` the time for people.
    """

    def __init__(
        self, identity: str, pace: Pace, *, chance: Callable[[], float], stamp: Callable[[], str] = lambda: ""
    ) -> None:
        self.identity = identity
        self.pace = pace
        self.due = 0.0
        self._chance = chance
        self._stamp = stamp
        self._record: Record | None = None
        self._seen = 0.0
        self._current = False
        self._asked = 0.0
        self._renewed: float | None = None

    @property
    def holder(self) -> str:
        """Who led when the Lease was last seen; "" if nobody did."""
        return self._record.holder if self._record else ""

    def leads(self, now: float) -> bool:
        """Whether this candidate leads. Once it does not, it does again only after another attempt."""
        return self._renewed is not None and now < self._renewed + self.pace.deadline

    def ends(self) -> float | None:
        """When it leads no more unless it renews the Lease; None if it does not lead."""
        return None if self._renewed is None else self._renewed + self.pace.deadline

    def begin(self, now: float) -> Step:
        """Begins an attempt. What a leader wrote last it renews without reading it again."""
        if not self.leads(now):
            self._renewed = None
        elif self._current and self._record is not None:
            return self._replace(now, self._record)
        return Read()

    def read(self, now: float, record: Record | None) -> Step | None:
        """The Lease says this; None: there is none."""
        if record is not None and record != self._record:
            self._record, self._seen = record, now
        known = self._record
        if known is not None and known.holder not in ("", self.identity):
            self._renewed = None
            # Even one that is gone is waited for: who held it may not have noticed yet.
            if now < self._seen + known.seconds:
                self._wait(now)
                return None
        if record is None:
            self._asked, stamp = now, self._stamp()
            return Create(Record(self.identity, round(self.pace.duration), stamp, stamp, 0))
        return self._replace(now, record)

    def written(self, now: float, record: Record) -> None:
        """The Lease says this now, as we asked."""
        self._record, self._seen, self._current = record, now, True
        self._renewed = self._asked
        self.due = self._asked + self.pace.period

    def failed(self, now: float) -> None:
        """A request came to nothing, or somebody else was quicker: the Lease is read before it is written again."""
        self._current = False
        self._wait(now)

    def release(self, now: float) -> Replace | None:
        """What to write so that others need not wait; None if there is nothing to let go of. It leads no more."""
        record, leads = self._record, self.leads(now)
        self._renewed = None
        if record is None or not leads or not self._current:
            return None
        self._current = False
        return Replace(Record("", 1, record.acquired, self._stamp(), record.transitions))

    def _replace(self, now: float, record: Record) -> Replace:
        self._asked, stamp = now, self._stamp()
        same = record.holder == self.identity
        acquired, transitions = (record.acquired, record.transitions) if same else (stamp, record.transitions + 1)
        return Replace(Record(self.identity, round(self.pace.duration), acquired, stamp, transitions))

    def _wait(self, now: float) -> None:
        jitter = 0.0 if self.leads(now) else JITTER * self._chance()
        self.due = now + self.pace.period * (1 + jitter)
