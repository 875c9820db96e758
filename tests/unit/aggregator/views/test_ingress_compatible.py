"""What ingress gateways in compatibility mode are told, as messages, and what one more host costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from aggregator.graph import Pass
from aggregator.pipeline import RESOURCES
from aggregator.traffic.hosts import Host
from aggregator.traffic.rules import Rule
from aggregator.views import ingress_gateway
from aggregator.views.ingress_compatible import ROLE, ROUTES, routes_view, view_of, virtual_host
from aggregator.views.ingress_routes import routes
from aggregator.views.view import View
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World
from xds import protos
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.backend_tls import secret_name
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.fallback import AGAIN
from xds.messages.hbone import Profile
from xds.messages.http_filters import (
    AROUND_EXT_AUTHZ,
    BASIC_AUTH,
    BODY_SIZE,
    CORS,
    CUSTOM_RESPONSE,
    EXT_AUTHZ,
    ON_DEMAND,
    PROTECTING,
    RATE_LIMIT,
    RBAC,
    STATEFUL_SESSION,
)
from xds.messages.listener import LISTENER_TYPE
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE

Json = dict[str, Any]
TYPES = (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE, ROUTE_TYPE, SECRET_TYPE)
WILD = c.host_pair("*.shop.example")


def view(type_url: str, profile: Profile = Profile.STOCK, **claims: str) -> View:
    found = view_of(type_url, lambda name: claims.get(name, ""), profile=profile)
    assert found is not None
    return found


def world_of(*manifests: m.Manifest, profile: Profile = Profile.STOCK) -> World:
    """Home quay on net-quay, with these objects, and one gateway that asks for everything."""
    world = World("quay")
    world.now = c.NOW.timestamp()
    world.ask(*(view(type_url, profile) for type_url in TYPES))
    world.apply("quay", m.namespace("istio-system", network="net-quay"), m.namespace("shop"), *manifests)
    world.step()
    return world


def secured(host: str, pair: tuple[bytes, bytes], secret: str = "") -> tuple[m.Manifest, m.Manifest]:
    name = host.replace(".", "-").replace("*", "any")
    return (
        m.ingress(f"shop/{name}", host, "orders", secret=secret or name),
        m.tls_secret(f"shop/{secret or name}", *pair),
    )


def https(world: World) -> Json:
    return world.told(view(LISTENER_TYPE))["https"]


def chains(world: World) -> list[str]:
    return sorted(chain["name"] for chain in https(world)["filter_chains"] if chain["name"] != "refused")


def chosen(world: World) -> dict[str, str]:
    """Host -> the chain that takes it."""
    exact = https(world)["filter_chain_matcher"]["matcher_tree"]["exact_match_map"]["map"]
    found = {host: then["action"]["typed_config"]["value"] for host, then in exact.items()}
    assert found.pop("__nosni__") == "refused"
    return found


def table(world: World) -> dict[str, Json]:
    """The virtual hosts by domain."""
    hosts = world.told(view(ROUTE_TYPE))["default"].get("virtual_hosts", ())
    found = {domain: host for host in hosts for domain in host["domains"]}
    assert len(found) == len(hosts)
    return found


def changed(result: Pass) -> set[str]:
    """Names of what a pass changed for gateways."""
    told = result.published.get(RESOURCES, {})
    return {name for where, name in told if where.startswith(("ingress|", f"{ROLE}|"))}


# Views.


def test_routes_and_certificates_are_the_same_wherever_a_gateway_listens_and_whatever_it_is_built_with() -> None:
    for type_url in (ROUTE_TYPE, SECRET_TYPE, ASSIGNMENT_TYPE):
        assert view(type_url, ISTHMUS_BIND="127.0.0.1").features == view(type_url, Profile.ISTIO).features == ()


@pytest.mark.parametrize("type_url", [CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE])
def test_a_stock_envoy_reads_clusters_endpoints_and_scopes_where_those_on_demand_do(type_url: str) -> None:
    assert view(type_url) == ingress_gateway.view_of(type_url, lambda _: "")


def test_types_of_other_proxies_are_not_served() -> None:
    assert view_of(ADDRESS_TYPE, lambda _: "", profile=Profile.STOCK) is None


def test_filters_a_proxy_is_built_without_are_not_installed() -> None:
    found = view_of(LISTENER_TYPE, lambda _: "", profile=Profile.STOCK, lacking=("envoy.filters.http.cors",))
    assert found is not None
    world = World("quay")
    world.ask(found)
    world.apply("quay", m.namespace("istio-system", network="net-quay"))
    world.step()
    text = str(world.told(found)["http"])
    assert "envoy.filters.http.cors" not in text
    assert "envoy.filters.http.rbac" in text


# Listeners.


def test_listeners_have_the_names_and_places_of_those_on_demand_and_no_filter_that_fetches_clusters() -> None:
    world = world_of()
    other = ingress_gateway.view_of(LISTENER_TYPE, lambda _: "")
    assert other is not None
    world.ask(other)
    world.step()
    mine, theirs = world.told(view(LISTENER_TYPE)), world.told(other)
    assert {name: one.get("address") for name, one in mine.items()} == {
        name: one.get("address") for name, one in theirs.items() if name != AGAIN
    }
    assert "on_demand" not in str(mine)


def test_without_any_host_there_is_a_listener_that_hangs_up() -> None:
    world = world_of()
    assert chains(world) == []
    assert chosen(world) == {}
    assert table(world) == {}


def test_equal_certificates_are_one_chain_however_many_secrets_hold_them() -> None:
    world = world_of(*secured("b.shop.example", WILD), *secured("a.shop.example", WILD))
    assert chosen(world) == dict.fromkeys(("a.shop.example", "b.shop.example"), "tls|shop|a-shop-example")
    assert chains(world) == list(world.told(view(SECRET_TYPE))) == ["tls|shop|a-shop-example"]


def test_the_chain_names_its_certificate() -> None:
    world = world_of(*secured("a.shop.example", WILD))
    (chain,) = (one for one in https(world)["filter_chains"] if one["name"] != "refused")
    common = chain["transport_socket"]["typed_config"]["common_tls_context"]
    (named,) = common["tls_certificate_sds_secret_configs"]
    assert named["name"] == chain["name"] == "tls|shop|a-shop-example"
    assert world.told(view(SECRET_TYPE))[named["name"]]["tls_certificate"]


def test_a_renewed_certificate_changes_no_listener() -> None:
    world = world_of(*secured("a.shop.example", WILD))
    world.apply("quay", secured("a.shop.example", c.host_pair("a.shop.example"))[1])
    assert changed(world.step()) == {"tls|shop|a-shop-example"}


def test_of_two_copies_the_one_that_is_renewed_parts_from_the_other() -> None:
    world = world_of(*secured("a.shop.example", WILD), *secured("b.shop.example", WILD))
    world.apply("quay", secured("b.shop.example", c.host_pair("b.shop.example"))[1])
    world.step()
    assert chosen(world) == {
        "a.shop.example": "tls|shop|a-shop-example",
        "b.shop.example": "tls|shop|b-shop-example",
    }
    assert len(chains(world)) == 2


def test_a_host_whose_certificate_is_missing_has_no_chain_and_costs_the_others_nothing() -> None:
    world = world_of(*secured("a.shop.example", WILD), secured("b.shop.example", WILD)[0])
    assert list(chosen(world)) == ["a.shop.example"]
    assert set(table(world)) == {"a.shop.example", "b.shop.example"}


# Routes.


def test_a_virtual_host_has_the_bytes_of_the_routes_that_a_scope_has() -> None:
    host = Host("a.example", (Rule("/x", "Prefix", "ing|shop|web|80", ("q", "Ingress", "shop", "a")),), None, None)
    data = virtual_host(host).data
    assert all(route.data in data for route in routes(host))


def test_a_wildcard_host_is_for_one_label_only() -> None:
    host = Host("*.a.example", (Rule("/", "Prefix", "ing|shop|web|80", ("q", "Ingress", "shop", "a")),), None, None)
    found = protos.envoy.config.route.v3.VirtualHost.FromString(virtual_host(host).data)
    assert list(found.domains) == ["*.a.example"]
    (route,) = found.routes
    assert route.match.prefix == "/"
    (header,) = route.match.headers
    assert (header.name, header.string_match.safe_regex.regex) == (":authority", r"(?i)[^.]+\.a[.]example")


def route_of(annotations: dict[str, str], lacking: Iterable[str] = (), *, proven: bool = True) -> Json:
    """The route of an Ingress with annotations, as gateways are told it that lack filters."""
    world, asked = World("quay"), routes_view(lacking, proven=proven)
    world.ask(asked)
    world.apply("quay", m.namespace("shop"), m.ingress("shop/a", "a.example", "web", annotations=annotations))
    world.apply("quay", m.secret("shop/people", auth=b"ann:{SHA}" + b"A" * 27 + b"="))
    world.step()
    (host,) = world.told(asked)["default"]["virtual_hosts"]
    found: Json = host["routes"][-1]
    return found


PROTECTIONS: dict[str, dict[str, str]] = {
    RBAC: {"whitelist-source-range": "10.0.0.0/8"},
    RATE_LIMIT: {"limit-rps": "1"},
    BASIC_AUTH: {"auth-type": "basic", "auth-secret": "people"},
    EXT_AUTHZ: {"auth-url": "http://web.shop.svc/"},
    AROUND_EXT_AUTHZ: {"auth-url": "http://web.shop.svc/", "auth-response-headers": "x-user"},
    BODY_SIZE: {"proxy-body-size": "1m"},
}


def test_every_filter_that_protects_is_looked_at_here() -> None:
    assert PROTECTIONS.keys() == PROTECTING


@pytest.mark.parametrize("lacking", PROTECTIONS)
def test_a_path_is_closed_to_a_gateway_without_the_filter_that_protects_it(lacking: str) -> None:
    asked = PROTECTIONS[lacking]
    assert lacking in route_of(asked)["typed_per_filter_config"]
    closed = route_of(asked, (lacking,))
    assert closed["direct_response"] == {"status": 503}
    assert "typed_per_filter_config" not in closed
    assert "route" in route_of(asked, PROTECTIONS.keys() - {lacking, EXT_AUTHZ, AROUND_EXT_AUTHZ})


@pytest.mark.parametrize(
    ("lacking", "asked"),
    [
        (CORS, {"enable-cors": "true"}),
        (STATEFUL_SESSION, {"affinity": "cookie"}),
        (CUSTOM_RESPONSE, {"custom-http-errors": "404", "default-backend": "web"}),
    ],
)
def test_what_protects_nobody_is_left_out_for_a_gateway_that_does_not_have_it(
    lacking: str, asked: dict[str, str]
) -> None:
    assert lacking in route_of(asked)["typed_per_filter_config"]
    told = route_of(asked, (lacking,))
    assert "route" in told
    assert "typed_per_filter_config" not in told


def test_users_are_not_told_to_a_gateway_that_has_proven_nothing() -> None:
    asked = PROTECTIONS[BASIC_AUTH]
    assert "AAAA" in str(route_of(asked))
    assert route_of(asked, proven=False)["direct_response"] == {"status": 503}


def test_gateways_have_one_table_whatever_they_lack_of_what_is_not_installed_anyhow() -> None:
    assert routes_view((ON_DEMAND,)) == routes_view() == ROUTES


def test_what_is_shown_to_backends_is_told_in_this_mode_too() -> None:
    pair = c.host_pair("gateway.example")
    asked = {"backend-protocol": "HTTPS", "proxy-ssl-secret": "own"}
    world = world_of(
        m.ingress("shop/a", "a.example", "orders", annotations=asked),
        m.service("shop/orders"),
        m.secret("shop/own", tls_crt=pair[0], tls_key=pair[1]),
    )
    name = secret_name("pair", "shop", "own")
    assert name in str(world.told(view(CLUSTER_TYPE)))
    assert world.told(view(SECRET_TYPE))[name]["tls_certificate"]


# What a change costs.


def test_nothing_is_made_while_no_gateway_asks() -> None:
    world = World("quay")
    world.now = c.NOW.timestamp()
    world.apply("quay", m.namespace("shop"), *secured("a.shop.example", WILD))
    before = world.graph.evaluated_by.copy()
    world.step()
    made = {
        one.name
        for one, now, then in zip(world.graph.collections, world.graph.evaluated_by, before, strict=True)
        if now > then
    }
    assert not made & {"parts of routes", "parts of server names", "certificates of chains", "parts of chains"}


def test_one_more_host_runs_as_many_functions_beside_three_as_beside_three_hundred() -> None:
    evaluated = set()
    for hosts in (3, 300):
        world = world_of(*(one for number in range(hosts) for one in secured(f"h{number}.shop.example", WILD)))
        world.apply("quay", *secured("zz.shop.example", WILD))
        result = world.step()
        assert changed(result) == {"https", "default"}
        evaluated.add(result.evaluated)
    assert len(evaluated) == 1


def test_what_is_told_does_not_depend_on_the_order_of_arrival() -> None:
    objects = [one for number in range(20) for one in secured(f"h{number}.shop.example", WILD)]
    first, second = world_of(*objects), world_of()
    for one in reversed(objects):
        second.apply("quay", one)
        second.step()
    for type_url in TYPES:
        assert first.versions(view(type_url)) == second.versions(view(type_url))


def test_an_istio_proxy_has_its_own_clusters_of_tunnels_and_the_same_of_services() -> None:
    objects = (m.ingress("shop/a", "a.example", "orders"), m.service("shop/orders"))
    stock, istio = world_of(*objects), world_of(*objects, profile=Profile.ISTIO)
    ours, theirs = stock.told(view(CLUSTER_TYPE)), istio.told(view(CLUSTER_TYPE, Profile.ISTIO))
    assert ours.keys() == theirs.keys()
    assert ours["ing|shop|orders|80"] == theirs["ing|shop|orders|80"]
    assert "sds-grpc" in str(theirs["connect_originate"])
    assert "sds-grpc" not in str(ours)
