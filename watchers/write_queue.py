"""Which write is next, and when: keys that wait, those under way, and those that are tried again later. No I/O.

In: keys whose write has changed, how attempts ended, the time. Out: one write after the other, never two for one object
at once, always the newest. A rate for all; a pause for all when the server has trouble; for one key growing pauses when
only its writes fail, or when somebody undoes them; for a kind that may not be written one attempt a minute.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec

from watchers.writes import Write, WriteKey

_REPEATS = 1024
"""Of so many objects it is remembered what was written last."""
_A_TOKEN = 1 - 1e-6
"""Sums of fractions may fall a little short of it."""


class Manner(msgspec.Struct, frozen=True):
    """How gently is written: ``rate`` writes a second, after ``burst`` at once, so many at a time; a request may take
    ``limit`` seconds. Pauses (seconds) grow from the first to the longest. The same write of one object again within
    ``calm`` seconds means that somebody undoes it.
    """

    rate: float = 20.0
    burst: int = 40
    in_flight: int = 4
    limit: float = 30.0
    first_pause: float = 1.0
    longest_pause: float = 300.0
    forbidden_pause: float = 60.0
    calm: float = 600.0


class WriteQueue:
    """The order of writes. ``newest`` gives what is to be written of an object now; ``chance`` numbers from 0 to 1."""

    def __init__(
        self, manner: Manner, newest: Callable[[WriteKey], Write | None], *, now: float, chance: Callable[[], float]
    ) -> None:
        self._manner = manner
        self._newest = newest
        self._chance = chance
        self._waiting: deque[WriteKey] = deque()
        self._queued: set[WriteKey] = set()
        self._under_way: set[WriteKey] = set()
        self._changed: set[WriteKey] = set()
        self._later: dict[WriteKey, float] = {}
        self._moments: list[tuple[float, WriteKey]] = []
        self._failures: dict[WriteKey, int] = {}
        self._parked: dict[str, dict[WriteKey, None]] = {}
        self._probes: dict[str, float] = {}
        self._lately: OrderedDict[WriteKey, tuple[Write, float, int]] = OrderedDict()
        self._held_until = now
        self._troubles = 0
        self._tokens = float(manner.burst)
        self._filled = now

    @property
    def waiting(self) -> int:
        """How many keys wait for nothing but their turn."""
        return len(self._waiting)

    def add(self, key: WriteKey) -> None:
        """Something else is to be written of this object than before."""
        if key in self._under_way:
            self._changed.add(key)
        elif key[1] in self._parked:
            self._parked[key[1]][key] = None
        else:
            self._later.pop(key, None)
            self._failures.pop(key, None)
            self._enqueue(key)

    def next(self, now: float) -> tuple[WriteKey, Write] | None:
        """What to send now; it is under way then, until `done`, `again`, `trouble` or `forbidden` is said of it."""
        self._wake(now)
        while self._waiting and now >= self._held_until and self._fill(now) >= _A_TOKEN:
            key = self._waiting.popleft()
            self._queued.discard(key)
            write = self._newest(key)
            if write is None:
                self._end(key, now)
            elif (moment := self._calm(key, write, now)) > now:
                self._postpone(key, moment)
            else:
                self._tokens -= 1
                self._under_way.add(key)
                return key, write
        return None

    def moment(self, now: float) -> float | None:
        """When `next` is worth asking again though nothing was said meanwhile; None: it is not."""
        moments = [self._moments[0][0]] if self._moments else []
        moments += self._probes.values()
        if self._waiting:
            missing = max(0.0, 1 - self._fill(now))
            moments.append(max(self._held_until, now + missing / self._manner.rate))
        return min(moments, default=None)

    def done(self, key: WriteKey, now: float, write: Write | None = None) -> None:
        """The server has answered, and there is nothing more to do; ``write`` is what the object says now."""
        self.answered(key)
        if write is not None:
            known = self._lately.pop(key, None)
            again = known is not None and known[0] == write and now - known[1] <= self._manner.calm
            self._lately[key] = (write, now, known[2] + 1 if known is not None and again else 0)
            if len(self._lately) > _REPEATS:
                self._lately.popitem(last=False)
        self._end(key, now)

    def again(self, key: WriteKey, now: float) -> None:
        """The server has answered that it cannot now, for reasons of this object's alone."""
        self.answered(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._leave(key)
        self._postpone(key, now + self._pause(failures))

    def trouble(self, key: WriteKey, now: float, seconds: float | None = None) -> None:
        """The server is not well, or not to be reached: nothing is sent for so many seconds, or for a growing pause."""
        if now >= self._held_until:
            self._troubles += 1
        pause = self._pause(self._troubles - 1) if seconds is None else min(seconds, self._manner.longest_pause)
        self._held_until = max(self._held_until, now + pause)
        self._leave(key)
        self._enqueue(key)

    def forbidden(self, key: WriteKey, now: float) -> None:
        """Nothing of this kind may be written: it is tried with one of them now and then."""
        self._troubles = 0
        kind = key[1]
        parked = self._parked.setdefault(kind, {})
        for other in [one for one in self._queued if one[1] == kind]:
            self._queued.discard(other)
            parked[other] = None
        self._waiting = deque(one for one in self._waiting if one in self._queued)
        self._leave(key)
        parked[key] = None
        self._probes.setdefault(kind, now + self._manner.forbidden_pause)

    def answered(self, key: WriteKey) -> None:
        """The server is well, and lets this kind be written."""
        self._troubles = 0
        self._probes.pop(key[1], None)
        for parked in self._parked.pop(key[1], ()):
            self._enqueue(parked)

    def _wake(self, now: float) -> None:
        while self._moments and self._moments[0][0] <= now:
            moment, key = heapq.heappop(self._moments)
            if self._later.get(key) == moment:
                del self._later[key]
                self._enqueue(key)
        for kind in [kind for kind, moment in self._probes.items() if moment <= now]:
            del self._probes[kind]
            self._probe(kind)

    def _probe(self, kind: str) -> None:
        """One of a forbidden kind, though the others go on waiting."""
        parked = self._parked[kind]
        if parked:
            key = next(iter(parked))
            del parked[key]
            self._enqueue(key)
        else:
            del self._parked[kind]

    def _end(self, key: WriteKey, now: float) -> None:
        """Nothing is to be done about a key, unless it changed meanwhile."""
        self._failures.pop(key, None)
        changed = key in self._changed
        self._leave(key)
        if changed:
            self._enqueue(key)
        elif key[1] in self._parked and key[1] not in self._probes:
            # It was to tell whether its kind may be written, and has become needless: the next one tells.
            self._probe(key[1])

    def _leave(self, key: WriteKey) -> None:
        self._under_way.discard(key)
        self._changed.discard(key)

    def _enqueue(self, key: WriteKey) -> None:
        if key not in self._queued and key not in self._under_way:
            self._queued.add(key)
            self._waiting.append(key)

    def _postpone(self, key: WriteKey, moment: float) -> None:
        self._later[key] = moment
        heapq.heappush(self._moments, (moment, key))

    def _calm(self, key: WriteKey, write: Write, now: float) -> float:
        """When a write may be repeated that somebody has undone."""
        known = self._lately.get(key)
        if known is None or known[0] != write or now - known[1] > self._manner.calm:
            return now
        return known[1] + self._growing(known[2])

    def _pause(self, times: int) -> float:
        return self._growing(times) * (1 + self._chance()) / 2

    def _growing(self, times: int) -> float:
        return min(self._manner.first_pause * 2.0 ** min(times, 20), self._manner.longest_pause)

    def _fill(self, now: float) -> float:
        self._tokens = min(float(self._manner.burst), self._tokens + (now - self._filled) * self._manner.rate)
        self._filled = now
        return self._tokens
