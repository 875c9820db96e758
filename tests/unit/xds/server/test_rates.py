"""How often something may happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.server.rates import MOST_KEYS, Pace, Rate, Rates, host_of


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_so_many_happen_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    rates = Rates(Rate(per_second=2.0, burst=3), clock=clock)
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]
    clock.now += 0.4
    assert not rates.take("a")
    clock.now += 0.2
    assert rates.take("a")
    assert not rates.take("a")


def test_after_a_pause_all_may_happen_at_once_again_and_no_more() -> None:
    clock = Clock()
    rates = Rates(Rate(per_second=2.0, burst=3), clock=clock)
    assert rates.take("a")
    clock.now += 1_000
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]


def test_keys_are_counted_apart() -> None:
    rates = Rates(Rate(per_second=1.0, burst=1), clock=Clock())
    assert rates.take("a")
    assert rates.take("b")
    assert not rates.take("a")


def test_what_was_refused_costs_nothing() -> None:
    clock = Clock()
    rates = Rates(Rate(per_second=1.0, burst=1), clock=clock)
    assert rates.take("a")
    for _ in range(100):
        assert not rates.take("a")
    clock.now += 1
    assert rates.take("a")


def test_no_more_keys_are_remembered_than_a_bound() -> None:
    rates = Rates(Rate(per_second=1.0, burst=1), clock=Clock())
    assert rates.take("first")
    for number in range(MOST_KEYS):
        rates.take(number)
    assert rates.take("first")


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 5))
def test_in_no_time_more_happens_than_the_rate_allows(pauses: list[float], burst: int) -> None:
    clock = Clock()
    rates = Rates(Rate(per_second=1.0, burst=burst), clock=clock)
    taken = []
    for pause in pauses:
        clock.now += pause
        if rates.take("a"):
            taken.append(clock.now)
    for index, moment in enumerate(taken):
        for later, other in enumerate(taken[index:], start=1):
            assert later <= burst + (other - moment) + 0.5001


def test_a_pace_makes_wait_what_comes_too_fast() -> None:
    clock = Clock()
    pace = Pace(Rate(per_second=2.0, burst=3), clock=clock)
    assert [pace.take() for _ in range(3)] == [0, 0, 0]
    assert pace.take() == pytest.approx(0.5, abs=1e-5)
    assert pace.take() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:1000", "10.0.0.1"),
        ("ipv6:[fd00:1:2:3:4:5:6:7]:1000", "fd00:1:2:3::/64"),
        ("ipv6:[fe80::1%eth0]:1000", "fe80::/64"),
        ("ipv6:[nonsense]:1000", "ipv6:[nonsense]:1000"),
        ("unix:/run/socket", "unix:/run/socket"),
        ("", ""),
    ],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host
