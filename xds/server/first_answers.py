"""Turns for first answers: so many at a time are made and handed over, however many proxies come at once.

A proxy that comes with nothing is told everything there is, in one piece, which waits in memory until the proxy takes
it. Whoever has its turn and takes long lets the next begin: a peer that does not read holds up nobody for longer than
that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

AT_A_TIME: Final = 32
PATIENCE: Final = 1.0
"""Seconds for which a turn counts."""


class Turns:
    """Turns of all streams of a server."""

    def __init__(self, at_a_time: int = AT_A_TIME, *, patience: float = PATIENCE) -> None:
        self._free = asyncio.Semaphore(at_a_time)
        self._patience = patience

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for a turn, and has it for as long as the context lasts, but no longer than it counts."""
        await self._free.acquire()
        had = True

        def give_back() -> None:
            nonlocal had
            if had:
                had = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._patience, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
