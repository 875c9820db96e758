"""Visitors who keep asking while something happens, and what they were answered.

`Load` asks one URL again and again, each visitor on a new connection every time, for as long as its context lasts. A
test says "no request failed" by `failures`, and "from then on" by `since`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from aggregator.demo.client import Unanswered
from aggregator.demo.journey import Refused, Traveller


class Answered(msgspec.Struct, frozen=True):
    """One answer: when it was asked for, in seconds since the epoch, and by whom it was given."""

    asked: float
    cluster: str
    app: str


class Load:
    """Visitors of one URL. Use it as an async context manager; leaving it raises nothing, `failures` tells."""

    def __init__(self, traveller: Traveller, host: str, path: str = "/", *, visitors: int = 3) -> None:
        self.answers: list[Answered] = []
        self.failures: list[str] = []
        self._traveller = traveller
        self._url = (host, path)
        self._visitors = visitors
        self._leaving = False
        self._tasks: list[asyncio.Task[None]] = []
        self._change = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._visit(), name="visitor") for _ in range(self._visitors)]
        await self.answered(self._visitors)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        await asyncio.gather(*self._tasks)

    async def answered(self, count: int, deadline: float = 20.0) -> None:
        """Waits for so many more answers or failures."""
        end = len(self.answers) + len(self.failures) + count
        async with asyncio.timeout(deadline):
            while len(self.answers) + len(self.failures) < end:
                self._change.clear()
                await self._change.wait()

    async def until(self, holds: Callable[[Answered], bool], deadline: float = 60.0) -> None:
        """Waits until the newest answer is one for which this holds."""
        async with asyncio.timeout(deadline):
            while not holds(self.answers[-1]):
                self._change.clear()
                await self._change.wait()

    def since(self, moment: float) -> list[Answered]:
        """What was answered to those who asked after a moment."""
        return [one for one in self.answers if one.asked > moment]

    async def _visit(self) -> None:
        while not self._leaving:
            began = time.time()
            try:
                _, echo = await self._traveller.ask(*self._url)
                self.answers.append(Answered(began, echo.cluster, echo.app))
            except (Unanswered, Refused) as error:
                self.failures.append(f"{time.time() - began:.3f} s: {error}")
            self._change.set()
            await asyncio.sleep(0.005)
