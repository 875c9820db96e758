"""Questions about domains, of a graph as it is after a pass: order, pages, bounds, and that nobody is held up."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import UnsetType

from aggregator.cache.table import Table
from aggregator.findings import Finding
from aggregator.operate import domains as questions_module
from aggregator.operate.domain_list import MOST_DETAILS, STATES, Activation, Domain, needs_attention
from aggregator.operate.domains import Asked, DomainQuestions
from aggregator.views.ingress_gateway import scope_keys
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.domains import domain
from tests.kit.world import World
from watchers.facts.keys import ObjectKey


class Gateway:
    """A gateway that holds all but some hosts, and refuses some."""

    def __init__(self, name: str, *lacking: str, refusing: Collection[str] = ()) -> None:
        self.id = name
        self._lacking = {scope_keys(host, None)[0][1] for host in (*lacking, *refusing)}
        self._refusing = {scope_keys(host, None)[0][1]: "no" for host in refusing}

    def held(self, scopes: Collection[str]) -> frozenset[str]:
        return frozenset(scopes) - self._lacking

    def refused(self, scopes: Collection[str]) -> Mapping[str, str]:
        return {scope: why for scope, why in self._refusing.items() if scope in scopes}


class Asking(DomainQuestions):
    """Questions to a world."""

    def __init__(self, world: World, *gateways: Gateway) -> None:
        self.world = world
        table: Table[ObjectKey, tuple[Finding, ...]] = Table("findings")
        table.apply(world.published.get("findings", {}).items())
        super().__init__(
            world.pipeline, table, lambda: gateways, lambda _: Activation(), replica="r", now=lambda: world.now
        )


def world_of(*objects: m.Manifest) -> World:
    world = World("west")
    world.now = c.NOW.timestamp()
    world.apply("west", m.namespace("shop"), m.service("shop/web", selector={"app": "web"}), *objects)
    world.step()
    return world


def ingresses(count: int) -> list[m.Manifest]:
    """In an order that is not that of their hosts."""
    return [m.ingress(f"shop/i{number}", f"h{number * 7 % count:04}.example.org", "web") for number in range(count)]


async def hosts(asking: DomainQuestions, asked: Asked) -> list[str]:
    """Those of all pages."""
    found: list[str] = []
    while True:
        page = await asking.page(asked)
        found += [one.host for one in page.items]
        assert len(page.items) <= asked.limit
        if not page.after:
            return found
        assert page.after > asked.after
        asked = msgspec.structs.replace(asked, after=page.after)


@pytest.mark.parametrize("limit", [1, 7, 10, 20, 1000])
@pytest.mark.parametrize(("chunk", "scanned"), [(3, 4), (10, 5), (500, 5000)])
async def test_pages_of_any_size_hold_every_host_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, limit: int, chunk: int, scanned: int
) -> None:
    monkeypatch.setattr(questions_module, "_CHUNK", chunk)
    monkeypatch.setattr(questions_module, "_SCANNED", scanned)
    asking = Asking(world_of(*ingresses(20)))
    every = [f"h{number:04}.example.org" for number in range(20)]
    assert await hosts(asking, Asked(limit=limit)) == every
    assert await hosts(asking, Asked((".example.org", "h0003.example.org"), limit=limit)) == every
    assert await hosts(asking, Asked(tuple(every[4:9]), limit=limit)) == every[4:9]
    assert await hosts(asking, Asked(states=frozenset({"Refused"}), limit=limit)) == []


async def test_a_question_that_few_answer_to_looks_at_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions_module, "_CHUNK", 4)
    monkeypatch.setattr(questions_module, "MOST_EXAMINED", 8)
    asking = Asking(world_of(*ingresses(20)))
    page = await asking.page(Asked(states=frozenset({"Refused"})))
    assert (page.items, page.after) == ((), "h0007.example.org")


async def test_hosts_that_come_and_go_between_pages_lose_no_other() -> None:
    world = world_of(*ingresses(6))
    asking = Asking(world)
    first = await asking.page(Asked(limit=3))
    world.delete("west", m.ingress("shop/i0", "h0000.example.org", "web"))
    world.apply("west", m.ingress("shop/new", "a.example.org", "web"), m.ingress("shop/z", "h0004x.example.org", "web"))
    world.step()
    rest = await hosts(asking, Asked(limit=3, after=first.after))
    assert rest == ["h0003.example.org", "h0004.example.org", "h0004x.example.org", "h0005.example.org"]


async def test_what_is_asked_waits_for_the_pass_under_way_and_sees_all_of_it() -> None:
    world = world_of(*ingresses(2))
    world.apply("west", m.ingress("shop/new", "new.example.org", "web"))
    inputs = world.pipeline.facts(world._cursor.take().changes)
    world.graph.begin(inputs, world.now)
    world.graph.run(1)
    task = asyncio.create_task(Asking(world).one("h0001.example.org"))
    for _ in range(5):
        await asyncio.sleep(0)
        assert not task.done()
    world.graph.run()
    assert isinstance(await task, Domain)


async def test_the_first_of_several_states_is_told() -> None:
    world = world_of(
        m.ingress("shop/a", "a.example.org", "gone", secret="none"),
        m.ingress("shop/b", "b.example.org", "gone"),
    )
    found = await Asking(world, Gateway("g", refusing=("a.example.org",))).page(Asked())
    assert [one.state for one in found.items] == ["Refused", "BackendMissing"]
    found = await Asking(world).page(Asked())
    assert [one.state for one in found.items] == ["NoCertificate", "BackendMissing"]


async def test_what_is_for_all_hosts_that_nobody_names_is_called_by_a_star() -> None:
    class WithRest(Asking):
        def _groups(self) -> Mapping[str, Any]:
            named = super()._groups()
            return {**named, "": next(iter(named.values()))}

    asking = WithRest(world_of(*ingresses(2)))
    assert await hosts(asking, Asked(limit=1)) == ["*", "h0000.example.org", "h0001.example.org"]
    assert await hosts(asking, Asked(("*",))) == ["*"]
    found = await asking.one("*")
    assert isinstance(found, Domain)
    assert found.host == "*"
    page = await Asking(world_of(*ingresses(2))).page(Asked(("*",)))
    assert (page.items, page.unknown) == ((), ("*",))


async def test_acknowledgements_are_counted_host_by_host() -> None:
    world = world_of(*ingresses(2))
    asking = Asking(world, Gateway("g1"), Gateway("g2", "h0001.example.org"))
    found = await asking.page(Asked())
    assert [(one.acknowledged, one.gateways) for one in found.items] == [(2, 2), (1, 2)]


async def test_the_first_ingress_in_order_is_named_first() -> None:
    world = world_of(
        m.ingress("shop/young", "a.example.org", "web", created="2026-02-01T00:00:00Z"),
        m.ingress("shop/old", "a.example.org", "web", path="/old", created="2026-01-01T00:00:00Z"),
    )
    (found,) = (await Asking(world).page(Asked())).items
    assert found.ingresses == ("shop/old", "shop/young")


async def test_details_are_bounded_and_begin_with_what_needs_a_look() -> None:
    paths = [(f"/p{number}", "web", 80) for number in range(MOST_DETAILS + 50)]
    broken = [m.ingress_rule(f"x{number}.example.org", ("/", "gone", 80)) for number in range(MOST_DETAILS + 50)]
    rules = [m.ingress_rule("a.example.org", *paths), *broken]
    world = world_of(m.ingress("shop/a", rules=rules, spec={"tls": [{"hosts": ["a.example.org"], "secretName": "s"}]}))
    gateways = [Gateway(f"g{number:04}") for number in range(MOST_DETAILS + 50)]
    late = Gateway("late", "a.example.org")
    found = await Asking(world, *gateways, late).one("a.example.org")
    assert isinstance(found, Domain)
    assert not isinstance(found.details, UnsetType)
    details = found.details
    assert (len(details.paths), len(details.findings), len(details.gateways)) == (MOST_DETAILS,) * 3
    assert (details.gateways[0].gateway, details.gateways[0].acknowledged) == ("late", False)
    assert details.findings[0].code == "TlsSecretNotFound"  # the one that is about this host
    assert found.findings > MOST_DETAILS


async def test_neither_findings_nor_reasons_show_a_key() -> None:
    chain, key = c.host_pair("a.example.org", ends=c.NOW.replace(year=2020))
    world = world_of(m.ingress("shop/a", "a.example.org", "web", secret="s"), m.tls_secret("shop/s", chain, key))
    found = await Asking(world).one("a.example.org")
    assert isinstance(found, Domain)
    assert found.state == "CertificateExpired"
    assert b"PRIVATE KEY" not in msgspec.json.encode(found)
    assert b"CERTIFICATE--" not in msgspec.json.encode(found)


async def test_many_domains_are_described_in_slices_between_which_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions_module, "_SLICE", 0.0)
    asking = Asking(world_of(*ingresses(50)))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    page = await asking.page(Asked())
    running.cancel()
    assert len(page.items) == 50
    assert turns >= 50


def test_attention_is_for_all_that_is_not_served() -> None:
    assert [state for state in STATES if needs_attention(domain(state=state))] == list(STATES[1:])
