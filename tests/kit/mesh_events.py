"""Events of a mesh, for property tests: objects of every kind, from so few names that they meet, and fates of clusters.

`EVENTS` are lists of what may happen; `take` lets one of it happen to a `World`.
"""

from __future__ import annotations

from typing import Any

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
    *("service entry", "service entry", "workload entry", "policy", "peer authentication", "waypoint", "mesh config"),
    "export",
)
WAYPOINTS: tuple[dict[str, str], ...] = (
    {},
    {"istio.io/use-waypoint": "wp"},
    {"istio.io/use-waypoint": "none"},
    {"istio.io/use-waypoint": "wp", "istio.io/use-waypoint-canary": "wp2", "istio.io/ingress-use-waypoint": "true"},
)
RULES: tuple[dict[str, Any], ...] = (
    {},
    {"from": [{"source": {"namespaces": ["front"]}}]},
    {"to": [{"operation": {"ports": ["80"], "methods": ["GET"]}}]},
)
HOSTS = ("a.ext", "b.ext", "*.ext", "cart.shop.svc.cluster.local", "cart.shop.svc.clusterset.local")
ENDPOINTS: tuple[Any, ...] = ("192.0.2.1", {"address": "192.0.2.2", "network": "net-b", "weight": 3}, "db.example", "")


@st.composite
def objects(draw: st.DrawFn) -> Manifest:
    """A small object of any kind, from so few names that objects meet."""
    name = draw(st.sampled_from(("cart", "ads")))
    number = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(KINDS))
    if kind.endswith("entry"):
        return draw(entries(kind, name, number))
    if kind in ("policy", "peer authentication", "mesh config"):
        return draw(settings_of_a_mesh(kind, name, number))
    if kind == "export":
        return m.service_export(
            f"shop/{name}", created=draw(st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")))
        )
    if kind == "waypoint":
        own = draw(st.sampled_from(("wp", "wp2")))
        return m.gateway(
            f"shop/{own}",
            "istio-waypoint",
            m.listener(allowed_from=draw(st.sampled_from(("", "Same", "All")))),
            addresses=draw(st.sampled_from(((), ("10.96.0.9",), (("Hostname", f"{own}.shop.svc.cluster.local"),)))),
            labels=draw(st.sampled_from(({}, {"istio.io/waypoint-for": "all"}))),
        )
    if kind == "namespace":
        label = draw(st.sampled_from(({}, {"mesh": "on"})))
        shared = {"istio.io/global": draw(st.sampled_from(("true", "false")))}
        return m.namespace("shop", labels={**shared, **label, **draw(st.sampled_from(WAYPOINTS))})
    if kind == "selectors":
        return m.mesh_config_map(discoverySelectors=draw(st.sampled_from(SELECTORS)))
    if kind == "system":
        return m.namespace("istio-system", network=draw(st.sampled_from(("", "net-a", "net-b"))))
    if kind == "node":
        return m.node("node-1", region="eu", zone=draw(st.sampled_from(("a", "b"))))
    if kind == "pod":
        network = draw(st.sampled_from(({}, {"topology.istio.io/network": "net-b"})))
        return m.pod(
            f"shop/{name}-{number}",
            f"10.0.0.{number}",
            labels={"app": name, **network, **draw(st.sampled_from(WAYPOINTS))},
            account=draw(st.sampled_from(("one", "two"))),
            node="node-1",
            ready=draw(st.booleans()),
            phase=draw(st.sampled_from(("Running", "Running", "Running", "Failed"))),
            ports=draw(st.sampled_from(({}, {"web": 8080}, {"web": 9090}))),
        )
    if kind == "service":
        name = draw(st.sampled_from((name, name, "wp")))
        return m.service(
            f"shop/{name}",
            f"10.96.0.{draw(st.integers(1, 2))}",
            ports=draw(st.sampled_from(PORTS)),
            selector=draw(st.sampled_from(({"app": name}, {"app": "cart"}, None))),
            is_global=draw(st.booleans()),
            labels=draw(st.sampled_from(WAYPOINTS)),
            annotations=draw(st.sampled_from(({}, {"istio.io/use-waypoint-canary-weight": "20"}))),
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
def settings_of_a_mesh(draw: st.DrawFn, kind: str, name: str, number: int) -> Manifest:
    """A policy or a mesh configuration."""
    place = draw(st.sampled_from(("shop", "istio-system")))
    selector = draw(st.sampled_from((None, {"app": name})))
    created = draw(st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")))
    if kind == "mesh config":
        visibility = draw(st.sampled_from(("PUBLIC", "NAMESPACE", "NONE")))
        domain = draw(st.sampled_from(("", "other.example")))
        return m.mesh_config_map(trust_domain=domain, serviceEntryVisibility={"defaultVisibility": visibility})
    if kind == "policy":
        return m.authorization_policy(
            f"{place}/{name}-{number}",
            *draw(st.lists(st.sampled_from(RULES), max_size=2)),
            action=draw(st.sampled_from(("", "DENY", "AUDIT"))),
            selector=selector,
            created=created,
        )
    return m.peer_authentication(
        f"{place}/{name}-{number}",
        draw(st.sampled_from(("", "UNSET", "STRICT", "PERMISSIVE"))),
        selector=selector,
        ports=draw(st.sampled_from(({}, {8080: "PERMISSIVE"}, {8080: "STRICT", 9090: "DISABLE"}))),
        created=created,
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


FATES = ("left", "lost", "denied", "found", "time passes", "rotated")
POLICY: dict[str, Any] = {"stale_after": 10.0, "stale_ttl": 20.0, "remote_entries": True}
"""Settings under which all events have consequences."""


def events(*fates: str, max_size: int = 40) -> st.SearchStrategy[list[Any]]:
    """(cluster, what happens, whether that is that the object goes)."""
    happens = st.one_of(objects(), objects(), objects(), lookups(), st.sampled_from(fates or FATES))
    return st.lists(st.tuples(st.sampled_from(CLUSTERS), happens, st.booleans()), max_size=max_size)


NETWORKS = {"alpha": "net-a", "beta": "net-b", "gamma": "net-a"}


def furniture() -> list[tuple[str, Manifest]]:
    """What is there before anything happens: in every cluster global services, pods, a gateway and a waypoint."""
    placed: list[tuple[str, Manifest]] = [
        ("alpha", m.authorization_policy("shop/cart-1", RULES[1], selector={"app": "cart"})),
        ("alpha", m.peer_authentication("istio-system/cart-1", "STRICT")),
        ("alpha", m.peer_authentication("shop/ads-1", selector={"app": "ads"}, ports={8080: "PERMISSIVE"})),
        ("alpha", m.workload_entry("shop/cart-3", "10.0.1.3", labels={"app": "cart"}, network="net-b", weight=3)),
        ("beta", m.gateway("shop/wp2", addresses=["10.96.0.9"])),
        ("beta", m.service("shop/wp2", "10.96.0.9", ports={"mesh": 15008})),
    ]
    for number, (cluster, network) in enumerate(NETWORKS.items(), 1):
        placed += [
            (cluster, m.namespace("istio-system", network=network)),
            (cluster, m.namespace("shop", labels={"istio.io/global": "true", "mesh": "on"})),
            (
                cluster,
                m.east_west_gateway(
                    "istio-system/edge-1", f"203.0.113.{number}", f"203.0.113.{9 + number}", network=network
                ),
            ),
            (cluster, m.gateway("shop/wp", addresses=[("Hostname", "wp.shop.svc.cluster.local")])),
            (cluster, m.service("shop/wp", f"10.96.0.{9 + number}", ports={"mesh": 15008})),
        ]
        for name in ("cart", "ads"):
            # What home does not have is reached in other networks alone.
            if (cluster, name) not in (("alpha", "ads"), ("gamma", "ads")):
                labels = {} if cluster == "alpha" else WAYPOINTS[3 if name == "ads" else 1]
                weight = {"istio.io/use-waypoint-canary-weight": "20"}
                service = m.service(
                    f"shop/{name}", "10.96.0.1", selector={"app": name}, labels=labels, annotations=weight
                )
                placed.append((cluster, service))
            placed += [
                (cluster, m.pod(f"shop/{name}-{one}", f"10.0.{number}.{one}", labels={"app": name}, account=f"a{one}"))
                for one in (1, 2)
            ]
    return placed


def mesh(*, furnished: bool = True, **settings: Any) -> World:
    """A world of these clusters, with something in them or nothing yet."""
    world = World(**{**POLICY, **settings})
    for cluster in CLUSTERS:
        world.cluster(cluster)
    for cluster, manifest in furniture() if furnished else ():
        world.apply(cluster, manifest)
    world.step()
    return world


def take(world: World, cluster: str, event: Any, *, deleted: bool) -> None:
    """Lets an event happen."""
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
        case "rotated":
            # What a new connection has read takes the place of all that the old one had; some went meanwhile.
            held = sorted(world.facts.scan((cluster,)), key=lambda item: item[0])
            world.facts.replace((cluster,), [one for number, one in enumerate(held) if number % 3 or not deleted])
        case tuple():
            world.facts.apply([(name_key(event[0]), event[1])])
        case _ if deleted:
            world.delete(cluster, event)
        case _:
            world.apply(cluster, event)
