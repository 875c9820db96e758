"""Whether the callers of open streams are still who they were: asked again now and then, so that who is revoked ends.

In: for each stream a question and what ends the stream. Out: that it is ended, with the reason. Questions are spread
over time, as streams come in crowds. What a question says no more about than before leaves the stream as it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from xds.server.refusals import Refusal

logger = logging.getLogger(__name__)

EVERY: Final = 300.0
"""Seconds after which every open stream has been asked about again."""


class Rechecks:
    """All questions of a server. Each is asked within `every` seconds, and as soon as the caller's proof has ended."""

    def __init__(
        self,
        *,
        every: float = EVERY,
        chance: Callable[[], float] = random.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._every = every
        self._chance = chance
        self._now = now
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, ask: Callable[[], Awaitable[Refusal | None]], end: Callable[[Refusal], None], ends: float
    ) -> Recheck:
        """Asks until it is closed; `end` is told of the first refusal. `ends` is when the proof ends (Unix time)."""
        return Recheck(self, ask, end, ends)

    def pause(self, ends: float) -> float:
        """Seconds until the next question: between a half and the whole of the time there is."""
        spread = self._every * (0.5 + self._chance() / 2)
        return max(0.0, min(spread, ends - self._now()))

    def start(self, asking: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Runs a question, which is remembered until it is answered."""
        task = asyncio.create_task(asking, name="recheck a stream")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Recheck:
    """The questions about one stream, from one to the next."""

    def __init__(
        self,
        rechecks: Rechecks,
        ask: Callable[[], Awaitable[Refusal | None]],
        end: Callable[[Refusal], None],
        ends: float,
    ) -> None:
        self._rechecks = rechecks
        self._ask = ask
        self._end = end
        self._ends = ends
        self._task: asyncio.Task[None] | None = None
        self._timer = self._next()

    def close(self) -> None:
        """Asks no more."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._rechecks.pause(self._ends), self._begin)

    def _begin(self) -> None:
        self._task = self._rechecks.start(self._asked())

    async def _asked(self) -> None:
        try:
            refusal = await self._ask()
        except Exception:
            # A fault of ours is no word against the stream. It is asked about again.
            logger.exception("recheck failed")
            refusal = None
        self._task = None
        if refusal is None:
            self._timer = self._next()
        else:
            self._end(refusal)
