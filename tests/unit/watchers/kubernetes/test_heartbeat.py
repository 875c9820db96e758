"""Whether an API server is there is known within seconds, and one lost question means nothing while watches talk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hang, KubeCluster, Refuse
from tests.kit.kube_session import MemorySession
from watchers.generation import Health
from watchers.kubernetes.heartbeat import USUAL, Heartbeat, Pulse

SOON = 5.0
"""Seconds within which a change of state is to be known."""


def asked(*statuses: int, heard: float = 0.0) -> Pulse:
    """A pulse that was answered once, and asked at 10, 12, 14 and so on, with these answers; 0 is none."""
    pulse = Pulse()
    pulse.asked(8.0)
    pulse.answered(200, 8.1)
    for number, status in enumerate(statuses):
        pulse.asked(10.0 + 2 * number)
        if status:
            pulse.answered(status, 10.1 + 2 * number)
        else:
            pulse.unanswered("no answer", heard)
    return pulse


@pytest.mark.parametrize("status", [200, 302, 403, 404, 429])
def test_any_answer_of_a_server_that_is_well_confirms(status: int) -> None:
    assert asked(status).health == Health(confirmed=10.1)


def test_a_credential_that_is_refused_is_denied_at_once_since_the_question() -> None:
    health = asked(401).health
    assert (health.state, health.confirmed, health.lost, health.asked) == ("denied", 8.1, 10.0, 0.0)


def test_a_server_that_says_nothing_is_silent_since_the_first_question_without_answer() -> None:
    health = asked(0, 0, 0).health
    assert (health.state, health.confirmed, health.lost) == ("silent", 8.1, 10.0)


def test_one_lost_question_means_nothing_while_a_watch_talks() -> None:
    assert asked(0, heard=10.5).health == Health(confirmed=10.5)


def test_what_a_watch_said_before_the_question_does_not_count() -> None:
    assert asked(0, heard=9.9).health.state == "silent"


def test_a_watch_that_talks_does_not_make_a_refused_credential_good() -> None:
    pulse = asked(401)
    pulse.asked(12.0)
    pulse.unanswered("no answer", 12.5)
    assert pulse.health.state != "alive"


def test_server_errors_confirm_nothing_and_are_a_fault_only_in_a_row() -> None:
    assert asked(503, 503).health == Health(confirmed=8.1)
    health = asked(503, 503, 503).health
    assert (health.state, health.reason, health.lost) == ("silent", "the API server answers 503", 10.0)
    assert asked(503, 503, 200, 503).health == Health(confirmed=14.1)


def test_a_server_error_does_not_bring_back_a_server_that_was_lost() -> None:
    health = asked(0, 502).health
    assert (health.state, health.reason, health.lost) == ("silent", "the API server answers 502", 10.0)


def test_an_answer_brings_back_what_was_lost_or_denied() -> None:
    assert asked(0, 401, 503, 200).health == Health(confirmed=16.1)


def test_while_a_watch_talks_it_is_not_asked_before_that_is_two_seconds_ago() -> None:
    pulse = asked(200)
    assert pulse.rest(heard=11.5, now=12.0) == pytest.approx(1.2)
    assert pulse.health.confirmed == 11.5
    assert pulse.rest(heard=10.0, now=12.0) == 0.0
    assert pulse.health.confirmed == 11.5


def test_however_much_watches_talk_it_is_asked_every_four_seconds_for_the_credentials_sake() -> None:
    pulse = asked(200)
    assert pulse.rest(heard=13.0, now=13.0) == pytest.approx(0.4)
    assert pulse.rest(heard=14.0, now=14.0) == 0.0


def test_a_server_that_is_lost_is_asked_whatever_its_watches_say() -> None:
    assert asked(401).rest(heard=11.9, now=12.0) == 0.0


class Stage:
    """A heartbeat of a fake API server, and the states it went through with the times."""

    def __init__(self) -> None:
        self.mesa = KubeCluster("mesa")
        self.heard = 0.0
        now = asyncio.get_running_loop().time
        self.beat = Heartbeat(MemorySession(self.mesa), heard=lambda: self.heard, now=now)
        self.states: list[tuple[str, float]] = []
        self._now = now

    def note(self) -> None:
        self.states.append((self.beat.health.state, self._now()))


@asynccontextmanager
async def beating(*, after: float = 60.0) -> AsyncIterator[Stage]:
    stage = Stage()
    running = asyncio.create_task(stage.beat.run(stage.note))
    await asyncio.sleep(after)
    try:
        yield stage
    finally:
        running.cancel()
        await asyncio.wait([running])


@virtual_time
async def test_a_quiet_server_is_asked_every_two_seconds() -> None:
    async with beating() as stage:
        assert 29 <= stage.mesa.asked_version <= 30
        assert (stage.states, stage.beat.health.state) == ([], "alive")


@virtual_time
async def test_a_server_whose_watches_talk_is_asked_half_as_often() -> None:
    async with beating(after=0.0) as stage:
        for _ in range(600):
            await asyncio.sleep(0.1)
            stage.heard = asyncio.get_running_loop().time()
        assert 15 <= stage.mesa.asked_version <= 18
        assert stage.beat.health.confirmed >= 58


@virtual_time
async def test_those_of_one_process_are_asked_at_the_same_moments_whenever_they_came() -> None:
    async with beating(after=0.3) as early, beating(after=1.2) as late:
        for _ in range(4):
            before = early.mesa.asked_version, late.mesa.asked_version
            await asyncio.sleep(2.0)
            assert (early.mesa.asked_version, late.mesa.asked_version) == (before[0] + 1, before[1] + 1)
        assert early.beat.health.confirmed == late.beat.health.confirmed


@pytest.mark.parametrize("phase", [0.0, 0.5, 1.0, 1.5, 1.99])
def test_a_revoked_credential_is_known_in_time_whenever_it_goes(phase: float) -> None:
    @virtual_time
    async def check() -> None:
        async with beating(after=60.0 + phase) as stage:
            stage.mesa.tokens = {"another"}
            await asyncio.sleep(SOON)
            assert stage.beat.health.state == "denied"

    check()


@pytest.mark.parametrize("phase", [0.0, 0.5, 1.0, 1.5, 1.99])
def test_a_black_hole_is_known_in_time_and_dated_within_the_interval(phase: float) -> None:
    @virtual_time
    async def check() -> None:
        async with beating(after=60.0 + phase) as stage:
            stage.mesa.script(Hang(), times=None)
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(SOON)
            health = stage.beat.health
            assert health.state == "silent"
            assert health.confirmed <= began <= health.lost <= health.confirmed + USUAL.every

    check()


@virtual_time
async def test_a_connection_that_is_refused_once_is_tried_again_before_anything_is_told() -> None:
    async with beating(after=61.0) as stage:
        stage.mesa.refuse_connections = True
        asyncio.get_running_loop().call_later(1.2, setattr, stage.mesa, "refuse_connections", False)
        await asyncio.sleep(10)
        assert stage.states == []
        stage.mesa.refuse_connections = True
        await asyncio.sleep(3)
        assert [state for state, _ in stage.states] == ["silent"]
        assert "Connection refused" in stage.beat.health.reason


@virtual_time
async def test_a_server_that_answers_again_is_alive_at_the_next_question() -> None:
    async with beating() as stage:
        silence = stage.mesa.script(Hang(), times=None)
        await asyncio.sleep(60)
        silence.withdraw()
        await asyncio.sleep(SOON)
        assert [state for state, _ in stage.states] == ["silent", "alive"]


@virtual_time
async def test_a_change_is_told_once() -> None:
    async with beating() as stage:
        stage.mesa.script(Refuse(503), times=None)
        await asyncio.sleep(60)
        assert [state for state, _ in stage.states] == ["silent"]


@virtual_time
async def test_confirming_asks_at_once_and_waits_no_longer_than_it_may() -> None:
    async with beating(after=61.0) as stage:
        now = asyncio.get_running_loop().time
        began = now()
        await stage.beat.confirm(1.0)
        assert (now() - began < 0.1, began <= stage.beat.health.confirmed) == (True, True)
        stage.mesa.script(Hang(), times=None)
        await stage.beat.confirm(1.0)
        assert now() - began == pytest.approx(1.0, abs=0.1)
        assert began <= stage.beat.health.asked <= began + 0.1
