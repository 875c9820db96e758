"""A cluster whose identities are of another trust domain than home's: who is expected there, and who is let in."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.views import east_west_gateway, ingress_gateway
from tests.kit import manifests as m
from tests.kit.world import World
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.hbone import Profile
from xds.messages.listener import LISTENER_TYPE

CART = "shop/cart.shop.svc.cluster.local"
GATEWAY = "NetworkGateway/net-b/203.0.113.9/0"
OWN, THEIRS = "cluster.local", "harbour.example"

INGRESS = [ingress_gateway.view_of(one, lambda _: "") for one in (CLUSTER_TYPE, ASSIGNMENT_TYPE)]


def east_west() -> Any:
    return east_west_gateway.view_of(
        LISTENER_TYPE, network="net-a", profile=Profile.STOCK, gateway="edge/gate", bind="0.0.0.0"
    )


def cart(address: str, **fields: Any) -> m.Manifest:
    return m.service("shop/cart", address, **{"selector": {"app": "cart"}, "is_global": True, **fields})


def world(*beta: m.Manifest, network: str = "net-b", trust_domain: str = THEIRS) -> World:
    """Home alpha on net-a, and beta, registered with that trust domain, with a gateway and a pod of cart."""
    made = World()
    made.ask(*[view for view in INGRESS if view], east_west())
    made.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"), cart("10.96.0.1"))
    made.apply("alpha", m.east_west_gateway("edge/gate", "198.51.100.1", network="net-a"))
    made.apply("alpha", m.ingress("shop/web", "web.example", "cart"))
    made.apply("alpha", m.pod("shop/cart-0", "10.1.0.9", labels={"app": "cart"}, account="near"))
    made.cluster("beta", trust_domain=trust_domain)
    made.apply(
        "beta",
        m.namespace("istio-system", network=network),
        m.namespace("shop"),
        cart("10.97.0.1"),
        m.pod("shop/cart-1", "10.2.0.1", labels={"app": "cart"}, account="cart"),
        m.east_west_gateway("istio-system/edge", "203.0.113.9", network=network),
        *beta,
    )
    made.step()
    return made


def prefixes(document: dict[str, Any]) -> list[str]:
    """The identities that a transport socket takes, by how they begin."""
    context = document["transport_socket"]["typed_config"]["common_tls_context"]
    peers = context["combined_validation_context"]["default_validation_context"]["match_typed_subject_alt_names"]
    return [one["matcher"]["prefix"] for one in peers]


def test_those_who_answer_for_a_service_there_are_of_the_clusters_trust_domain() -> None:
    assert world().address(CART)["subject_alt_names"] == [f"spiffe://{THEIRS}/ns/shop/sa/cart"]


def test_without_one_of_its_own_they_are_of_homes() -> None:
    assert world(trust_domain="").address(CART)["subject_alt_names"] == [f"spiffe://{OWN}/ns/shop/sa/cart"]


def test_a_gateway_there_is_of_the_clusters_trust_domain() -> None:
    assert world().address(GATEWAY)["trust_domain"] == THEIRS
    assert "trust_domain" not in world(trust_domain="").address(GATEWAY)


def test_a_waypoint_that_answers_there_is_of_the_clusters_trust_domain() -> None:
    labels = {"istio.io/use-waypoint": "way"}
    made = world(cart("10.97.0.1", labels=labels), m.gateway("shop/way", addresses=["10.97.0.9"]))
    assert f"spiffe://{THEIRS}/ns/shop/sa/way" in made.address(CART)["subject_alt_names"]


def test_a_workload_of_that_cluster_in_homes_network_is_of_its_trust_domain() -> None:
    made = world(network="net-a")
    assert made.address("beta//Pod/shop/cart-1")["trust_domain"] == THEIRS
    assert "trust_domain" not in made.address("alpha//Pod/shop/cart-0")


def test_ingress_gateways_expect_the_identities_of_where_they_go() -> None:
    made = world()
    (told,) = made.told(INGRESS[1]).values()  # type: ignore[arg-type]
    text = str(told)
    assert f"spiffe://{OWN}/ns/shop/sa/near" in text
    assert f"spiffe://{THEIRS}/ns/shop/sa/cart" in text
    assert f"spiffe://{THEIRS}/ns/istio-system/sa/edge" in text
    assert f"spiffe://{OWN}/ns/istio-system" not in text


def test_gateways_take_peers_of_all_trust_domains_and_of_no_others() -> None:
    made = world()
    both = [f"spiffe://{OWN}/", f"spiffe://{THEIRS}/"]
    listener = made.told(east_west())["connect_terminate"]
    assert prefixes(listener["filter_chains"][0]) == both
    assert prefixes(made.told(INGRESS[0])["connect_originate"]) == both  # type: ignore[arg-type]


def test_a_trust_domain_goes_with_the_last_cluster_that_has_it() -> None:
    made = world()
    made.leave("beta")
    made.step()
    assert prefixes(made.told(east_west())["connect_terminate"]["filter_chains"][0]) == [f"spiffe://{OWN}/"]


@pytest.mark.parametrize("first", [OWN, THEIRS])
def test_a_registration_that_names_another_one_changes_whom_is_expected(first: str) -> None:
    made = world(trust_domain=first)
    made.cluster("beta", trust_domain="other.example")
    made.step()
    assert made.address(CART)["subject_alt_names"] == ["spiffe://other.example/ns/shop/sa/cart"]
    assert made.address(GATEWAY)["trust_domain"] == "other.example"
