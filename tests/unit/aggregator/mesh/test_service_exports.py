"""What ServiceExports of all clusters come to, and what ztunnels are told of it (the rules of KEP-1645)."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.mesh.service_exports import Exported, merged
from tests.kit import manifests as m
from tests.kit.world import World
from watchers.facts.multicluster import ImportPort

CART = "shop/cart.shop.svc.clusterset.local"
OWN = "shop/cart.shop.svc.cluster.local"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
APP = {"app": "cart"}
HTTP, DNS = ImportPort("http", 80, "TCP", ""), ImportPort("dns", 53, "UDP", "")


def export(cluster: str, created: str = OLD, *ports: ImportPort, **fields: Any) -> Exported:
    own: dict[str, Any] = {
        "headless": False,
        "affinity": ("None", 0),
        "internal_traffic_policy": "Cluster",
        "traffic_distribution": "",
        "families": ("IPv4",),
        "labels": (),
        "annotations": (),
    }
    return Exported(
        cluster=cluster, namespace="shop", name="cart", created=created, ports=ports or (HTTP,), **{**own, **fields}
    )


def reasons(*exports: Exported) -> list[str]:
    return [one.reason for one in merged(exports).conflicts]


# Merging.


def test_exports_that_agree_do_not_conflict() -> None:
    assert reasons(export("alpha"), export("beta", NEW)) == []


def test_ports_are_the_union_and_their_difference_is_a_conflict() -> None:
    found = merged([export("beta", NEW, HTTP, DNS), export("alpha", OLD, HTTP)])
    assert found.ports == (HTTP, DNS)
    assert reasons(export("alpha", OLD, HTTP), export("beta", NEW, HTTP, DNS)) == ["PortConflict"]


@pytest.mark.parametrize(
    "other",
    [ImportPort("http", 8080, "TCP", ""), ImportPort("web", 80, "TCP", ""), ImportPort("http", 80, "TCP", "h2c")],
)
def test_of_ports_that_collide_the_oldest_exports_stands(other: ImportPort) -> None:
    assert merged([export("alpha", NEW, other), export("beta", OLD, HTTP)]).ports == (HTTP,)
    assert reasons(export("alpha", NEW, other), export("beta", OLD, HTTP)) == ["PortConflict"]


def test_one_number_for_tcp_and_udp_does_not_collide() -> None:
    both = (HTTP, ImportPort("quic", 80, "UDP", ""))
    assert merged([export("alpha", OLD, *both)]).ports == both
    assert merged([export("alpha", OLD, HTTP), export("beta", NEW, both[1])]).ports == both


def test_the_order_of_ports_is_no_conflict() -> None:
    assert reasons(export("alpha", OLD, HTTP, DNS), export("beta", NEW, DNS, HTTP)) == []


CONFLICTS = [
    ("TypeConflict", {"headless": True}),
    ("SessionAffinityConflict", {"affinity": ("ClientIP", 10800)}),
    ("InternalTrafficPolicyConflict", {"internal_traffic_policy": "Local"}),
    ("TrafficDistributionConflict", {"traffic_distribution": "PreferClose"}),
    ("LabelsConflict", {"labels": (("tier", "front"),)}),
    ("AnnotationsConflict", {"annotations": (("note", "x"),)}),
]


@pytest.mark.parametrize(("reason", "fields"), CONFLICTS)
def test_the_oldest_export_decides_each_property(reason: str, fields: Any) -> None:
    different = export("alpha", NEW, **fields)
    found = merged([different, export("beta", OLD)])
    assert found.decided.cluster == "beta"
    assert [one.reason for one in found.conflicts] == [reason]
    assert "that of beta is used, whose export is the oldest" in found.conflicts[0].message


def test_affinities_that_hold_for_different_times_have_a_conflict_of_their_own() -> None:
    one, other = export("alpha", affinity=("ClientIP", 10)), export("beta", NEW, affinity=("ClientIP", 20))
    assert reasons(one, other) == ["SessionAffinityConfigConflict"]


def test_families_of_addresses_are_each_clusters_own_business() -> None:
    assert reasons(export("alpha"), export("beta", NEW, families=("IPv4", "IPv6"))) == []


def test_of_exports_of_one_age_the_first_cluster_by_name_decides() -> None:
    assert merged([export("beta"), export("alpha")]).decided.cluster == "alpha"


# What ztunnels are told.


def two_networks(**settings: Any) -> World:
    world = World(**settings)
    for number, cluster in enumerate(("alpha", "beta"), start=1):
        world.apply(cluster, m.namespace("istio-system", network=f"net{number}"), m.namespace("shop"))
        world.apply(cluster, m.service("shop/cart", f"10.{number}.0.1", selector=APP))
        world.apply(cluster, m.pod("shop/cart-1", f"10.{number}.1.1", labels=APP))
    world.apply("beta", m.east_west_gateway("istio-system/istio-eastwestgateway", "192.0.2.20", network="net2"))
    return world


def told(world: World, name: str = CART) -> Any:
    world.step()
    return world.address(name)


def addresses(service: Any) -> list[str]:
    return [f"{one['network']}/{one['address']}" for one in service.get("addresses", ())]


def serves(world: World, name: str) -> list[str]:
    return sorted(world.address(name).get("services", {}))


def split(world: World, service: str = CART) -> Any:
    return world.address(f"net2/SplitHorizonWorkload/istio-system/istio-eastwestgateway/192.0.2.20/{service}")


def test_an_exported_service_has_a_name_in_the_cluster_set_with_an_address_of_its_own() -> None:
    world = two_networks()
    world.apply("alpha", m.service_export("shop/cart"))
    service = told(world)
    assert service["hostname"] == "cart.shop.svc.clusterset.local"
    (address,) = addresses(service)
    assert address.startswith("net1/240.240.")
    assert serves(world, "alpha//Pod/shop/cart-1") == [OWN, CART]


def test_only_clusters_that_export_a_service_take_part_in_its_name_of_the_cluster_set() -> None:
    world = two_networks()
    world.apply("beta", m.service_export("shop/cart"))
    assert told(world)["ports"]
    assert serves(world, "alpha//Pod/shop/cart-1") == [OWN]
    assert split(world)["capacity"] == 1


def test_without_exports_there_is_no_such_name() -> None:
    world = two_networks()
    world.apply("alpha", m.service("shop/cart", "10.1.0.1", selector=APP, is_global=True))
    assert told(world) == {}


def test_an_export_that_goes_takes_the_endpoints_of_its_cluster_along() -> None:
    world = two_networks()
    world.apply("alpha", m.service_export("shop/cart"))
    world.apply("beta", m.service_export("shop/cart"))
    assert told(world)
    assert split(world)
    world.delete("beta", m.service_export("shop/cart"))
    assert told(world)
    assert split(world) == {}
    world.delete("alpha", m.service_export("shop/cart"))
    assert told(world) == {}


def test_an_export_makes_the_service_global_under_its_own_name_too() -> None:
    world = two_networks()
    for cluster in ("alpha", "beta"):
        world.apply(cluster, m.service_export("shop/cart"))
    assert addresses(told(world, OWN)) == ["net1/10.1.0.1", "net2/10.2.0.1"]
    assert split(world, OWN)["capacity"] == 1


def test_or_leaves_that_name_to_each_cluster_where_so_decided() -> None:
    world = two_networks(export_clusterset_only=True)
    for cluster in ("alpha", "beta"):
        world.apply(cluster, m.service_export("shop/cart"))
    assert addresses(told(world, OWN)) == ["net1/10.1.0.1"]
    assert split(world, OWN) == {}
    assert split(world)["capacity"] == 1
    assert serves(world, "alpha//Pod/shop/cart-1") == [OWN, CART]


def test_the_oldest_export_decides_the_ports_and_others_add_theirs() -> None:
    world = two_networks(export_clusterset_only=True)
    ports = {"web": 80, "http": 90, "more": 100}
    world.apply("alpha", m.service("shop/cart", "10.1.0.1", selector=APP, ports=ports))
    world.apply("alpha", m.service_export("shop/cart", created=NEW))
    world.apply("beta", m.service_export("shop/cart", created=OLD))
    assert [one["service_port"] for one in told(world)["ports"]] == [80, 100]
    assert [(one.object[:2], one.code) for one in world.findings()] == [
        (("alpha", "ServiceExport"), "ExportsDiffer"),
        (("beta", "ServiceExport"), "ExportsDiffer"),
    ]


def test_the_domain_is_a_setting() -> None:
    world = two_networks(clusterset_domain="set.example")
    world.apply("alpha", m.service_export("shop/cart"))
    assert told(world, "shop/cart.shop.svc.set.example")["hostname"] == "cart.shop.svc.set.example"


def test_a_headless_service_at_home_has_no_address() -> None:
    world = two_networks()
    world.apply("alpha", m.service("shop/cart", None, selector=APP), m.service_export("shop/cart"))
    assert "addresses" not in told(world)
    assert serves(world, "alpha//Pod/shop/cart-1") == [OWN, CART]


def test_a_headless_service_of_other_networks_has_one_since_its_pods_cannot_be_reached_one_by_one() -> None:
    world = two_networks()
    world.apply("beta", m.service("shop/cart", None, selector=APP), m.service_export("shop/cart"))
    assert {one.split("/")[0] for one in addresses(told(world))} == {"net1"}


def test_what_is_no_service_of_the_cluster_cannot_be_exported() -> None:
    world = two_networks()
    spec = {"type": "ExternalName", "externalName": "cart.example"}
    world.apply("alpha", m.service("shop/cart", spec=spec), m.service_export("shop/cart"))
    world.apply("alpha", m.service_export("shop/missing"))
    assert told(world) == {}
    assert told(world, "shop/missing.shop.svc.clusterset.local") == {}
    assert [(one.object[3], one.code) for one in world.findings()] == [
        ("cart", "ExportOfExternalName"),
        ("missing", "ExportWithoutService"),
    ]


def test_a_service_without_selector_is_exported_with_the_endpoints_of_its_slices() -> None:
    world = two_networks()
    world.apply("alpha", m.service("shop/cart", "10.1.0.1"), m.service_export("shop/cart"))
    world.apply("alpha", m.slice_("shop/cart-x", m.endpoint("10.9.0.1"), service="cart"))
    world.step()
    assert serves(world, "alpha/discovery.k8s.io/EndpointSlice/shop/cart-x/10.9.0.1") == [OWN, CART]


def test_an_address_that_was_given_before_stays() -> None:
    world = two_networks()
    world.apply("alpha", m.service_export("shop/cart"))
    document = m.service_import("shop/cart", "240.240.77.7")
    owned = {**document["metadata"], "managedFields": [{"manager": "isthmus", "operation": "Apply"}]}
    world.apply("alpha", {**document, "metadata": owned})
    assert addresses(told(world)) == ["net1/240.240.77.7"]


def test_gateways_of_home_let_others_in_under_its_name_of_the_cluster_set() -> None:
    world = two_networks(export_clusterset_only=True)
    world.apply("alpha", m.service_export("shop/cart"))
    world.step()
    assert set(world.graph.values(world.pipeline.exposed.ports)) == {"cart.shop.svc.clusterset.local:80"}


def test_a_namespace_that_is_not_selected_exports_nothing() -> None:
    world = two_networks()
    world.apply("alpha", m.service_export("shop/cart"))
    world.apply("alpha", m.mesh_config_map(discoverySelectors=[{"matchLabels": {"mesh": "on"}}]))
    assert told(world) == {}


def test_a_service_entry_does_not_take_a_name_of_the_cluster_set_from_who_exports_it() -> None:
    world = two_networks()
    world.apply("beta", m.service_export("shop/cart"))
    world.apply("alpha", m.service_entry("shop/mine", "cart.shop.svc.clusterset.local", addresses=["192.0.2.99"]))
    assert addresses(told(world))[0].startswith("net1/240.240.")


def test_the_order_of_events_does_not_matter() -> None:
    objects = [
        ("alpha", m.service_export("shop/cart", created=NEW)),
        ("beta", m.service_export("shop/cart", created=OLD)),
        ("beta", m.service("shop/cart", "10.2.0.1", selector=APP, ports={"grpc": 90, "http": 80})),
    ]
    outcomes = []
    for order in (objects, objects[::-1]):
        world = two_networks()
        for cluster, manifest in order:
            world.apply(cluster, manifest)
            world.step()
        outcomes.append(world.versions())
    assert outcomes[0] == outcomes[1]
