"""Which addresses Ingresses show, and which are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests
from tests.kit.manifests import Manifest
from tests.unit.aggregator.writes.told import ToldWorld

FRONT = ("istio-system", "gateway")


def front(*addresses: str) -> Manifest:
    """The Service in front of the gateway."""
    service = manifests.service("istio-system/gateway", "10.0.0.1")
    entries = [{"hostname" if address.isalpha() else "ip": address} for address in addresses]
    return {**service, "status": {"loadBalancer": {"ingress": entries}}}


def ingress(name: str = "cart", class_name: str = "isthmus", **metadata: Any) -> Manifest:
    document = manifests.ingress(f"shop/{name}", f"{name}.example", "cart")
    document["spec"]["ingressClassName"] = class_name
    return document


def shown(world: ToldWorld, name: str = "cart") -> list[str]:
    balancer = world.status("Ingress", f"shop/{name}").get("loadBalancer") or {}
    return [one.get("ip") or one.get("hostname") for one in balancer.get("ingress") or ()]


def world(**settings: Any) -> ToldWorld:
    return ToldWorld(**{"ingress_service": FRONT, **settings})


def test_an_ingress_shows_the_addresses_of_the_service_in_front_of_its_gateway() -> None:
    told = world()
    told.apply(front("192.0.2.9", "balancer"), ingress())
    assert told.settle() == [("alpha", "Ingress", "shop", "cart", "status")]
    assert shown(told) == ["192.0.2.9", "balancer"]


def test_addresses_of_the_settings_are_shown_beside_and_alone() -> None:
    beside, alone = world(ingress_addresses=("198.51.100.1",)), ToldWorld(ingress_addresses=("lb.example.com",))
    beside.apply(front("192.0.2.9"), ingress())
    alone.apply(ingress())
    beside.settle()
    alone.settle()
    assert shown(beside) == ["192.0.2.9", "198.51.100.1"]
    assert shown(alone) == ["lb.example.com"]


def test_what_is_shown_already_is_not_written_by_a_process_that_has_just_started() -> None:
    told = world()
    told.apply(front("192.0.2.9"), ingress())
    told.settle()
    again = world()
    again.store = told.store
    for kind, name in (("Service", FRONT), ("Ingress", ("shop", "cart"))):
        again._see(kind, name)
    assert again.writes() == {}


def test_addresses_that_move_are_written_anew() -> None:
    told = world()
    told.apply(front("192.0.2.9"), ingress())
    told.settle()
    told.apply(front("192.0.2.10"))
    assert len(told.settle()) == 1
    assert shown(told) == ["192.0.2.10"]


def test_while_the_service_has_no_address_what_is_shown_stays() -> None:
    told = world()
    told.apply(front("192.0.2.9"), ingress())
    told.settle()
    told.apply(front(), ingress("new"))
    assert told.settle() == []
    assert (shown(told), shown(told, "new")) == (["192.0.2.9"], [])


def test_an_ingress_of_another_class_is_left_alone() -> None:
    told = world()
    other = {**ingress(class_name="nginx"), "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}}
    told.apply(front("192.0.2.9"), other)
    assert told.settle() == []
    assert shown(told) == ["203.0.113.1"]


def test_an_ingress_that_is_ours_no_more_loses_what_we_wrote() -> None:
    told = world()
    told.apply(front("192.0.2.9"), ingress())
    told.settle()
    told.apply(ingress(class_name="nginx"))
    assert len(told.settle()) == 1
    assert shown(told) == []
    assert told.settle() == []


def test_where_the_settings_name_nothing_any_more_what_we_wrote_is_taken_back() -> None:
    told = world()
    told.apply(front("192.0.2.9"), ingress())
    told.settle()
    off = ToldWorld()
    off.store = told.store
    off._see("Ingress", ("shop", "cart"))
    assert len(off.settle()) == 1
    assert shown(off) == []


@pytest.mark.parametrize("state", ["connecting", "syncing", "stale"])
def test_nothing_is_written_on_the_strength_of_a_cluster_that_is_not_known(state: str) -> None:
    told = world()
    told.apply(front("192.0.2.9"), ingress(), ingress("other", "nginx"))
    told.world.cluster("alpha", state)
    assert told.writes() == {}
    told.world.cluster("alpha")
    assert len(told.settle()) == 1


def test_a_class_that_is_read_later_than_its_ingress_is_no_reason_to_take_anything_back() -> None:
    told = world()
    told.apply(front("192.0.2.9"), manifests.ingress_class("edge", "isthmus.dev/ingress-controller"))
    told.apply(ingress(class_name="edge"))
    told.settle()
    again = world()
    again.store = told.store
    again.world.cluster("alpha", "syncing")
    again._see("Ingress", ("shop", "cart"))
    assert again.writes() == {}
    again._see("IngressClass", ("", "edge"))
    again._see("Service", FRONT)
    again.world.cluster("alpha")
    assert again.writes() == {}


def test_istios_ingresses_are_told_only_in_istios_place() -> None:
    classes = manifests.ingress_class("istio", "istio.io/ingress-controller")
    for in_its_place in (False, True):
        told = world(istio_classes=in_its_place)
        told.apply(front("192.0.2.9"), classes, ingress(class_name="istio"))
        assert len(told.settle()) == in_its_place


def test_ingresses_of_remote_clusters_are_never_written() -> None:
    told = world()
    told.apply(front("192.0.2.9"))
    told.world.apply("beta", ingress())
    assert told.writes() == {}
