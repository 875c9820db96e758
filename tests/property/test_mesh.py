"""Any order of events in any clusters gives the bytes of building from scratch, and what is told holds together."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import manifests as m
from tests.kit.mesh_events import POLICY, events, mesh, take
from tests.kit.world import World
from watchers.facts.gateway_api import Gateway


@settings(max_examples=60, deadline=None)
@given(events(), st.integers(1, 50), st.booleans())
def test_any_events_in_any_slices_give_the_bytes_of_a_build_from_scratch(
    happened: list[Any], steps: int, furnished: bool
) -> None:
    world = mesh(furnished=furnished)
    for cluster, event, deleted in happened:
        take(world, cluster, event, deleted=deleted)
        world.step(steps=steps)
    rebuilt = World(**POLICY)
    rebuilt.now = world.now
    rebuilt.facts.apply(sorted(world.facts.scan(), key=lambda item: item[0], reverse=True))
    # What was given is an input, as after a restart.
    kept = world.graph.values(world.graph.kept(world.pipeline.allocated.addresses))
    rebuilt.step({rebuilt.graph.kept(rebuilt.pipeline.allocated.addresses): dict(kept)})
    assert world.resources == rebuilt.resources
    assert world.findings() == rebuilt.findings()
    assert world.published == {name: rebuilt.published.get(name, {}) for name in world.published}


@settings(max_examples=40, deadline=None)
@given(events(), st.integers(1, 9), st.integers(1, 50))
def test_replicas_that_look_at_other_moments_end_alike(happened: list[Any], every: int, steps: int) -> None:
    leader = mesh()
    replica = World(facts=leader.facts, **POLICY)
    for number, (cluster, event, deleted) in enumerate(happened):
        if isinstance(event, dict):
            # Which of two that were given one address before has it now depends on who was heard of first.
            event.pop("status" if event["kind"] == "ServiceEntry" else "", None)
        elif event == "left" and cluster == leader.home.cluster:
            # Home is never left: without it no address is given, and nobody is served.
            continue
        take(leader, cluster, event, deleted=deleted)
        replica.now = leader.now
        leader.step()
        if number % every == 0:
            replica.step(steps=steps)
    replica.step()
    leader.step()
    assert replica.resources == leader.resources
    assert replica.findings() == leader.findings()


@settings(max_examples=60, deadline=None)
@given(events("left", "rotated"))
def test_what_is_told_of_another_network_adds_up_to_what_is_ready_there(happened: list[Any]) -> None:
    world = mesh()
    for cluster, event, deleted in happened:
        take(world, cluster, event, deleted=deleted)
        world.step()
    told = [one["workload"] for one in world.addresses().values() if "workload" in one]
    ways = {one["network"] for one in told if one["uid"].startswith("NetworkGateway/")}
    found: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for one in told:
        if "network_gateway" in one:
            (service,) = one["services"]
            healthy = one.get("status") != "UNHEALTHY"
            found.setdefault((one["network"], service), []).append((one["capacity"], healthy))
    expected: dict[tuple[str, str], tuple[int, bool]] = {}
    for key, service in world.graph.values(world.pipeline.services).items():
        there: dict[str, list[tuple[int, bool]]] = {}
        for collection in world.pipeline.workloads.collections:
            for one in world.graph.values(collection).values():
                if not one.traits.at_home and key in dict(one.services) and one.traits.network in ways:
                    there.setdefault(one.traits.network, []).append((one.weight, one.healthy))
        for network, weights in there.items() if service.is_global else ():
            ready = sum(weight for weight, healthy in weights if healthy)
            if ready or service.allow_unready:
                expected[network, key] = (ready or sum(weight for weight, _ in weights), ready > 0)
    assert {key: (sum(n for n, _ in shares), all(ok for _, ok in shares)) for key, shares in found.items()} == expected
    assert all(capacity > 0 for shares in found.values() for capacity, _ in shares)


@settings(max_examples=60, deadline=None)
@given(events(), st.integers(1, 50))
def test_whatever_is_referred_to_is_told_in_the_same_revision(happened: list[Any], steps: int) -> None:
    world = mesh()
    for cluster, event, deleted in happened:
        take(world, cluster, event, deleted=deleted)
        world.step(steps=steps)
        check_references(world)


def check_references(world: World) -> None:
    """Policies, services and gateways that are named are told; waypoints exist, and are known if elsewhere."""
    addresses = world.addresses()
    policies = set(world.authorizations())
    gateways = {
        (one["workload"]["network"], address)
        for name, one in addresses.items()
        if name.startswith("NetworkGateway/")
        for address in one["workload"]["addresses"]
    }
    waypoints = {
        (key[2], address.value)
        for key, fact in world.facts.scan()
        if isinstance(fact, Gateway)
        for address in fact.addresses
    }
    places = {value for _, value in waypoints}
    merged = world.graph.values(world.pipeline.services)
    for name, one in addresses.items():
        told = one.get("workload") or one["service"]
        assert policies.issuperset(told.get("authorization_policies", ())), name
        assert addresses.keys() >= told.get("services", {}).keys(), name
        if "network_gateway" in told:
            way = told["network_gateway"]["address"]
            assert (way["network"], way["address"]) in gateways, name
        named = [told[field] for field in ("waypoint",) if field in told]
        named += [each["destination"] for each in told.get("weighted_waypoints", ())]
        for waypoint in named:
            if "hostname" in waypoint:
                place = waypoint["hostname"]["namespace"], waypoint["hostname"]["hostname"]
                assert place in waypoints, name
            else:
                assert waypoint["address"]["address"] in places, name
        if named and "service" in one and merged[name].base[0] != world.home.cluster:
            assert_known_at_home(world, name, named)


def assert_known_at_home(world: World, name: str, named: list[Any]) -> None:
    """The waypoints of a service that home does not have are told as services, unless they are on home's network."""
    home = world.pipeline.networks.of_cluster
    networks = {key[0]: network for key, network in world.graph.values(home).items()}
    objects = world.graph.values(world.pipeline.declared.candidates)[name].values()
    own = networks.get(world.home.cluster, "")
    if any(networks.get(one.cluster, "") == own for one in objects):
        return
    told = world.addresses()
    vips = [vip for one in told.values() for vip in one.get("service", {}).get("addresses", ())]
    for waypoint in named:
        if "hostname" in waypoint:
            assert "/".join((waypoint["hostname"]["namespace"], waypoint["hostname"]["hostname"])) in told, name
        else:
            assert waypoint["address"] in vips, name


def test_every_order_of_arrival_of_a_remote_cluster_ends_the_same() -> None:
    home = [
        m.namespace("istio-system", network="net-a"),
        m.namespace("shop"),
        m.service("shop/orders", "10.10.0.11", is_global=True),
    ]
    parts = (
        [m.namespace("istio-system", network="net-b")],
        [m.namespace("shop"), m.service("shop/orders", "10.20.0.11", selector={"app": "orders"}, is_global=True)],
        [
            m.pod("shop/orders-1", "10.2.0.5", labels={"app": "orders"}),
            m.pod("shop/orders-2", "10.2.0.6", labels={"app": "orders"}),
        ],
        [m.east_west_gateway("istio-system/edge", "198.51.100.20", network="net-b")],
    )
    answers = []
    for order in itertools.permutations(parts):
        world = World()
        world.apply("alpha", *home)
        for part in order:
            world.apply("beta", *part)
            world.step()
        answers.append(world.resources)
    reach = "net-b/SplitHorizonWorkload/istio-system/edge/198.51.100.20/shop/orders.shop.svc.cluster.local"
    assert world.address(reach)["capacity"] == 2
    assert all(answer == answers[0] for answer in answers)


def test_every_order_in_which_a_gateways_name_and_its_addresses_become_known_ends_the_same() -> None:
    steps: tuple[Callable[[World], None], ...] = (
        lambda world: world.apply(
            "beta",
            m.namespace("istio-system", network="net-b"),
            m.namespace("shop"),
            m.service("shop/orders", "10.20.0.11", selector={"app": "orders"}, is_global=True),
            m.pod("shop/orders-1", "10.2.0.5", labels={"app": "orders"}),
        ),
        lambda world: world.apply(
            "beta", m.east_west_gateway("istio-system/edge", ("Hostname", "edge.example"), network="net-b")
        ),
        lambda world: world.resolve("edge.example", "198.51.100.20", "2001:db8::1"),
        lambda world: world.apply("alpha", m.pod("shop/client", "10.1.0.5")),
    )
    answers = []
    for order in itertools.permutations(steps):
        world = World()
        world.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"))
        world.apply("alpha", m.service("shop/orders", "10.10.0.11", is_global=True))
        for step in order:
            step(world)
            world.step()
            assert not any("10.2.0.5" in str(told) for told in world.addresses().values())
        answers.append((world.resources, world.findings()))
    reach = "net-b/SplitHorizonWorkload/istio-system/edge/198.51.100.20/shop/orders.shop.svc.cluster.local"
    assert world.address(reach)["capacity"] == 1
    assert all(answer == answers[0] for answer in answers)
