"""Any order of events gives ingress gateways the bytes of building from scratch; and a last good certificate stays."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.views.ingress_gateway import view_of
from aggregator.views.view import View
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import World
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.fallback import AGAIN
from xds.messages.listener import LISTENER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE

CLUSTERS = ("alpha", "beta")
HOSTS = ("a.example", "b.example", "A.example.", "*.example", "")
SCOPES = ("a.example", "b.example", "*.example", "*")
"""Keys of the scopes that these hosts have."""
PATHS = ("/", "/x", "/x/", "/x/y", "/x(/|$)(.*)", "/x(")
ANNOTATIONS: tuple[m.Fields, ...] = (
    {},
    {},
    {"nginx.ingress.kubernetes.io/use-regex": "true"},
    {"kubernetes.io/ingress.class": "edge"},
)
NAMES = ("one", "two")
PLACES = ("shop", "crew")
PORTS: tuple[dict[str, int | tuple[int, int | str] | m.Fields], ...] = (
    {"http": (80, 8080)},
    {"grpc": (80, "web")},
    {"http": (81, 8080)},
)
DATES = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
PAIRS = [c.host_pair("a.example"), c.host_pair("*.example"), c.host_pair("other.example")]
PAIRS.append((PAIRS[0][0], PAIRS[1][1]))
VIEWS: list[View] = [
    view
    for type_url in (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE)
    if (view := view_of(type_url, lambda _: ""))
]


@st.composite
def ingresses(draw: st.DrawFn) -> Manifest:
    def backend() -> tuple[str, int | str]:
        ports: tuple[int | str, ...] = (80, "http", 81)
        return draw(st.sampled_from(NAMES)), draw(st.sampled_from(ports))

    rules = [
        m.ingress_rule(
            draw(st.sampled_from(HOSTS)),
            *((draw(st.sampled_from(PATHS)), *backend()) for _ in range(draw(st.integers(0, 2)))),
            path_type=draw(st.sampled_from(("Prefix", "Exact", "ImplementationSpecific"))),
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        hosts = draw(st.lists(st.sampled_from(HOSTS[:4]), max_size=2))
        spec["tls"] = [{"hosts": hosts, "secretName": draw(st.sampled_from((*NAMES, "")))}]
    if draw(st.booleans()):
        name, _ = backend()
        spec["defaultBackend"] = {"service": {"name": name, "port": {"number": 80}}}
    document = m.ingress(
        f"{draw(st.sampled_from(PLACES))}/{draw(st.sampled_from(NAMES))}",
        rules=rules,
        created=draw(st.sampled_from(DATES)),
        class_name=draw(st.sampled_from(("isthmus", "isthmus", "edge", None))),
        spec=spec,
    )
    document["metadata"]["annotations"] = draw(st.sampled_from(ANNOTATIONS))
    return document


@st.composite
def others(draw: st.DrawFn) -> Manifest:
    place, name, number = draw(st.sampled_from(PLACES)), draw(st.sampled_from(NAMES)), draw(st.integers(1, 2))
    kind = draw(st.sampled_from(("class", "service", "service", "pod", "pod", "secret", "system", "gateway")))
    if kind == "class":
        controller = draw(st.sampled_from(("isthmus.dev/ingress-controller", "example.com/other")))
        return m.ingress_class("edge", controller, is_default=draw(st.booleans()))
    if kind == "service":
        return m.service(
            f"{place}/{name}",
            ports=draw(st.sampled_from(PORTS)),
            selector={"app": name},
            is_global=draw(st.booleans()),
            spec=draw(st.sampled_from(({}, {"publishNotReadyAddresses": True}))),
        )
    if kind == "pod":
        return m.pod(
            f"{place}/{name}-{number}",
            f"10.0.{PLACES.index(place)}.{number}",
            labels={"app": draw(st.sampled_from(NAMES))},
            account=draw(st.sampled_from(NAMES)),
            ready=draw(st.booleans()),
            ambient=draw(st.booleans()),
            ports=draw(st.sampled_from(({}, {"web": 8080}))),
        )
    if kind == "secret":
        return m.tls_secret(f"{place}/{name}", *draw(st.sampled_from(PAIRS)))
    if kind == "system":
        return m.namespace("istio-system", network=draw(st.sampled_from(("net-a", "net-b"))))
    return m.east_west_gateway("istio-system/edge", f"203.0.113.{number}", network=draw(st.sampled_from(("net-b", ""))))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from((*CLUSTERS[:1] * 3, *CLUSTERS)),
        st.one_of(ingresses(), others(), others()),
        st.sampled_from((False, False, True)),
    ),
    max_size=30,
)


def world() -> World:
    world = World()
    world.now = c.NOW.timestamp()
    world.ask(*VIEWS)
    for cluster in CLUSTERS:
        world.cluster(cluster)
        world.apply(cluster, *(m.namespace(place) for place in PLACES))
    return world


@settings(max_examples=50, deadline=None)
@given(EVENTS, st.integers(1, 50))
def test_any_events_in_any_slices_give_the_bytes_of_a_build_from_scratch(events: list[Any], steps: int) -> None:
    lived = world()
    lived.step(steps=steps)
    for cluster, manifest, deleted in events:
        if deleted:
            lived.delete(cluster, manifest)
        else:
            lived.apply(cluster, manifest)
        result = lived.step(steps=steps)
        assert not result.failures
    rebuilt = world()
    rebuilt.facts.replace(("alpha",), sorted(lived.facts.scan(("alpha",)), reverse=True))
    rebuilt.facts.replace(("beta",), sorted(lived.facts.scan(("beta",)), reverse=True))
    # Last good pairs are an input: a process that starts is given those of before.
    kept = rebuilt.graph.kept(rebuilt.pipeline.certificates)
    rebuilt.step({kept: dict(lived.published.get("certificates", {}))})
    assert lived.resources == rebuilt.resources
    assert lived.findings() == rebuilt.findings()
    assert {name: kept for name, kept in lived.published.items() if kept} == {
        name: kept for name, kept in rebuilt.published.items() if kept
    }


@settings(max_examples=50, deadline=None)
@given(EVENTS)
def test_what_gateways_are_told_holds_together(events: list[Any]) -> None:
    one = world()
    for cluster, manifest, deleted in events:
        if deleted:
            one.delete(cluster, manifest)
        else:
            one.apply(cluster, manifest)
    one.step()
    _, clusters, assignments, scopes, secrets = (one.told(view) for view in VIEWS)
    del scopes[AGAIN]
    keys = [tuple(part["string_key"] for part in scope["key"]["fragments"]) for scope in scopes.values()]
    assert len(set(keys)) == len(keys)
    named = set()
    for name, scope in scopes.items():
        assert scope["name"] == name
        (host,) = scope["route_configuration"]["virtual_hosts"]
        assert all(route["name"] for route in host["routes"])
        assert host["routes"][-1]["match"] == {"prefix": "/"}
        # One table is for one host alone: what it has no route for ends in it.
        assert host["domains"] == ["*"]
        assert host["name"] == scope["key"]["fragments"][1]["string_key"] in SCOPES
        named |= {route["route"]["cluster"] for route in host["routes"] if "route" in route}
    backends = {name for name in clusters if name.startswith("ing|")}
    assert named <= backends == set(assignments)
    redirected = {
        host["name"]
        for scope in scopes.values()
        for host in scope["route_configuration"]["virtual_hosts"]
        if host["routes"][0]["name"] == "to-https"
    }
    assert set(secrets) <= redirected
