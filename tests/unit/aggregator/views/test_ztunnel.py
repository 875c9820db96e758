"""What ztunnels are told, type by type, and what is tied to what."""

from __future__ import annotations

from typing import Any

from aggregator.views import ztunnel
from tests.kit import manifests as m
from tests.kit.world import World
from xds.encoded import ADMITS_ALL, ADMITS_HEALTHY

CART = "shop/cart.shop.svc.cluster.local"
POD = "alpha//Pod/shop/cart-1"


def shop(**spec: Any) -> World:
    world = World("alpha")
    world.apply(
        "alpha",
        m.namespace("istio-system", network="net-a"),
        m.namespace("shop"),
        m.service("shop/cart", "10.96.0.1", selector={"app": "cart"}, spec=spec),
        m.pod("shop/cart-1", "10.1.0.1", labels={"app": "cart"}),
        m.pod("shop/alone", "10.1.0.2"),
    )
    return world


def test_the_type_workload_has_the_workloads_among_the_addresses_under_the_same_versions() -> None:
    world = shop()
    world.ask(ztunnel.WORKLOADS)
    world.step()
    addresses = world.addresses()
    workloads = {name: one["workload"] for name, one in addresses.items() if "workload" in one}
    bare = world.told(ztunnel.WORKLOADS)
    assert len(workloads) == 2
    assert {name: {key: one[key] for key in one if key != "@type"} for name, one in bare.items()} == workloads
    assert {name: world.versions()[name] for name in workloads} == world.versions(ztunnel.WORKLOADS)


def test_the_type_workload_costs_nothing_unless_somebody_asks_for_it() -> None:
    world = shop()
    world.step()
    assert {view for view, _ in world.resources} == {ztunnel.ADDRESSES.name}


def test_a_workload_joins_the_services_it_is_an_endpoint_of_and_these_say_whom_they_admit() -> None:
    world = shop()
    world.step()
    view = ztunnel.ADDRESSES.name
    assert world.resources[view, POD].ties.joins == (CART,)
    assert world.resources[view, "alpha//Pod/shop/alone"].ties.joins == ()
    assert world.resources[view, CART].ties.admits == ADMITS_HEALTHY
    world.apply(
        "alpha",
        m.service("shop/cart", "10.96.0.1", selector={"app": "cart"}, spec={"publishNotReadyAddresses": True}),
    )
    world.step()
    assert world.resources[view, CART].ties.admits == ADMITS_ALL


def test_in_a_split_answer_what_may_not_be_admitted_comes_after_its_service() -> None:
    world = shop()
    world.apply("alpha", m.pod("shop/cart-2", "10.1.0.3", labels={"app": "cart"}, ready=False))
    world.step()
    view = ztunnel.ADDRESSES.name
    ranks = [world.resources[view, name].ties.rank for name in (CART, POD, "alpha//Pod/shop/cart-2")]
    assert ranks == sorted(set(ranks))
