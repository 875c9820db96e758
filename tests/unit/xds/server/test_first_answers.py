"""Whoever comes with nothing waits for a turn, and nobody waits for long."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.clock import virtual_time
from xds.server.first_answers import Turns


class Work:
    """Answers that take so many seconds each; `most` is how many were ever under way."""

    def __init__(self, turns: Turns, seconds: float) -> None:
        self.most = 0
        self.began: list[float] = []
        self._turns = turns
        self._seconds = seconds
        self._under_way = 0

    async def one(self) -> None:
        async with self._turns.turn():
            self.began.append(asyncio.get_running_loop().time())
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            await asyncio.sleep(self._seconds)
            self._under_way -= 1


@virtual_time
async def test_no_more_than_so_many_are_under_way() -> None:
    work = Work(Turns(3), 0.1)
    await asyncio.gather(*(work.one() for _ in range(10)))
    assert work.most == 3
    assert len(work.began) == 10


@virtual_time
async def test_one_that_takes_long_lets_the_next_begin() -> None:
    work = Work(Turns(1, patience=2.0), 1_000)
    tasks = [asyncio.create_task(work.one()) for _ in range(4)]
    await asyncio.sleep(7)
    assert work.began == [0, 2, 4, 6]
    for task in tasks:
        task.cancel()


@virtual_time
async def test_a_turn_is_given_back_once_whether_it_was_over_or_not() -> None:
    turns = Turns(1, patience=1.0)
    for seconds in (0.5, 3.0, 0.5):
        await Work(turns, seconds).one()
    work = Work(turns, 0.5)
    await asyncio.gather(work.one(), work.one())
    assert work.most == 1


@virtual_time
@pytest.mark.parametrize("when", [0.0, 0.5, 1.5])
async def test_one_that_is_cancelled_takes_no_turn_with_it(when: float) -> None:
    turns = Turns(1, patience=1.0)
    first = asyncio.create_task(Work(turns, 1_000).one())
    waiting = asyncio.create_task(Work(turns, 1_000).one())
    await asyncio.sleep(when)
    first.cancel()
    waiting.cancel()
    await asyncio.wait((first, waiting))
    work = Work(turns, 0.5)
    await asyncio.gather(work.one(), work.one())
    assert work.most == 1
