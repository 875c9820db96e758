"""Any order of events in any clusters gives the bytes of building from scratch."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import World

CLUSTERS = ("alpha", "beta", "gamma")
PORTS: tuple[dict[str, Any], ...] = ({"http": (80, 8080)}, {"http": (80, "web")}, {"grpc": 90, "http": 80})
SPECS: tuple[dict[str, Any], ...] = ({}, {"publishNotReadyAddresses": True}, {"type": "ExternalName"})


@st.composite
def objects(draw: st.DrawFn) -> Manifest:
    """A small object of any kind, from so few names that objects meet."""
    name = draw(st.sampled_from(("cart", "ads")))
    number = draw(st.integers(1, 3))
    kind = draw(
        st.sampled_from(("namespace", "system", "node", "pod", "pod", "service", "service", "slice", "gateway"))
    )
    if kind == "namespace":
        return m.namespace("shop", labels={"istio.io/global": draw(st.sampled_from(("true", "false")))})
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
    return gateway(
        f"istio-system/edge-{number}",
        f"203.0.113.{draw(st.integers(1, 2))}",
        network=draw(st.sampled_from(("net-b", ""))),
    )


EVENTS = st.lists(
    st.tuples(st.sampled_from(CLUSTERS), st.one_of(objects(), objects(), objects(), st.just(None)), st.booleans()),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(1, 50))
def test_any_events_in_any_slices_give_the_bytes_of_a_build_from_scratch(events: list[Any], steps: int) -> None:
    world = World()
    for cluster in CLUSTERS:
        world.cluster(cluster)
    for cluster, manifest, deleted in events:
        if manifest is None:
            world.leave(cluster)
        elif deleted:
            world.delete(cluster, manifest)
        else:
            world.apply(cluster, manifest)
        world.step(steps=steps)
    rebuilt = World()
    rebuilt.facts.apply(sorted(world.facts.scan(), key=lambda item: item[0], reverse=True))
    rebuilt.step()
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
