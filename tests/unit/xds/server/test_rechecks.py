"""Whoever is revoked is ended within a bound, and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.clock import virtual_time
from xds.server import refusals
from xds.server.rechecks import Rechecks
from xds.server.refusals import Refusal

GONE = refusals.unauthenticated("revoked")
NEVER = float("inf")


class Stream:
    """A stream whose caller is revoked at a moment."""

    def __init__(self, revoked: float = NEVER) -> None:
        self.revoked = revoked
        self.asked: list[float] = []
        self.ended: list[tuple[float, Refusal]] = []

    async def ask(self) -> Refusal | None:
        now = asyncio.get_running_loop().time()
        self.asked.append(now)
        return GONE if now >= self.revoked else None

    def end(self, refusal: Refusal) -> None:
        self.ended.append((asyncio.get_running_loop().time(), refusal))


def rechecks(chance: float = 1.0) -> Rechecks:
    return Rechecks(every=100.0, chance=lambda: chance, now=lambda: asyncio.get_running_loop().time())


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_a_revoked_caller_is_ended_within_the_bound(chance: float) -> None:
    @virtual_time
    async def told() -> None:
        stream = Stream(revoked=250.0)
        rechecks(chance).begin(stream.ask, stream.end, NEVER)
        await asyncio.sleep(1_000)
        ((moment, refusal),) = stream.ended
        assert refusal is GONE
        assert 250 <= moment <= 350

    told()


@virtual_time
async def test_it_asks_again_and_again_and_no_more_once_it_is_closed() -> None:
    stream = Stream()
    recheck = rechecks().begin(stream.ask, stream.end, NEVER)
    await asyncio.sleep(450)
    assert stream.asked == [100, 200, 300, 400]
    recheck.close()
    await asyncio.sleep(450)
    assert len(stream.asked) == 4


@virtual_time
async def test_a_question_under_way_ends_with_its_stream() -> None:
    stream, cancelled = Stream(), asyncio.Event()

    async def ask() -> Refusal | None:
        try:
            await asyncio.sleep(10_000)
        finally:
            cancelled.set()
        return GONE

    recheck = rechecks().begin(ask, stream.end, NEVER)
    await asyncio.sleep(101)
    recheck.close()
    await cancelled.wait()
    assert stream.ended == []


@virtual_time
async def test_a_proof_that_ends_is_asked_about_right_then() -> None:
    stream = Stream(revoked=30.0)
    rechecks().begin(stream.ask, stream.end, 30.0)
    await asyncio.sleep(31)
    assert [moment for moment, _ in stream.ended] == [30]


@virtual_time
async def test_a_question_that_fails_is_logged_and_ends_nothing_and_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Stream(revoked=150.0)

    async def ask() -> Refusal | None:
        if asyncio.get_running_loop().time() < 150:
            raise RuntimeError("a fault")
        return await stream.ask()

    rechecks().begin(ask, stream.end, NEVER)
    await asyncio.sleep(101)
    assert "recheck failed" in caplog.text
    assert stream.ended == []
    await asyncio.sleep(100)
    assert len(stream.ended) == 1


@virtual_time
async def test_a_crowd_is_not_asked_about_at_once() -> None:
    chances = iter(number / 100 for number in range(100))
    spread = Rechecks(every=100.0, chance=lambda: next(chances), now=lambda: 0.0)
    streams = [Stream() for _ in range(100)]
    for stream in streams:
        spread.begin(stream.ask, stream.end, NEVER)
    await asyncio.sleep(99.9)
    moments = [moment for stream in streams for moment in stream.asked]
    assert len(set(moments)) == 100
    assert 50 <= min(moments) <= max(moments) <= 100
