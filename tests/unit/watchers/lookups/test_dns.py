"""Names that are looked up over hours of virtual time: what becomes of answers, and what is asked at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aggregator.cache.table import Table
from tests.kit.clock import virtual_time
from watchers.facts import Fact, ObjectKey
from watchers.facts.names import RESOLVER, ResolvedName, name_key
from watchers.lookups.dns import AT_ONCE, Lookups
from watchers.lookups.names import Answer, Family
from watchers.metrics import LookupMetrics

NAME = "ew.mesa.example"
GATEWAY = (("mesa", "Gateway", "istio-system", "edge"),)
OLD, NEW = "198.51.100.20", "198.51.100.21"
FAILED = Answer("failed", cause="no name server answers")
Say = Callable[[str, Family, float], Answer]


def found(*addresses: str, ttl: float = 10.0) -> Answer:
    return Answer("found", addresses, ttl)


class Bench:
    """Lookups over two tables, whose name server says what a function of name, family and time says.

    `told` is every fact that was written, with its moment; `asked` every question of family A, with its moment.
    """

    def __init__(self, say: Say, known: Mapping[str, ResolvedName] = {}, seconds: float = 0.0) -> None:
        self.say = say
        self.seconds = seconds
        self.names: Table[tuple[str], Any] = Table("hostnames")
        self.facts: Table[ObjectKey, Fact] = Table("facts")
        self.facts.apply([(name_key(name), fact) for name, fact in known.items()])
        self.metrics = LookupMetrics()
        self.told: list[tuple[float, str, ResolvedName | None]] = []
        self.asked: list[tuple[float, str]] = []
        self.asking = 0
        self.most_asking = 0
        self.lookups = Lookups(
            self.names, self.facts, patience=30.0, metrics=self.metrics, resolve=self.resolve, chance=lambda: 0.0
        )

    async def resolve(self, name: str, family: Family) -> Answer:
        now = asyncio.get_running_loop().time()
        if family == "A":
            self.asked.append((now, name))
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.asking -= 1
        return self.say(name, family, now)

    def want(self, *names: str) -> None:
        self.names.apply([((name,), GATEWAY) for name in names])

    def drop(self, *names: str) -> None:
        self.names.apply([((name,), None) for name in names])

    def of(self, name: str = NAME) -> ResolvedName | None:
        fact = self.facts.get(name_key(name))
        assert fact is None or isinstance(fact, ResolvedName)
        return fact

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def note() -> None:
            for key, fact in cursor.take().changes.items():
                assert fact is None or isinstance(fact, ResolvedName)
                self.told.append((loop.time(), key[3], fact))

        cursor = self.facts.cursor(bell=note, from_start=False)
        task = asyncio.create_task(self.lookups.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))
            cursor.close()
            assert task.cancelled()


def steady(answer: Answer) -> Say:
    return lambda _name, family, _now: answer if family == "A" else Answer("empty")


@virtual_time
async def test_a_wanted_name_is_looked_up_at_once_and_told() -> None:
    bench = Bench(steady(found(OLD)))
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(0.1)
        assert bench.of() == ResolvedName((OLD,), "")


@virtual_time
async def test_a_name_that_moves_is_followed_within_its_ttl_and_five_seconds_without_a_gap() -> None:
    bench = Bench(lambda _name, family, now: found(OLD if now < 30 else NEW) if family == "A" else Answer("empty"))
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(600)
    (first, _, old), (second, _, new) = bench.told
    assert (first, old) == (0, ResolvedName((OLD,), ""))
    assert 30 <= second <= 30 + 10 + 5
    assert new == ResolvedName((NEW,), "")


@virtual_time
async def test_equal_answers_in_another_order_are_told_once() -> None:
    turns = iter(range(10_000))

    def rotating(_name: str, family: Family, _now: float) -> Answer:
        addresses = (OLD, NEW) if next(turns) % 4 < 2 else (NEW, OLD)
        return found(*addresses) if family == "A" else Answer("empty")

    bench = Bench(rotating)
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(3600)
    assert len(bench.asked) == 360
    assert [fact for _, _, fact in bench.told] == [ResolvedName((OLD, NEW), "")]


@virtual_time
async def test_addresses_stand_through_an_hour_of_outage_whose_end_is_seen_within_thirty_seconds() -> None:
    bench = Bench(
        lambda _name, family, now: FAILED if 60 <= now < 3660 else found(OLD) if family == "A" else Answer("empty")
    )
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(7200)
    assert [(fact.addresses, fact.reason) for _, _, fact in bench.told if fact] == [
        ((OLD,), ""),
        ((OLD,), "no name server answers"),
        ((OLD,), ""),
    ]
    assert 3660 <= bench.told[-1][0] <= 3690
    during = [moment for moment, _ in bench.asked if 60 <= moment < 3660]
    assert len(during) < 130


@virtual_time
async def test_a_name_that_nobody_wants_is_forgotten_and_not_asked_for_any_more() -> None:
    bench = Bench(steady(found(OLD)))
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(1)
        bench.drop(NAME)
        await asyncio.sleep(100)
        assert bench.of() is None
        assert len(bench.asked) == 1
        assert bench.metrics.names.values == {("current",): 0, ("outdated",): 0, ("unresolved",): 0}


@virtual_time
async def test_a_name_that_is_dropped_while_it_is_being_asked_for_is_not_told() -> None:
    bench = Bench(steady(found(OLD)), seconds=2.0)
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(1)
        bench.drop(NAME)
        await asyncio.sleep(100)
    assert bench.told == []


@virtual_time
async def test_a_name_that_is_wanted_again_is_looked_up_again() -> None:
    bench = Bench(steady(found(OLD)))
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(1)
        bench.drop(NAME)
        await asyncio.sleep(1)
        bench.want(NAME)
        await asyncio.sleep(1)
        assert bench.of() == ResolvedName((OLD,), "")
    assert [moment for moment, _ in bench.asked] == [0, 2]


@virtual_time
async def test_other_objects_that_want_a_name_change_nothing() -> None:
    bench = Bench(steady(found(OLD)))
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(1)
        bench.names.apply([((NAME,), (*GATEWAY, ("reef", "Gateway", "istio-system", "edge")))])
        await asyncio.sleep(1)
    assert len(bench.asked) == 1


@virtual_time
async def test_addresses_told_by_the_process_before_stand_until_they_are_answered() -> None:
    bench = Bench(steady(FAILED), known={NAME: ResolvedName((OLD,), "")})
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(3600)
    assert bench.of() == ResolvedName((OLD,), "no name server answers")


@virtual_time
async def test_a_name_is_pending_for_as_long_as_the_process_is_patient() -> None:
    bench = Bench(lambda *_: FAILED)
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(120)
    assert [(moment, fact.pending) for moment, _, fact in bench.told if fact] == [(0, True), (30, False)]


@virtual_time
async def test_a_name_server_that_never_answers_one_name_holds_up_few_others_and_for_short() -> None:
    bench = Bench(steady(found(OLD, ttl=300)), seconds=1.0)
    names = [f"ew{number}.mesa.example" for number in range(4 * AT_ONCE)]
    bench.want(*names)
    async with bench.running():
        await asyncio.sleep(4.5)
        assert all(bench.of(name) for name in names)
    assert bench.most_asking == 2 * AT_ONCE  # two families


@virtual_time
async def test_a_resolver_that_fails_unexpectedly_costs_one_name_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    def say(name: str, family: Family, now: float) -> Answer:
        if name == NAME and now < 1:
            raise KeyError("label")
        return steady(found(OLD))(name, family, now)

    bench = Bench(say)
    bench.want(NAME, "ew.reef.example")
    async with bench.running():
        await asyncio.sleep(1)
        assert bench.of() == ResolvedName((), "its lookup fails with KeyError", pending=True)
        assert bench.of("ew.reef.example") == ResolvedName((OLD,), "")
        await asyncio.sleep(10)
        assert bench.of() == ResolvedName((OLD,), "")


@virtual_time
async def test_lookups_are_counted_by_outcome_and_names_by_state() -> None:
    def say(name: str, family: Family, now: float) -> Answer:
        if name == "gone.example":
            return Answer("absent", cause="it does not exist (NXDOMAIN)")
        return steady(found(OLD, ttl=300))(name, family, now) if now < 1 else FAILED

    bench = Bench(say)
    bench.want(NAME, "gone.example")
    async with bench.running():
        await asyncio.sleep(1)
        assert bench.metrics.names.values == {("current",): 1, ("outdated",): 0, ("unresolved",): 1}
        await asyncio.sleep(299.5)
        assert bench.metrics.names.values == {("current",): 0, ("outdated",): 1, ("unresolved",): 1}
        assert bench.metrics.lookups.values[("found",)] == 1
        assert bench.metrics.lookups.values[("failed",)] == 1


@virtual_time
async def test_a_change_is_logged_once_with_cause_and_effect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "watchers.lookups")
    bench = Bench(lambda _name, family, now: FAILED if now >= 60 else found(OLD) if family == "A" else Answer("empty"))
    bench.want(NAME)
    async with bench.running():
        await asyncio.sleep(600)
    told = [(record.message, getattr(record, "effect", "")) for record in caplog.records]
    assert told == [("name resolved", ""), ("name not resolved", "the addresses it had stand")]


def test_no_cluster_can_be_called_as_the_facts_about_names_are() -> None:
    from watchers.facts.keys import check_cluster

    with pytest.raises(ValueError, match="cannot be the id"):
        check_cluster(RESOLVER)
