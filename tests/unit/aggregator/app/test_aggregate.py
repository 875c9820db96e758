"""When passes follow each other: a single change is never kept waiting, many gather while others work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise, repeat

import pytest

from aggregator.app.aggregate import ALLOWANCE, LONGEST_PAUSE, SHORT_PAUSE, Aggregator, Tables, Taken
from aggregator.app.records import Records
from aggregator.mesh.home import Home
from aggregator.pipeline import Pipeline
from tests.kit.clock import virtual_time


class Worked(Aggregator):
    """There is always something to do. Each pass takes `took` seconds of CPU, and then its push `pushed`."""

    def __init__(self, taken: Iterator[Taken], took: float, pushed: float = 0.0) -> None:
        super().__init__(Pipeline(Home(cluster="alpha")), Tables.empty(), Records(), monotonic=self._time)
        self._all = taken
        self._took = took
        self._pushed = pushed
        self._worked = 0.0
        self.begun: list[float] = []

    def _time(self) -> float:
        return asyncio.get_running_loop().time() + self._worked

    async def _something_to_do(self) -> None:
        return

    async def one_pass(self) -> Taken:
        self.begun.append(self._time())
        taken = next(self._all, None)
        if taken is None:
            raise EOFError
        self._worked += self._took
        asyncio.get_running_loop().call_soon(self._push)
        return taken

    def _push(self) -> None:
        self._worked += self._pushed


async def pauses(aggregator: Worked) -> list[float]:
    """Seconds between the end of each pass with its push and the beginning of the next one."""
    with pytest.raises(EOFError):
        await aggregator.run()
    begun, busy = aggregator.begun, aggregator._took + aggregator._pushed
    return [round(later - earlier - busy, 6) for earlier, later in pairwise(begun)]


@virtual_time
async def test_what_comes_after_a_single_change_is_taken_at_once() -> None:
    assert await pauses(Worked(iter([Taken(1, left_some=False)] * 3), took=0.001, pushed=0.002)) == [0.0] * 3


@virtual_time
async def test_changes_gather_for_as_long_as_the_last_pass_and_its_push_took() -> None:
    assert await pauses(Worked(iter([Taken(2, left_some=False)] * 3), took=0.001, pushed=0.002)) == [0.003] * 3


@virtual_time
async def test_that_is_never_long() -> None:
    taken = Taken(50, left_some=False)
    assert await pauses(Worked(iter([taken] * 3), took=0.02, pushed=5.0)) == [SHORT_PAUSE] * 3


@virtual_time
async def test_what_a_pass_left_behind_is_taken_at_once() -> None:
    assert await pauses(Worked(iter([Taken(2_000, left_some=True)] * 3), took=0.05)) == [0.0] * 3


@virtual_time
async def test_passes_without_end_come_to_rest_at_a_quarter_of_a_core() -> None:
    taken = Taken(500, left_some=False)
    found = await pauses(Worked(iter([*repeat(taken, 40)]), took=0.05))
    assert found[0] == SHORT_PAUSE
    assert found[-5:] == [0.15] * 5
    assert 1 / 3 < (ALLOWANCE / 0.05) / len([pause for pause in found if pause == SHORT_PAUSE]) < 3


@virtual_time
async def test_a_long_pass_is_followed_by_the_longest_pause_at_most() -> None:
    found = await pauses(Worked(iter([Taken(500, left_some=False)] * 4), took=0.9))
    assert found == [LONGEST_PAUSE] * 4
