"""Rules of `aggregator.app.loop_watch`: how late the loop was. Where it was: fault/test_writes.py, row 31."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aggregator.app.loop_watch import BLOCKED, PERIOD, WINDOW, LoopWatch
from tests.kit.clock import virtual_time


class Blockable:
    """A watch in a loop whose clock the test may push, as if it had been blocked for so long."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._blocked = 0.0
        self.watch = LoopWatch(clock=lambda: loop.time() + self._blocked)

    async def block(self, seconds: float) -> None:
        self._blocked += seconds
        await asyncio.sleep(2 * PERIOD)

    @property
    def lag(self) -> float:
        return round(self.watch.lag.values[()], 3)


@asynccontextmanager
async def watched() -> AsyncIterator[Blockable]:
    one = Blockable()
    task = asyncio.create_task(one.watch.run())
    await asyncio.sleep(PERIOD)
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait((task,))


@virtual_time
async def test_a_loop_that_answers_has_no_lag() -> None:
    async with watched() as one:
        await asyncio.sleep(600)
        assert one.lag == 0
        assert one.watch.blocked.values[()] == 0


@virtual_time
async def test_the_longest_delay_is_kept_for_a_window_and_no_longer_than_two() -> None:
    async with watched() as one:
        await one.block(0.4)
        await one.block(0.1)
        assert one.lag == 0.4
        await asyncio.sleep(WINDOW)
        assert one.lag == 0.4
        await asyncio.sleep(WINDOW + PERIOD)
        assert one.lag == 0


@virtual_time
async def test_blockages_are_counted_from_a_second_on() -> None:
    async with watched() as one:
        await one.block(BLOCKED / 2)
        await one.block(BLOCKED * 2)
        assert one.watch.blocked.values[()] == 1


@virtual_time
async def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    async with watched():
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
