"""Rules of leader election: who may take a Lease when, and that no two ever lead at a time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

import pytest
from msgspec.structs import replace

from watchers.elections import Create, Election, Pace, Read, Record, Replace, Step

PACE = Pace(duration=15, deadline=10, period=2)
OTHER = Record("other", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z", 4)


def candidate(name: str = "me", chance: float = 0.0) -> Election:
    return Election(name, PACE, chance=lambda: chance)


def leading(now: float = 0.0) -> Election:
    """A leader since ``now``."""
    election = candidate()
    assert election.begin(now) == Read()
    step = election.read(now, None)
    assert isinstance(step, Create)
    election.written(now, step.record)
    return election


def test_a_lease_that_nobody_made_is_made_and_led_by() -> None:
    election = candidate()
    assert not election.leads(0)
    assert election.begin(0) == Read()
    step = election.read(0, None)
    assert step == Create(Record("me", 15, "", "", 0))
    election.written(0, step.record)
    assert election.leads(0)
    assert election.due == 2


def test_a_lease_that_was_let_go_of_is_taken_at_once() -> None:
    election = candidate()
    election.begin(0)
    step = election.read(0, replace(OTHER, holder="", seconds=1))
    assert isinstance(step, Replace)
    assert (step.record.holder, step.record.transitions) == ("me", 5)


def test_a_lease_is_taken_once_it_stood_unchanged_for_as_long_as_its_holder_said() -> None:
    election = candidate()
    for now in (100.0, 102.0, 114.9):
        election.begin(now)
        assert election.read(now, OTHER) is None
    election.begin(115)
    assert isinstance(election.read(115, OTHER), Replace)


def test_times_in_a_lease_mean_nothing() -> None:
    election = candidate()
    for now, year in ((0.0, 1970), (14.0, 2099)):
        election.begin(now)
        assert election.read(now, replace(OTHER, renewed=f"{year}-01-01T00:00:00.000000Z")) is None
    election.begin(28)
    assert election.read(28, replace(OTHER, renewed="2099-01-01T00:00:00.000000Z")) is None


def test_a_candidate_asks_again_after_a_period_and_some_chance() -> None:
    election = candidate(chance=0.5)
    election.begin(0)
    election.read(0, OTHER)
    assert election.due == pytest.approx(2 * (1 + 0.6))


def test_a_leader_renews_without_reading() -> None:
    election = leading()
    step = election.begin(2)
    assert isinstance(step, Replace)
    assert (step.record.holder, step.record.transitions) == ("me", 0)
    election.written(2.5, step.record)
    assert election.due == 4


def test_a_leader_that_cannot_renew_stops_when_its_deadline_has_passed() -> None:
    election = leading()
    for now in (2.0, 4.0, 6.0, 8.0):
        election.begin(now)
        election.failed(now)
        assert election.due == now + 2
    assert election.leads(9.9)
    assert not election.leads(10)
    assert election.ends() == 10


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    election = leading()
    step = election.begin(2)
    assert isinstance(step, Replace)
    election.written(9, step.record)
    assert election.ends() == 12


def test_after_a_conflict_the_lease_is_read_before_it_is_written() -> None:
    election = leading()
    election.begin(2)
    election.failed(2)
    assert election.begin(4) == Read()
    step = election.read(4, Record("me", 15, "", "", 0))
    assert isinstance(step, Replace)
    assert step.record.transitions == 0


def test_a_leader_who_reads_that_another_leads_stops_at_once() -> None:
    election = leading()
    election.begin(2)
    election.failed(2)
    election.begin(4)
    assert election.read(4, OTHER) is None
    assert not election.leads(4)


def test_a_lease_that_is_gone_is_waited_for_as_if_it_stood() -> None:
    election = candidate()
    election.begin(0)
    election.read(0, OTHER)
    election.begin(2)
    assert election.read(2, None) is None
    election.begin(15)
    assert isinstance(election.read(15, None), Create)


def test_one_who_lets_go_leads_no_more_and_says_so() -> None:
    election = leading()
    step = election.release(3)
    assert step is not None
    assert (step.record.holder, step.record.seconds) == ("", 1)
    assert not election.leads(3)


@pytest.mark.parametrize("now", [10.0, 20.0])
def test_one_who_leads_no_more_has_nothing_to_let_go_of(now: float) -> None:
    assert leading().release(now) is None
    assert candidate().release(now) is None


class Server:
    """A Lease with versions, and requests that take time or get lost on either way."""

    def __init__(self, chance: random.Random) -> None:
        self.record: Record | None = None
        self.version = 0
        self._chance = chance
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()

    def at(self, moment: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), action))

    def run(self, until: float, check: Callable[[float], None]) -> None:
        while self._events and self._events[0][0] < until:
            moment, _, action = heapq.heappop(self._events)
            action(moment)
            check(moment)

    def latency(self) -> float:
        return self._chance.choice((0.01, 0.1, 1.0, 4.0, 9.0))

    def lost(self) -> bool:
        return self._chance.random() < 0.3


class Candidate:
    def __init__(self, name: str, server: Server, chance: random.Random) -> None:
        self.election = Election(name, PACE, chance=chance.random, stamp=lambda: str(next(self._stamps)))
        self._stamps = count()
        self._server = server
        self._version = 0
        server.at(chance.random(), self.attempt)

    def attempt(self, now: float) -> None:
        self._send(now, self.election.begin(now))

    def _send(self, now: float, step: Step | None) -> None:
        server = self._server
        if step is None:
            server.at(self.election.due, self.attempt)
            return
        arrives = now + server.latency()
        answered = arrives + server.latency()
        if server.lost():
            server.at(now + 5, self._failed)
        else:
            lost = server.lost()
            server.at(arrives, lambda moment: self._serve(moment, step, answered, lost))

    def _serve(self, now: float, step: Step, answered: float, lost: bool) -> None:
        server, version = self._server, self._version
        record, seen = server.record, server.version
        ok = True
        if isinstance(step, Create):
            ok = record is None
        elif isinstance(step, Replace):
            ok = record is not None and seen == version
        if ok and not isinstance(step, Read):
            server.record, server.version = step.record, seen + 1
        after = server.version
        if lost or not ok:
            server.at(answered, self._failed)
        elif isinstance(step, Read):
            server.at(answered, lambda moment: self._read(moment, record, seen))
        else:
            server.at(answered, lambda moment: self._written(moment, step.record, after))

    def _read(self, now: float, record: Record | None, version: int) -> None:
        self._version = version
        self._send(now, self.election.read(now, record))

    def _written(self, now: float, record: Record, version: int) -> None:
        self._version = version
        self.election.written(now, record)
        self._server.at(max(now, self.election.due), self.attempt)

    def _failed(self, now: float) -> None:
        self.election.failed(now)
        self._server.at(self.election.due, self.attempt)


@pytest.mark.parametrize("seed", range(30))
def test_no_two_ever_lead_and_somebody_does_most_of_the_time(seed: int) -> None:
    chance = random.Random(seed)
    server = Server(chance)
    candidates = [Candidate(name, server, chance) for name in "abc"]
    led: list[bool] = []

    def check(now: float) -> None:
        leaders = [one.election.identity for one in candidates if one.election.leads(now)]
        assert len(leaders) <= 1, (now, leaders)
        led.append(bool(leaders))

    server.run(3_000, check)
    assert sum(led) > len(led) / 10
