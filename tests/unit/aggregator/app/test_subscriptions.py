"""Which view a proxy reads of a type, and what its reading says of versions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aggregator.app.address_books import SharedBook
from aggregator.app.aggregate import Tables
from aggregator.app.subscriptions import Interest, Surroundings, TableSubscription, TableViews, mode_for, view_for
from aggregator.views import east_west_gateway, ztunnel
from aggregator.views.view import View
from tests.kit.clock import virtual_time
from xds import protos
from xds.encoded import Resource, encode, wrap
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.listener import LISTENER_TYPE
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.server.authentication import Identity
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.proxies import Proxy
from xds.session.requests import FOR_ON_DEMAND, HASHABLE_STRING, ON_DEMAND_SECRETS, SERVER_NAME_MAPPER

STOCK = FOR_ON_DEMAND | {HASHABLE_STRING}
VIEW = View("east-west", CLUSTER_TYPE, (("profile", "stock"),))


def proxy(role: str = "east-west", **fields: Any) -> Proxy:
    given: dict[str, Any] = {
        "id": "p",
        "peer": "127.0.0.1:1",
        "identity": Identity("cluster.local", "edge", "gate"),
        "role": role,
        "namespace": "edge",
        "network": "net-q",
        "cluster": "quay",
        "node": "",
        "gateway": "gate",
        "extensions": STOCK,
    }
    return Proxy(**{**given, **fields})


def resource(name: str, text: str) -> Resource:
    return wrap(CLUSTER_TYPE, name, encode(protos.envoy.config.cluster.v3.Cluster(name=text)))


def surroundings() -> Surroundings:
    tables = Tables.empty()
    authority = AuthorityInForce(CertificateAuthority.self_signed("cluster.local"))
    interest, addresses = Interest(tables, linger=60.0), SharedBook(tables, "quay")
    return Surroundings(tables, interest, authority, 3600.0, "quay", addresses)


# Views.


def test_an_east_west_gateway_reads_what_its_gateway_and_network_are_told() -> None:
    found = {type_url: view_for(proxy(), type_url) for type_url in (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE)}
    assert found == {
        LISTENER_TYPE: View(
            "east-west", LISTENER_TYPE, (("bind", "0.0.0.0"), ("gateway", "edge/gate"), ("profile", "stock"))
        ),
        CLUSTER_TYPE: VIEW,
        ASSIGNMENT_TYPE: View("east-west", ASSIGNMENT_TYPE, (("network", "net-q"), ("profile", "stock"))),
    }


def test_without_the_filter_state_of_a_stock_envoy_it_is_an_istio_proxy() -> None:
    view = view_for(proxy(extensions=frozenset()), CLUSTER_TYPE)
    assert view is not None
    assert view.feature("profile") == "istio"


@pytest.mark.parametrize(
    ("claimed", "bind"), [("127.2.0.5", "127.2.0.5"), ("::1", "::1"), ("", "0.0.0.0"), ("x|profile=istio", "0.0.0.0")]
)
def test_it_listens_where_it_says_if_that_is_an_address(claimed: str, bind: str) -> None:
    view = view_for(proxy(metadata=(("ISTHMUS_BIND", claimed),)), LISTENER_TYPE)
    assert view is not None
    assert view.feature("bind") == bind


@pytest.mark.parametrize("type_url", [ADDRESS_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE])
def test_it_has_no_view_of_other_types(type_url: str) -> None:
    assert view_for(proxy(), type_url) is None


def test_every_role_has_its_own_views() -> None:
    assert view_for(proxy("ztunnel"), ADDRESS_TYPE) == ztunnel.ADDRESSES
    assert view_for(proxy("ztunnel"), CLUSTER_TYPE) is None
    roles = {view.role for role in ("east-west", "ingress") if (view := view_for(proxy(role), CLUSTER_TYPE))}
    assert roles == {"ingress", east_west_gateway.ROLE}
    assert view_for(proxy(""), CLUSTER_TYPE) is None


def asking(mode: str) -> tuple[tuple[str, str], ...]:
    return (("ISTHMUS_INGRESS_MODE", mode),)


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        ({}, "on-demand"),
        ({"metadata": asking("compatible")}, "compatible"),
        ({"metadata": asking("neither")}, "on-demand"),
        ({"mode": "compatible"}, "compatible"),
        ({"mode": "on-demand", "metadata": asking("compatible")}, "on-demand"),
        ({"mode": "neither", "metadata": asking("compatible")}, "compatible"),
        ({"incremental": False}, "compatible"),
        ({"incremental": False, "mode": "on-demand"}, "compatible"),
        ({"extensions": STOCK - {ON_DEMAND_SECRETS}}, "compatible"),
        ({"extensions": STOCK - {SERVER_NAME_MAPPER}, "metadata": asking("on-demand")}, "compatible"),
        ({"extensions": STOCK - {"envoy.filters.http.body_size_limit"}}, "compatible"),
    ],
)
def test_an_ingress_gateway_is_served_as_it_asks_if_it_is_able_to(fields: dict[str, Any], mode: str) -> None:
    gateway = proxy("ingress", **fields)
    assert mode_for(gateway) == mode
    view = view_for(gateway, LISTENER_TYPE)
    assert view is not None
    assert view.role == ("ingress" if mode == "on-demand" else "ingress-compatible")


@pytest.mark.parametrize("mode", ["on-demand", "compatible"])
def test_routes_of_the_other_mode_are_there_for_a_gateway_that_has_changed_its_mode(mode: str) -> None:
    found = {view_for(proxy("ingress", mode=mode), type_url) for type_url in (SCOPED_ROUTE_TYPE, ROUTE_TYPE)}
    assert found == {View("ingress", SCOPED_ROUTE_TYPE), View("ingress-compatible", ROUTE_TYPE)}


@virtual_time
@pytest.mark.parametrize(("mode", "own", "others"), [("on-demand", "a", "tls|s|a"), ("compatible", "tls|s|a", "a")])
async def test_a_certificate_that_is_held_from_the_other_mode_stays_and_is_not_given(
    mode: str, own: str, others: str
) -> None:
    reading = TableViews(surroundings(), proxy("ingress", mode=mode), lambda: None).open(SECRET_TYPE)
    assert reading is not None
    assert reading.current(others, "1")
    assert not reading.current(own, "1")
    assert reading.get(others) is None
    assert not reading.known(others)
    reading.close()


@virtual_time
async def test_secrets_are_made_for_whoever_has_an_identity_and_for_nobody_else() -> None:
    views = TableViews(surroundings(), proxy(), lambda: None)
    secrets = views.open(SECRET_TYPE)
    assert secrets is not None
    assert secrets.state == "settled"
    assert secrets.get("default") is not None
    secrets.close()
    assert TableViews(surroundings(), proxy(identity=None), lambda: None).open(SECRET_TYPE) is None


# Reading.


@virtual_time
async def test_a_version_is_current_if_it_is_the_one_there_is() -> None:
    around = surroundings()
    reading = TableSubscription(around, VIEW, lambda: None)
    present = resource("a", "1")
    around.tables.resources.apply([((VIEW.name, "a"), present)])
    assert reading.current("a", present.version)
    assert not reading.current("a", resource("a", "2").version)
    assert not reading.current("b", present.version)
    reading.close()


@virtual_time
async def test_a_view_is_asked_for_while_it_is_read_and_a_while_longer() -> None:
    around = surroundings()
    interest = around.tables.interest
    first = TableSubscription(around, VIEW, lambda: None)
    second = TableSubscription(around, VIEW, lambda: None)
    assert interest.get(VIEW.key) == VIEW
    first.close()
    await asyncio.sleep(100)
    assert interest.get(VIEW.key) == VIEW
    second.close()
    await asyncio.sleep(59)
    third = TableSubscription(around, VIEW, lambda: None)
    await asyncio.sleep(59)
    third.close()
    await asyncio.sleep(59)
    assert interest.get(VIEW.key) == VIEW
    await asyncio.sleep(2)
    assert interest.get(VIEW.key) is None
