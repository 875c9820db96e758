"""Any order of events in any clusters gives the bytes of building from scratch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import World
from watchers.facts.names import ResolvedName, name_key

CLUSTERS = ("alpha", "beta", "gamma")
PORTS: tuple[dict[str, Any], ...] = ({"http": (80, 8080)}, {"http": (80, "web")}, {"grpc": 90, "http": 80})
SELECTORS: tuple[list[Any], ...] = ([], [{"matchLabels": {"mesh": "on"}}], [{"matchLabels": {"mesh": "off"}}, None])
SPECS: tuple[dict[str, Any], ...] = ({}, {"publishNotReadyAddresses": True}, {"type": "ExternalName"})

KINDS = (
    *("namespace", "selectors", "system", "node", "pod", "pod", "service", "service", "slice", "gateway"),
    *("service entry", "service entry", "workload entry"),
)
HOSTS = ("a.ext", "b.ext", "*.ext", "cart.shop.svc.cluster.local")
ENDPOINTS: tuple[Any, ...] = ("192.0.2.1", {"address": "192.0.2.2", "network": "net-b", "weight": 3}, "db.example", "")


@st.composite
def objects(draw: st.DrawFn) -> Manifest:
    """A small object of any kind, from so few names that objects meet."""
    name = draw(st.sampled_from(("cart", "ads")))
    number = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(KINDS))
    if kind.endswith("entry"):
        return draw(entries(kind, name, number))
    if kind == "namespace":
        own = draw(st.sampled_from(({}, {"mesh": "on"})))
        return m.namespace("shop", labels={"istio.io/global": draw(st.sampled_from(("true", "false"))), **own})
    if kind == "selectors":
        return m.mesh_config_map(discoverySelectors=draw(st.sampled_from(SELECTORS)))
    if kind == "system":
        return m.namespace("istio-system", network=draw(st.sampled_from(("", "net-a", "net-b"))))
    if kind == "node":
        return m.node("node-1", region="eu", zone=draw(st.sampled_from(("a", "b"))))
    if kind == "pod":
        return m.pod(
            f"shop/{name}-{number}",
            f"10.0.0.{number}",
            labels={"app": name, **draw(st.sampled_from(({}, {"topology.istio.io/network": "net-b"})))},
            account=draw(st.sampled_from(("one", "two"))),
            node="node-1",
            ready=draw(st.booleans()),
            phase=draw(st.sampled_from(("Running", "Running", "Running", "Failed"))),
            ports=draw(st.sampled_from(({}, {"web": 8080}, {"web": 9090}))),
        )
    if kind == "service":
        return m.service(
            f"shop/{name}",
            f"10.96.0.{draw(st.integers(1, 2))}",
            ports=draw(st.sampled_from(PORTS)),
            selector=draw(st.sampled_from(({"app": name}, {"app": "cart"}, None))),
            is_global=draw(st.booleans()),
            created=draw(st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"))),
            spec=draw(st.sampled_from(SPECS)),
        )
    if kind == "slice":
        endpoint = draw(
            st.sampled_from(
                (m.endpoint("192.0.2.7"), m.endpoint("10.0.0.1", pod=f"shop/{name}-1"), m.endpoint("nowhere"))
            )
        )
        return m.slice_(f"shop/{name}-x", endpoint, service=name)
    gateway = draw(st.sampled_from((m.east_west_gateway, m.remote_gateway)))
    addresses: st.SearchStrategy[str | tuple[str, str]] = st.sampled_from(
        ("203.0.113.1", "203.0.113.2", ("Hostname", "one.example"), ("Hostname", "two.example"))
    )
    return gateway(
        f"istio-system/edge-{number}",
        *draw(st.lists(addresses, min_size=1, max_size=2)),
        network=draw(st.sampled_from(("net-b", ""))),
    )


@st.composite
def entries(draw: st.DrawFn, kind: str, name: str, number: int) -> Manifest:
    """An entry whose hosts and workloads may be those of others."""
    if kind == "workload entry":
        return m.workload_entry(
            f"shop/{name}-{number}",
            draw(st.sampled_from((f"10.0.0.{number}", "vm.example", "10.0.0.300"))),
            labels={"app": name},
            account=draw(st.sampled_from(("", "one"))),
            ports=draw(st.sampled_from(({}, {"http": 8081}))),
            network=draw(st.sampled_from(("", "net-b"))),
            weight=draw(st.integers(0, 2)),
        )
    hosts = draw(st.lists(st.sampled_from(HOSTS), min_size=1, max_size=2, unique=True))
    status = {"a.ext": ["240.240.0.1"]} if "a.ext" in hosts and draw(st.booleans()) else None
    return m.service_entry(
        f"{draw(st.sampled_from(('shop', 'zoo')))}/{name}-{number}",
        *hosts,
        resolution=draw(st.sampled_from(("NONE", "STATIC", "DNS"))),
        endpoints=draw(st.lists(st.sampled_from(ENDPOINTS), max_size=2)),
        selector=draw(st.sampled_from((None, None, {"app": name}))),
        is_global=draw(st.booleans()),
        allocated=status,
        addresses=draw(st.sampled_from(([], [], ["240.1.2.3", "10.9.0.0/16"], ["nowhere"]))),
        created=draw(st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"))),
    )


@st.composite
def lookups(draw: st.DrawFn) -> tuple[str, ResolvedName | None]:
    """What a DNS name of a gateway is found to be, in either family, or that nobody asks for it any more."""
    addresses = draw(st.sets(st.sampled_from(("203.0.113.1", "203.0.113.2", "203.0.113.3", "2001:db8::1")), max_size=2))
    reason = draw(st.sampled_from(("", "no name server answers")))
    resolved = ResolvedName(tuple(sorted(addresses)), reason, pending=not addresses and draw(st.booleans()))
    return draw(st.sampled_from(("one.example", "two.example"))), draw(st.sampled_from((resolved, resolved, None)))


FATES = ("left", "lost", "denied", "found", "time passes")
POLICY: dict[str, Any] = {"stale_after": 10.0, "stale_ttl": 20.0, "remote_entries": True}
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(CLUSTERS),
        st.one_of(objects(), objects(), objects(), lookups(), st.sampled_from(FATES)),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(1, 50))
def test_any_events_in_any_slices_give_the_bytes_of_a_build_from_scratch(events: list[Any], steps: int) -> None:
    world = World(**POLICY)
    for cluster in CLUSTERS:
        world.cluster(cluster)
    for cluster, event, deleted in events:
        match event:
            case "left":
                world.leave(cluster)
            case "lost":
                world.lose(cluster)
            case "denied":
                world.lose(cluster, "denied")
            case "found":
                world.cluster(cluster)
            case "time passes":
                world.now += 7.0
            case tuple():
                world.facts.apply([(name_key(event[0]), event[1])])
            case _ if deleted:
                world.delete(cluster, event)
            case _:
                world.apply(cluster, event)
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
