"""Any order of events gives ingress gateways the bytes of building from scratch; and a last good certificate stays."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.views import ingress_compatible
from aggregator.views.ingress_gateway import view_of
from aggregator.views.view import View
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import World
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.fallback import AGAIN
from xds.messages.hbone import Profile
from xds.messages.listener import LISTENER_TYPE
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE

CLUSTERS = ("alpha", "beta")
HOSTS = ("a.example", "b.example", "A.example.", "*.example", "")
SCOPES = ("a.example", "b.example", "*.example", "*")
"""Keys of the scopes that these hosts have."""
PATHS = ("/", "/x", "/x/", "/x/y", "/x(/|$)(.*)", "/x(")
NAMES = ("one", "two")
PLACES = ("shop", "crew")
PORTS: tuple[dict[str, int | tuple[int, int | str] | m.Fields], ...] = (
    {"http": (80, 8080)},
    {"grpc": (80, "web")},
    {"http": (81, 8080)},
)
ANNOTATIONS: tuple[m.Fields, ...] = (
    {},
    {},
    {"nginx.ingress.kubernetes.io/use-regex": "true"},
    {"kubernetes.io/ingress.class": "edge"},
    {"isthmus.io/auth-tls-secret": "shop/one"},
    {"isthmus.io/auth-tls-secret": "two", "isthmus.io/auth-tls-match-cn": "CN=a"},
    {"isthmus.io/auth-tls-secret": "one", "isthmus.io/auth-tls-verify-client": "never"},
    {"isthmus.io/ssl-passthrough": "true"},
    {"isthmus.io/tls-chain": "static"},
    {"isthmus.io/tls-min-protocol-version": "TLSv1.3"},
)
ROOTS = (c.pem(c.Issuer("clients").certificate), b"none")
DATES = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
PAIRS = [c.host_pair("a.example"), c.host_pair("*.example"), c.host_pair("other.example")]
PAIRS.append((PAIRS[0][0], PAIRS[1][1]))
VIEWS: list[View] = [
    view
    for type_url in (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE)
    if (view := view_of(type_url, lambda _: ""))
]
COMPATIBLE: dict[str, View] = {
    type_url: view
    for type_url in (LISTENER_TYPE, ROUTE_TYPE, SECRET_TYPE)
    if (view := ingress_compatible.view_of(type_url, lambda _: "", profile=Profile.STOCK))
}


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
    made = m.ingress(
        f"{draw(st.sampled_from(PLACES))}/{draw(st.sampled_from(NAMES))}",
        rules=rules,
        created=draw(st.sampled_from(DATES)),
        class_name=draw(st.sampled_from(("isthmus", "isthmus", "edge", None))),
        spec=spec,
    )
    made["metadata"]["annotations"] = draw(st.sampled_from(ANNOTATIONS))
    return made


@st.composite
def others(draw: st.DrawFn) -> Manifest:
    place, name, number = draw(st.sampled_from(PLACES)), draw(st.sampled_from(NAMES)), draw(st.integers(1, 2))
    kinds = ("class", "service", "service", "pod", "pod", "secret", "secret", "roots", "system", "gateway")
    kind = draw(st.sampled_from(kinds))
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
    if kind == "roots":
        return m.secret(f"{place}/{name}", ca_crt=draw(st.sampled_from(ROOTS)))
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
    world.ask(*VIEWS, *COMPATIBLE.values())
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
    of_hosts = rebuilt.graph.kept(rebuilt.pipeline.hosts.last_good)
    bundles = rebuilt.graph.kept(rebuilt.pipeline.bundles)
    rebuilt.step(
        {
            bundles: dict(lived.published.get("trust bundles", {})),
            kept: dict(lived.published.get("certificates", {})),
            of_hosts: dict(lived.published.get("certificates for hosts", {})),
        }
    )
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
    listeners, clusters, assignments, scopes, secrets = (one.told(view) for view in VIEWS)
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
    compatible = {type_url: one.told(view) for type_url, view in COMPATIBLE.items()}
    https = compatible[LISTENER_TYPE]["https"]
    chains = {chain["name"] for chain in https["filter_chains"]}
    shown = https["filter_chain_matcher"]["matcher_tree"]["exact_match_map"]["map"]
    chosen = {host: then["action"]["typed_config"]["value"] for host, then in shown.items()}
    assert set(chosen.values()) == chains
    assert chains - {"refused"} == set(compatible[SECRET_TYPE])
    # Hosts with TLS settings of their own are refused there, and wildcards are in another part of the matcher.
    apart = {
        scope["key"]["fragments"][1]["string_key"]
        for scope in scopes.values()
        if scope["route_configuration"]["virtual_hosts"][0]["routes"][-1]["name"] == "misdirected"
    }
    told = {name for name in secrets if not name.startswith(("roots/", "*."))}
    assert {host for host, chain in chosen.items() if chain != "refused"} == told - apart
    virtual_hosts = compatible[ROUTE_TYPE]["default"].get("virtual_hosts", [])
    domains = [domain for host in virtual_hosts for domain in host["domains"]]
    assert sorted(domains) == sorted({key[1] for key in keys})
    assert named <= backends == set(assignments)
    redirected = {
        host["name"]
        for scope in scopes.values()
        for host in scope["route_configuration"]["virtual_hosts"]
        if host["routes"][0]["name"] == "to-https"
    }
    roots = {name for name in secrets if name.startswith("roots/")}
    assert set(secrets) - roots <= redirected
    https = listeners["https"]
    of_class = {chain["name"]: chain for chain in https["filter_chains"]}
    assert len(of_class) == len(https["filter_chains"])
    by_name = https["filter_chain_matcher"]["on_no_match"]["matcher"]["matcher_tree"]["custom_match"]["typed_config"]
    sent = {
        host: match["on_match"]["action"]["typed_config"]["value"]
        for match in by_name["domain_matchers"]
        for host in match["domains"]
    }
    assert len(sent) == sum(len(match["domains"]) for match in by_name["domain_matchers"])
    assert set(sent.values()) <= {*of_class, "refused"}
    text = str(https)
    assert {name for name in clusters if f"'cluster': '{name}'" in text} <= backends
    assert {name.strip("'") for name in re.findall(r"'roots/[^']*'", text)} <= roots
