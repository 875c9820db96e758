"""Whether an API server is there and accepts the credential: asked within two seconds, judged apart from the asking.

Watches do not tell: one that is silent looks like one of a dead server, and API servers do not end those of a revoked
token. So GET /version is asked, which every server answers to everybody it knows, without a look into its store:

- An answer confirms. 401 means denied at once. A server error (5xx) is no proof of anything, as a balancer without a
  server behind it gives them too, and no fault yet: three in a row are.
- Silence for two and a half seconds means that the server cannot be reached, unless a watch has said something
  meanwhile; a connection that breaks is tried once more first. So nobody is out of reach for one lost packet.
- While watches talk, that is proof enough, and the question is asked half as often, for the credential's sake.

All clusters are asked at the same moments, whole multiples of two seconds: each is a server of its own, and a process
that wakes once for many wakes for little. A question that comes alone costs some four times one among others. Moments
are seconds of Unix time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec

from watchers.generation import Health
from watchers.kubernetes.session import Broken, Requests

PATH = "/version"


_EARLY = 0.85
"""The part of an interval after which a proof is old: the next moment to ask at comes before the interval is over."""
_SHORTEST_REST = 0.05


class Rhythm(msgspec.Struct, frozen=True):
    """Seconds: how often is asked, how often at least while watches talk, how long an answer may take, and after how
    long a connection that broke is tried again. ``unwell`` is how many server errors in a row are a fault.
    """

    every: float = 2.0
    busy: float = 4.0
    limit: float = 2.5
    again: float = 0.5
    unwell: int = 3


USUAL = Rhythm()


class Pulse:
    """What the questions and the watches of one connection have shown. Pure."""

    def __init__(self, rhythm: Rhythm = USUAL) -> None:
        self._rhythm = rhythm
        self._asked = 0.0
        self._last_asked = 0.0
        # The first question in a row that found no good answer, and how many there were.
        self._lost = 0.0
        self._errors = 0
        self.health = Health()

    def rest(self, heard: float, now: float) -> float:
        """For how many seconds there is no need to ask, as a watch has said something at ``heard``."""
        if self.health.state != "alive" or not heard:
            return 0.0
        rhythm = self._rhythm
        rest = min(heard + rhythm.every * _EARLY, self._last_asked + rhythm.busy * _EARLY) - now
        if rest < _SHORTEST_REST:
            return 0.0
        self._confirm(heard)
        return rest

    def asked(self, now: float) -> None:
        """A question was asked; one of the outcomes below follows."""
        self._asked = self._last_asked = now
        self.health = msgspec.structs.replace(self.health, asked=now)

    def answered(self, status: int, now: float) -> None:
        """The server has answered the question, with this HTTP status."""
        if status == 401:
            self._fail("denied", "401 Unauthorized: the API server does not accept the credential")
        elif status >= 500:
            self._errors += 1
            self._lost = self._lost or self._asked
            if self._errors >= self._rhythm.unwell or self.health.state != "alive":
                self._fail("silent", f"the API server answers {status}")
            else:
                self.health = msgspec.structs.replace(self.health, asked=0.0)
        else:
            self._errors = 0
            self._lost = 0.0
            self.health = Health(confirmed=now)

    def unanswered(self, reason: str, heard: float) -> None:
        """The question found no answer; a watch last said something at ``heard``."""
        if heard >= self._asked and self.health.state == "alive":
            self.health = msgspec.structs.replace(self.health, asked=0.0)
            self._confirm(heard)
        else:
            self._fail("silent", f"the API server cannot be reached: {reason}")

    def _confirm(self, heard: float) -> None:
        """A watch that speaks is as good as an answer, but for what it cannot tell: whether the credential stands."""
        self._errors = 0
        self._lost = 0.0
        if heard > self.health.confirmed:
            self.health = msgspec.structs.replace(self.health, confirmed=heard)

    def _fail(self, state: Literal["silent", "denied"], reason: str) -> None:
        self._lost = self.health.lost or self._lost or self._asked
        self.health = msgspec.structs.replace(self.health, state=state, reason=reason, lost=self._lost, asked=0.0)


class Heartbeat:
    """Asks over a session. ``heard`` is when its watches last said something, ``now`` is the time."""

    def __init__(
        self,
        requests: Requests,
        *,
        heard: Callable[[], float],
        now: Callable[[], float],
        rhythm: Rhythm = USUAL,
    ) -> None:
        self._requests = requests
        self._heard = heard
        self._now = now
        self._rhythm = rhythm
        self._pulse = Pulse(rhythm)
        self._wanted = asyncio.Event()
        self._judged = asyncio.Event()

    @property
    def health(self) -> Health:
        """What the questions have shown up to now."""
        return self._pulse.health

    async def run(self, changed: Callable[[], None]) -> None:
        """Asks until cancelled; `changed` hears of every change of state or reason."""
        wait = self._until(0.0)
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._wanted.wait()
            except TimeoutError:
                rest = self._pulse.rest(self._heard(), self._now())
                if rest:
                    wait = self._until(rest)
                    continue
            before = self._pulse.health
            await self._ask()
            if (before.state, before.reason) != (self.health.state, self.health.reason):
                changed()
            self._wanted.clear()
            self._judged.set()
            self._judged = asyncio.Event()
            # Between a proof and the next question there is hardly more than `every`, so that what people are told of
            # the moment a server fell silent is true within half of it.
            wait = self._until(0.0)

    def _until(self, rest: float) -> float:
        """Seconds to the moment to ask at that comes last within so many seconds, or else the next one."""
        now, every = self._now(), self._rhythm.every
        wait = (now + rest) // every * every - now
        return wait if wait >= _SHORTEST_REST else every - now % every

    async def confirm(self, seconds: float) -> None:
        """Has the question asked now, or takes the one that is open, and waits at most so long until it is judged."""
        self._wanted.set()
        try:
            async with asyncio.timeout(seconds):
                await self._judged.wait()
        except TimeoutError:
            pass

    async def _ask(self) -> None:
        pulse, limit = self._pulse, self._rhythm.limit
        pulse.asked(self._now())
        try:
            async with asyncio.timeout(limit):
                try:
                    status = await self._status(limit)
                except Broken as error:
                    if error.reason == "timeout":
                        raise
                    await asyncio.sleep(self._rhythm.again)
                    status = await self._status(limit)
        except TimeoutError:
            pulse.unanswered(f"no answer within {limit:g} s", self._heard())
        except Broken as error:
            pulse.unanswered(str(error), self._heard())
        else:
            pulse.answered(status, self._now())

    async def _status(self, limit: float) -> int:
        async with self._requests.get(PATH, {}, silence=limit) as response:
            async for _ in response.chunks():
                # Read to its end, so that the connection serves the next question as well.
                pass
            return response.status
