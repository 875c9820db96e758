"""Rules of `watchers.kubernetes.budget` and `flow`: what a cluster may use, and that all get on equally fast."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.clock import virtual_time
from watchers.kubernetes.budget import BURST_SECONDS, SHARE, Limits, Rate, Shares
from watchers.kubernetes.flow import Flow, Rounds
from watchers.metrics import WatchMetrics

PIECES = st.lists(st.integers(SHARE // 20, 3 * SHARE), min_size=200, max_size=200)


def test_ten_seconds_worth_may_come_at_once_and_more_is_waited_for() -> None:
    rate = Rate(100.0, now=0.0)
    assert rate.spend(100 * BURST_SECONDS, 0.0) == 0.0
    assert rate.spend(50, 0.0) == 0.5
    assert rate.spend(0, 0.5) == 0.0
    assert rate.spend(100, 1.0) == 0.5


def test_what_was_not_used_is_kept_for_ten_seconds_only() -> None:
    rate = Rate(100.0, now=0.0)
    assert rate.spend(100 * BURST_SECONDS + 200, 3600.0) == 2.0


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 500)), max_size=50))
@settings(max_examples=100)
def test_whoever_waits_never_uses_more_than_the_burst_and_the_rate(uses: list[tuple[float, float]]) -> None:
    rate, now, used, largest = Rate(100.0, now=0.0), 0.0, 0.0, 0.0
    for pause, amount in uses:
        now += pause
        now += rate.spend(amount, now)
        used, largest = used + amount, max(largest, amount)
        assert used <= 100 * (now + BURST_SECONDS) + largest + 1e-6


@given(st.lists(PIECES, min_size=2, max_size=4))
@settings(max_examples=30, deadline=None)
def test_clusters_that_always_have_more_get_on_equally_fast(backlogs: list[list[int]]) -> None:
    shares, done, queues = Shares(), [0] * len(backlogs), [iter(pieces) for pieces in backlogs]
    for _ in range(100):
        for number, queue in enumerate(queues):
            while shares.may(str(number)):
                piece = next(queue, SHARE)
                done[number] += piece
                shares.spend(str(number), piece)
        shares.next_round()
        # A piece is never cut; all else is even.
        assert max(done) - min(done) <= 3 * SHARE


@given(PIECES)
@settings(max_examples=30, deadline=None)
def test_a_cluster_that_says_little_never_waits_for_one_that_says_much(flood: list[int]) -> None:
    shares = Shares()
    for piece in flood[:50]:
        while shares.may("loud"):
            shares.spend("loud", piece)
        assert shares.may("quiet")
        assert shares.spend("quiet", SHARE // 2)
        shares.next_round()


def test_nothing_is_kept_of_clusters_that_owe_nothing() -> None:
    shares = Shares()
    shares.spend("a", SHARE)
    shares.spend("b", 2 * SHARE + 1)
    assert shares.next_round()
    assert not shares.may("b")
    assert shares.next_round()
    assert shares.may("b")
    assert not shares.next_round()


def flow(cluster: str, rounds: Rounds, metrics: WatchMetrics, **limits: float) -> Flow:
    return Flow(cluster, Limits(**limits), rounds, metrics, asyncio.get_running_loop().time)  # type: ignore[arg-type]


@virtual_time
async def test_a_cluster_beyond_its_rate_is_read_as_fast_as_it_may_be_and_others_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, rounds, metrics = asyncio.get_running_loop(), Rounds(), WatchMetrics()
    loud = flow("loud", rounds, metrics, events_per_second=100.0)
    quiet = flow("quiet", rounds, metrics, events_per_second=100.0)

    async def flood() -> None:
        for _ in range(400):
            await loud.passed(1000, 10)

    began = loop.time()
    flooding = asyncio.create_task(flood())
    for _ in range(20):
        asked = loop.time()
        await quiet.passed(1000, 1)
        assert loop.time() - asked < 0.01
        await asyncio.sleep(1)
    await flooding
    # 1,000 at once, and 3,000 more at 100 a second.
    assert 29.5 < loop.time() - began < 31
    assert set(metrics.slowed.values) == {("loud",)}
    assert 29 < metrics.slowed.values["loud",] < 31
    assert [record.message for record in caplog.records] == ["cluster slowed down"]


async def test_a_flood_leaves_every_turn_of_the_loop_to_others() -> None:
    rounds, metrics = Rounds(), WatchMetrics()
    done = {"loud": 0, "quiet": 0}

    async def work(cluster: str) -> None:
        mine = flow(cluster, rounds, metrics, bytes_per_second=1e12, events_per_second=1e12)
        while max(done.values()) < 200:
            await mine.passed(SHARE // 2, 0)
            done[cluster] += 1

    # One by six watches, one by one.
    await asyncio.gather(*(work("loud") for _ in range(6)), work("quiet"))
    assert done["quiet"] * 1.2 > done["loud"]


async def test_whoever_is_cancelled_while_waiting_holds_up_nobody() -> None:
    rounds, metrics = Rounds(), WatchMetrics()
    one = flow("one", rounds, metrics)
    first = asyncio.create_task(one.passed(3 * SHARE, 0))
    second = asyncio.create_task(one.passed(1, 0))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 5)
    assert first.cancelled()
