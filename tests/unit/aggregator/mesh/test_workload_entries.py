"""What WorkloadEntries stand for: workloads that are no pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

CART = "shop/cart.shop.svc.cluster.local"
VM = "alpha/networking.istio.io/WorkloadEntry/shop/vm1"
APP = {"app": "cart"}


def cart(**more: Any) -> m.Manifest:
    return m.service("shop/cart", "10.96.0.10", **{"selector": APP, **more})


def vm(address: str = "10.9.9.9", name: str = "shop/vm1", **more: Any) -> m.Manifest:
    return m.workload_entry(name, address, **{"labels": APP, **more})


def home(*objects: m.Manifest, **settings: Any) -> World:
    """A world with only home, on net-a, with the namespace shop."""
    world = World(**settings)
    world.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"), *objects)
    world.step()
    return world


def workloads(world: World) -> list[str]:
    return sorted(name for name, one in world.addresses().items() if "workload" in one)


def ports(world: World, service: str = CART) -> Any:
    served = world.address(VM)["services"][service]
    return [(one["service_port"], one["target_port"]) for one in served.get("ports", [])]


def test_an_entry_is_told_with_everything_a_ztunnel_uses() -> None:
    made = vm(weight=3, locality="eu/eu-1", account="legacy", ports={"http": 8081})
    assert home(cart(), made).address(VM) == {
        "uid": VM,
        "name": "vm1",
        "namespace": "shop",
        "addresses": ["10.9.9.9"],
        "network": "net-a",
        "service_account": "legacy",
        "canonical_name": "cart",
        "canonical_revision": "latest",
        "workload_type": "POD",
        "workload_name": "vm1",
        "services": {CART: {"ports": [{"service_port": 80, "target_port": 8081}]}},
        "cluster_id": "alpha",
        "locality": {"region": "eu", "zone": "eu-1"},
        "capacity": 3,
    }


def test_an_entry_may_be_a_dns_name() -> None:
    told = home(vm("VM.example.net")).address(VM)
    assert told["hostname"] == "VM.example.net"
    assert "addresses" not in told


@pytest.mark.parametrize("address", ["", "unix:///run/vm", "10.0.0.300", "10.9.9.9/24", "a b"])
def test_an_address_that_cannot_be_reached_costs_its_entry_alone(address: str) -> None:
    world = home(cart(), vm(address), vm("10.9.9.8", "shop/vm2"))
    assert workloads(world) == ["alpha/networking.istio.io/WorkloadEntry/shop/vm2"]
    assert [(one.object[3], one.code, one.field) for one in world.findings()] == [
        ("vm1", "EndpointAddressInvalid", "spec.address")
    ]


def test_labels_of_the_metadata_go_over_those_of_the_spec() -> None:
    made = m.workload_entry("shop/vm1", "10.9.9.9", labels={"version": "v2"})
    made["spec"]["labels"] = {"app": "cart", "version": "v1"}
    told = home(cart(), made).address(VM)
    assert (list(told["services"]), told["canonical_revision"]) == ([CART], "v2")


def test_its_name_is_that_of_its_group_or_of_a_label_or_its_own() -> None:
    labels = {"service.istio.io/workload-name": "labelled"}
    assert home(vm()).address(VM)["workload_name"] == "vm1"
    assert home(vm(labels=labels)).address(VM)["workload_name"] == "labelled"
    grouped = vm(labels=labels, annotations={"istio.io/autoRegistrationGroup": "group"})
    assert home(grouped).address(VM)["workload_name"] == "group"


def test_tunnels_are_marked_as_on_pods() -> None:
    captured = vm(annotations={"ambient.istio.io/redirection": "enabled"})
    assert home(captured).address(VM)["tunnel_protocol"] == "HBONE"
    native = home(vm(labels={"networking.istio.io/tunnel": "http"})).address(VM)
    assert (native["tunnel_protocol"], native["native_tunnel"]) == ("HBONE", True)


def test_policies_and_waypoints_count_as_on_pods() -> None:
    world = home(
        m.authorization_policy("shop/p", selector=APP),
        m.gateway(
            "shop/wp",
            addresses=[("Hostname", "wp.shop.svc.cluster.local")],
            labels={"istio.io/waypoint-for": "workload"},
        ),
        vm(labels={**APP, "istio.io/use-waypoint": "wp"}),
    )
    told = world.address(VM)
    assert told["authorization_policies"] == ["shop/p"]
    assert told["waypoint"]["hostname"]["hostname"] == "wp.shop.svc.cluster.local"


@pytest.mark.parametrize(
    ("target", "own", "served"),
    [
        (8080, {}, [(80, 8080)]),
        (8080, {"http": 8081}, [(80, 8081)]),
        (8080, {"other": 8081}, [(80, 8080)]),
        ("web", {"web": 9090}, [(80, 9090)]),
        ("web", {"http": 9090}, []),
    ],
)
def test_of_a_kubernetes_service_it_serves_its_own_port_by_name_or_the_services(
    target: Any, own: Any, served: Any
) -> None:
    assert ports(home(cart(ports={"http": (80, target)}), vm(ports=own))) == served


@pytest.mark.parametrize(
    ("target", "own", "served"),
    [(None, {}, [(80, 80)]), (8080, {}, [(80, 8080)]), (8080, {"web": 9090}, [(80, 9090)])],
)
def test_of_a_service_entry_it_serves_its_own_port_by_name_or_the_target_or_the_number(
    target: int | None, own: Any, served: Any
) -> None:
    port = {"number": 80, "name": "web", "protocol": "HTTP", **({"targetPort": target} if target else {})}
    entry = m.service_entry("shop/se", "api.example", selector=APP, ports=[port])
    assert ports(home(entry, vm(ports=own)), "shop/api.example") == served


def test_an_entry_of_another_revision_is_not_ours() -> None:
    assert workloads(home(vm(labels={**APP, "istio.io/rev": "canary"}))) == []


def test_an_entry_of_a_namespace_that_is_not_selected_does_not_count() -> None:
    selectors = m.mesh_config_map(discoverySelectors=[{"matchLabels": {"mesh": "on"}}])
    assert workloads(home(selectors, vm())) == []


def test_a_selector_finds_pods_and_entries_alike_when_it_changes() -> None:
    world = home(cart(), vm(), m.pod("shop/cart-1", "10.1.0.5", labels=APP))
    assert [list(world.address(one)["services"]) for one in (VM, "alpha//Pod/shop/cart-1")] == [[CART], [CART]]
    world.apply("alpha", cart(selector={"app": "cart", "version": "v2"}))
    world.step()
    assert not any("services" in world.address(one) for one in (VM, "alpha//Pod/shop/cart-1"))


# Several clusters.

BETA = (
    m.namespace("istio-system", network="net-b"),
    m.namespace("shop"),
    m.east_west_gateway("istio-system/edge", "203.0.113.9", network="net-b"),
)
REACH = f"net-b/SplitHorizonWorkload/istio-system/edge/203.0.113.9/{CART}"


def test_an_entry_is_one_workload_however_many_clusters_are_on_its_network() -> None:
    world = home(cart(is_global=True), vm())
    for cluster in ("gamma", "delta"):
        world.apply(cluster, m.namespace("istio-system", network="net-a"), m.namespace("shop"), cart(is_global=True))
    world.step()
    assert workloads(world) == [VM]


def test_an_entry_in_another_network_joins_what_is_there() -> None:
    world = home(cart(is_global=True), vm(network="net-b", weight=3))
    world.apply("beta", *BETA, cart(is_global=True), m.pod("shop/cart-1", "10.2.0.5", labels=APP))
    world.step()
    assert VM not in world.addresses()
    assert world.address(REACH)["capacity"] == 4
    world.delete("alpha", vm())
    world.step()
    assert world.address(REACH)["capacity"] == 1


def test_an_entry_in_another_network_is_vouched_for_by_its_account_if_it_has_one() -> None:
    nameless = vm("10.9.9.8", "shop/vm2", network="net-b")
    world = home(cart(is_global=True), vm(network="net-b", account="legacy"), nameless)
    world.apply("beta", *BETA)
    world.step()
    assert world.address(CART)["subject_alt_names"] == ["spiffe://cluster.local/ns/shop/sa/legacy"]


@pytest.mark.parametrize(("remote_entries", "capacity"), [(False, None), (True, 2)])
def test_entries_of_other_clusters_count_only_if_asked_for(remote_entries: bool, capacity: int | None) -> None:
    world = home(cart(is_global=True), remote_entries=remote_entries)
    world.apply("beta", *BETA, cart(is_global=True), vm(weight=2))
    world.step()
    assert world.address(REACH).get("capacity") == capacity


def test_entries_of_a_cluster_that_is_lost_count_half_and_then_not_at_all() -> None:
    world = home(cart(is_global=True), remote_entries=True, stale_after=10.0, stale_ttl=20.0)
    world.apply("beta", *BETA, cart(is_global=True), vm(weight=4))
    world.step()
    world.lose("beta")
    world.wait(10.0)
    assert world.address(REACH)["capacity"] == 2
    world.wait(10.0)
    assert world.address(REACH) == {}
