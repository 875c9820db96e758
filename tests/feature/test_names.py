"""Gateways known by DNS names, from a real name server on loopback to what a ztunnel does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dns.rcode
import pytest

from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.manifests import write_manifests
from tests.kit.name_server import NameServer
from tests.kit.plane import Plane, learned
from tests.kit.two_clusters import CART, CLIENT, TwoClusters
from tests.kit.ztunnel import Route, Ztunnel
from watchers.lookups import dns as lookups
from watchers.lookups import names as timing
from watchers.lookups.dns import DnsResolver
from watchers.lookups.names import Answer
from xds.messages.workload import ADDRESS_TYPE

NAME = "ew.mesa.example"
OLD, NEW = "192.0.2.20", "192.0.2.21"


def gateway(address: str) -> str:
    return f"NetworkGateway/net2/{address}/0"


def way(address: str) -> str:
    return f"net2/SplitHorizonWorkload/istio-system/east-west/{address}/{CART}"


# The resolver.


async def test_addresses_come_with_their_ttl() -> None:
    async with NameServer() as server:
        server.set(NAME, OLD, NEW, "2001:db8::1", ttl=42)
        answer = await server.resolver(NAME, "A")
        assert (answer.outcome, set(answer.addresses), answer.ttl) == ("found", {OLD, NEW}, 42)
        assert await server.resolver(NAME, "AAAA") == Answer("found", ("2001:db8::1",), 42)


async def test_of_a_chain_of_names_the_shortest_ttl_counts() -> None:
    async with NameServer() as server:
        server.records[NAME, "CNAME"] = 7, ("lb.example",)
        server.set("lb.example", OLD, ttl=300)
        assert await server.resolver(NAME, "A") == Answer("found", (OLD,), 7)


async def test_a_name_without_addresses_of_a_family_is_there() -> None:
    async with NameServer() as server:
        server.set(NAME, OLD)
        assert await server.resolver(NAME, "AAAA") == Answer("empty")


async def test_a_name_that_does_not_exist_is_absent_and_no_search_domain_is_tried() -> None:
    async with NameServer() as server:
        assert await server.resolver("ew", "A") == Answer("absent", cause="it does not exist (NXDOMAIN)")
        assert server.asked == [("ew", "A")]


@pytest.mark.parametrize(("code", "word"), [(dns.rcode.SERVFAIL, "SERVFAIL"), (dns.rcode.REFUSED, "REFUSED")])
async def test_a_name_server_that_fails_says_nothing_of_the_name(code: int, word: str) -> None:
    async with NameServer() as server:
        server.failing["A"] = code
        assert await server.resolver(NAME, "A") == Answer("failed", cause=f"name servers answer {word}")


async def test_a_name_server_that_is_silent_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "LIMIT", 0.2)
    async with NameServer() as server:
        server.silent = True
        assert await server.resolver(NAME, "A") == Answer("failed", cause="no name server answers")


async def test_a_name_server_that_is_not_there_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "LIMIT", 0.2)
    async with NameServer() as server:
        resolver = server.resolver
    assert (await resolver(NAME, "A")).outcome == "failed"


async def test_a_name_that_no_message_can_hold_has_failed() -> None:
    assert (await DnsResolver(("127.0.0.1",), 9)(f"{'a' * 64}.example", "A")).outcome == "failed"


# The whole control plane.


@pytest.fixture
def world(tmp_path: Path) -> TwoClusters:
    """Two clusters, of which beta's gateway is known by a name."""
    world = TwoClusters(tmp_path)
    write_manifests(
        world.beta,
        m.namespace("istio-system", network="net2"),
        m.namespace("shop"),
        m.east_west_gateway("istio-system/east-west", ("Hostname", NAME), network="net2"),
        file="cluster.yaml",
    )
    return world


def dialled(ztunnel: Ztunnel) -> set[str]:
    """The gateways a ztunnel dials for `cart`."""
    routes = [share.outcome for share in ztunnel.routes(CLIENT, "10.96.1.10:80")]
    return {route.address for route in routes if isinstance(route, Route) and route.inner_identities}


def plane_of(world: TwoClusters, server: NameServer, **settings: Any) -> Plane:
    return Plane(world.alpha, world.beta, identities=world.identities, resolve=server.resolver, **settings)


async def test_a_ztunnel_follows_a_gateway_whose_name_moves_by_one_push_without_a_gap(
    world: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SOONEST", 0.05)
    ztunnel = Ztunnel("net1")
    async with NameServer() as server:
        server.set(NAME, OLD, ttl=0)
        async with plane_of(world, server) as plane, plane.connect(ztunnel) as client:
            machine = await learned(client)
            assert dialled(ztunnel) == {f"{OLD}:15008"}
            before = len(machine.received)
            server.set(NAME, NEW, ttl=0)
            await client.until(lambda machine: len(machine.received) > before)
            assert dialled(ztunnel) == {f"{NEW}:15008"}
            (push,) = list(machine.received)[before:]
            assert (set(push.resources), set(push.removed)) == ({gateway(NEW), way(NEW)}, {gateway(OLD), way(OLD)})
            # Equal answers, many times over, are nothing new.
            asked = len(server.asked)
            await eventually(lambda: len(server.asked) > asked + 20)
            assert len(machine.received) == before + 1
            assert machine.oddities == []


async def test_addresses_in_another_order_push_nothing(world: TwoClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SOONEST", 0.02)
    ztunnel = Ztunnel("net1")
    async with NameServer() as server:
        server.set(NAME, OLD, NEW, ttl=0)
        async with plane_of(world, server) as plane, plane.connect(ztunnel) as client:
            machine = await learned(client)
            before, asked = len(machine.received), len(server.asked)
            await eventually(lambda: len(server.asked) > asked + 40)
            assert dialled(ztunnel) == {f"{OLD}:15008", f"{NEW}:15008"}
            assert len(machine.received) == before


async def test_a_gateway_stays_through_an_outage_of_dns_which_is_found_and_measured(
    world: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SOONEST", 0.05)
    ztunnel = Ztunnel("net1")
    async with NameServer() as server:
        server.set(NAME, OLD, ttl=0)
        async with plane_of(world, server) as plane, plane.connect(ztunnel) as client:
            machine = await learned(client)
            before = len(machine.received)
            server.failing.update({"A": dns.rcode.SERVFAIL, "AAAA": dns.rcode.SERVFAIL})
            await eventually(plane.control.findings)
            (found,) = plane.control.findings()
            assert found.startswith(
                f"Gateway istio-system/east-west in beta: status.addresses[0]: {NAME}: name servers answer SERVFAIL; "
                f"used: {OLD}. See to the name servers"
            )
            metrics = (await plane.admin("/metrics")).body.decode()
            assert 'isthmus_lookups_names{state="outdated"} 1.0' in metrics
            assert dialled(ztunnel) == {f"{OLD}:15008"}
            server.failing.clear()
            await eventually(lambda: not plane.control.findings())
            assert len(machine.received) == before


async def test_while_a_name_does_not_exist_its_gateway_is_withheld_and_what_is_behind_it_too(
    world: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SOONEST", 0.05)
    ztunnel = Ztunnel("net1")
    async with NameServer() as server, plane_of(world, server) as plane, plane.connect(ztunnel) as client:
        machine = await learned(client)
        assert dialled(ztunnel) == set()
        assert not any("beta//Pod" in name for name in machine.held(ADDRESS_TYPE))
        assert any("NXDOMAIN" in line for line in plane.control.findings())
        server.set(NAME, OLD)
        await client.until(lambda machine: way(OLD) in machine.held(ADDRESS_TYPE))
        assert dialled(ztunnel) == {f"{OLD}:15008"}


async def test_a_ztunnel_that_holds_a_gateway_keeps_it_while_a_restarted_control_plane_still_asks(
    world: TwoClusters,
) -> None:
    ztunnel = Ztunnel("net1")
    async with NameServer() as server:
        server.set(NAME, OLD)
        async with plane_of(world, server) as plane, plane.connect(ztunnel) as client:
            await learned(client)
        server.silent = True
        server.asked.clear()
        again = plane_of(world, server)
        life = asyncio.create_task(again.__aenter__())
        try:
            # It has read beta, and knows of its gateway no more than the name.
            await eventually(lambda: server.asked)
            # Home may be read a moment later than beta.
            asked = f"DNS name {NAME} of a gateway is being looked up"
            await eventually(lambda: asked in again.control.readiness().waiting)
            before = len(ztunnel.machine.received)
            async with again.connect(ztunnel) as client:
                await client.until(lambda machine: len(machine.received) > before)
                assert dialled(ztunnel) == {f"{OLD}:15008"}
                server.silent = False
                await asyncio.wait_for(life, 20)
                assert dialled(ztunnel) == {f"{OLD}:15008"}
        finally:
            await asyncio.wait((life,))
            await again.stop()


async def test_where_no_gateway_has_a_name_nothing_is_asked(tmp_path: Path) -> None:
    world = TwoClusters(tmp_path)
    async with NameServer() as server, plane_of(world, server):
        assert server.asked == []
