"""What a pod or an endpoint of a slice is as a workload."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

CART = "shop/cart.shop.svc.cluster.local"


def home(*manifests: m.Manifest) -> World:
    """A world with only home, on net-a, with the namespace shop."""
    world = World()
    world.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"), *manifests)
    world.step()
    return world


def cart(**fields: Any) -> m.Manifest:
    """The service cart."""
    return m.service("shop/cart", "10.96.0.10", **{"selector": {"app": "cart"}, **fields})


def test_a_pod_is_told_with_everything_a_ztunnel_uses() -> None:
    pod = m.pod(
        "shop/cart-7d9f4c6b5-x2x1z",
        "10.1.0.5",
        labels={"app": "cart", "version": "v3", "pod-template-hash": "7d9f4c6b5"},
        account="cart",
        node="n1",
        metadata={
            "generateName": "cart-7d9f4c6b5-",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "cart-7d9f4c6b5", "controller": True}],
        },
    )
    world = home(cart(), m.node("n1", region="eu", zone="eu-1"), pod)
    assert world.address("alpha//Pod/shop/cart-7d9f4c6b5-x2x1z") == {
        "uid": "alpha//Pod/shop/cart-7d9f4c6b5-x2x1z",
        "name": "cart-7d9f4c6b5-x2x1z",
        "namespace": "shop",
        "addresses": ["10.1.0.5"],
        "network": "net-a",
        "tunnel_protocol": "HBONE",
        "service_account": "cart",
        "node": "n1",
        "canonical_name": "cart",
        "canonical_revision": "v3",
        "workload_type": "POD",
        "workload_name": "cart",
        "services": {CART: {"ports": [{"service_port": 80, "target_port": 8080}]}},
        "cluster_id": "alpha",
        "locality": {"region": "eu", "zone": "eu-1"},
    }


def test_a_named_target_port_is_the_containers_port_of_that_name_pod_by_pod() -> None:
    world = home(
        cart(ports={"http": (80, "web")}),
        m.pod("shop/p1", "10.1.0.1", labels={"app": "cart"}, ports={"web": 8080}),
        m.pod("shop/p2", "10.1.0.2", labels={"app": "cart"}, ports={"web": 9090}),
        m.pod("shop/p3", "10.1.0.3", labels={"app": "cart"}),
    )
    told = {name: world.address(f"alpha//Pod/shop/{name}")["services"][CART] for name in ("p1", "p2", "p3")}
    assert told == {
        "p1": {"ports": [{"service_port": 80, "target_port": 8080}]},
        "p2": {"ports": [{"service_port": 80, "target_port": 9090}]},
        "p3": {},
    }
    assert world.address(CART)["ports"] == [{"service_port": 80, "app_protocol": "HTTP11"}]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"ready": True}, None),
        ({"ready": False}, "UNHEALTHY"),
        ({"ready": True, "deleting": True}, "UNHEALTHY"),
        ({"ready": False, "phase": "Pending"}, "UNHEALTHY"),
    ],
)
def test_a_pod_is_healthy_if_it_is_ready_and_stays(fields: dict[str, Any], status: str | None) -> None:
    world = home(m.pod("shop/p", "10.1.0.1", **fields))
    assert world.address("alpha//Pod/shop/p").get("status") == status


@pytest.mark.parametrize("fields", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"ip": ()}])
def test_a_pod_that_is_finished_or_has_no_address_is_not_told(fields: dict[str, Any]) -> None:
    world = home(m.pod("shop/p", "10.1.0.1"))
    assert world.address("alpha//Pod/shop/p")
    world.apply("alpha", m.pod("shop/p", **{"ip": "10.1.0.1", **fields}))
    world.step()
    assert not world.address("alpha//Pod/shop/p")


def test_a_pod_with_an_address_that_is_none_is_withheld_with_a_finding_and_its_neighbours_are_told() -> None:
    world = home(m.pod("shop/bad", ["10.1.0.1", "10.1.0.300"]), m.pod("shop/good", "10.1.0.2"))
    assert not world.address("alpha//Pod/shop/bad")
    assert world.address("alpha//Pod/shop/good")
    (finding,) = world.findings()
    assert (finding.code, finding.field) == ("PodAddressInvalid", "status.podIPs[1]")
    world.apply("alpha", m.pod("shop/bad", ["10.1.0.1"]))
    world.step()
    assert world.findings() == []


def test_a_dual_stack_pod_is_told_with_both_addresses_in_order() -> None:
    world = home(m.pod("shop/p", ["fd00::5", "10.1.0.5"]))
    assert world.address("alpha//Pod/shop/p")["addresses"] == ["fd00::5", "10.1.0.5"]


def test_pods_on_the_host_network_may_share_an_address_and_have_no_tunnel() -> None:
    pods = [m.pod(f"shop/{name}", "10.0.0.7", host_network=True, ambient=False) for name in ("a", "b")]
    world = home(*pods)
    for name in ("a", "b"):
        told = world.address(f"alpha//Pod/shop/{name}")
        assert (told["network_mode"], told["addresses"], told.get("tunnel_protocol")) == (
            "HOST_NETWORK",
            ["10.0.0.7"],
            None,
        )


def test_a_pod_that_terminates_tunnels_itself_says_so_by_label() -> None:
    world = home(m.pod("shop/p", "10.1.0.1", labels={"networking.istio.io/tunnel": "http"}, ambient=False))
    told = world.address("alpha//Pod/shop/p")
    assert (told["tunnel_protocol"], told["native_tunnel"]) == ("HBONE", True)


def test_a_pods_own_network_label_goes_before_its_clusters() -> None:
    world = home(m.pod("shop/p", "10.1.0.1", labels={"topology.istio.io/network": "net-z"}))
    assert not world.address("alpha//Pod/shop/p")
    world.apply("alpha", m.pod("shop/p", "10.1.0.1", labels={"topology.istio.io/network": "net-a"}))
    world.step()
    assert world.address("alpha//Pod/shop/p")["network"] == "net-a"


@pytest.mark.parametrize(
    ("labels", "owner", "expected"),
    [
        ({}, ("ReplicaSet", "web-abc"), "web-abc"),
        ({"pod-template-hash": "abc"}, ("ReplicaSet", "web-abc"), "web"),
        ({"rollouts-pod-template-hash": "abc"}, ("ReplicaSet", "web-abc"), "web"),
        ({}, ("StatefulSet", "db"), "db"),
        ({}, ("Job", "report-28391234"), "report"),
        ({}, ("Job", "report-12"), "report-12"),
        ({"deploymentconfig": "dc"}, ("ReplicationController", "dc-1"), "dc"),
        ({"service.istio.io/workload-name": "named"}, ("StatefulSet", "db"), "named"),
    ],
)
def test_a_workload_is_named_after_its_controller(
    labels: dict[str, str], owner: tuple[str, str], expected: str
) -> None:
    metadata = {
        "generateName": "x-",
        "ownerReferences": [{"kind": owner[0], "name": owner[1], "controller": True}],
    }
    world = home(m.pod("shop/x-1", "10.1.0.1", labels=labels, metadata=metadata))
    assert world.address("alpha//Pod/shop/x-1")["workload_name"] == expected


def test_an_endpoint_without_a_pod_of_a_service_without_selector_is_a_workload() -> None:
    world = home(
        m.service("shop/pg", "10.96.0.11", ports={"tcp": 5432}),
        m.slice_("shop/ext-1", m.endpoint("192.0.2.7", ready=None), service="pg", ports={"tcp": 6432}),
    )
    assert world.address("alpha/discovery.k8s.io/EndpointSlice/shop/ext-1/192.0.2.7") == {
        "uid": "alpha/discovery.k8s.io/EndpointSlice/shop/ext-1/192.0.2.7",
        "name": "ext-1",
        "namespace": "shop",
        "addresses": ["192.0.2.7"],
        "network": "net-a",
        "network_mode": "HOST_NETWORK",
        "services": {"shop/pg.shop.svc.cluster.local": {"ports": [{"service_port": 5432, "target_port": 6432}]}},
        "cluster_id": "alpha",
    }


def test_a_slice_that_names_a_pod_adds_its_service_to_that_pod_and_makes_no_workload() -> None:
    world = home(
        m.service("shop/pg", "10.96.0.11", ports={"tcp": 5432}),
        m.pod("shop/p1", "10.1.0.1"),
        m.slice_("shop/ext-1", m.endpoint("10.1.0.1", pod="shop/p1"), service="pg", ports={"tcp": 5432}),
    )
    assert "shop/pg.shop.svc.cluster.local" in world.address("alpha//Pod/shop/p1")["services"]
    assert [name for name in world.addresses() if "EndpointSlice" in name] == []


def test_slices_of_a_service_with_selector_say_nothing_new() -> None:
    world = home(
        cart(),
        m.pod("shop/p1", "10.1.0.1", labels={"app": "cart"}),
        m.slice_("shop/cart-1", m.endpoint("10.1.0.1", pod="shop/p1"), m.endpoint("192.0.2.1"), service="cart"),
    )
    assert sorted(world.addresses()) == ["alpha//Pod/shop/p1", CART]


def test_one_bad_endpoint_of_a_slice_does_not_spoil_the_others() -> None:
    world = home(
        m.service("shop/pg", "10.96.0.11", ports={"tcp": 5432}),
        m.slice_("shop/x", m.endpoint("300.1.1.1"), m.endpoint("192.0.2.8"), service="pg", ports={"tcp": 5432}),
    )
    assert [name for name in world.addresses() if "EndpointSlice" in name] == [
        "alpha/discovery.k8s.io/EndpointSlice/shop/x/192.0.2.8"
    ]
    (finding,) = world.findings()
    assert (finding.code, finding.field) == ("EndpointAddressInvalid", "endpoints")
    assert "300.1.1.1" in finding.detail


def test_workloads_with_one_set_of_labels_share_what_is_said_of_all_of_them() -> None:
    pods = [m.pod(f"shop/cart-{number}", f"10.1.0.{number + 1}", labels={"app": "cart"}) for number in range(5)]
    world = home(cart(), *pods, m.pod("shop/other", "10.1.0.9", labels={"app": "cart", "version": "v2"}))
    found = world.graph.values(world.pipeline.workloads.collections[0])
    traits = {key[3]: id(one.traits) for key, one in found.items()}
    other = traits.pop("other")
    assert len(set(traits.values())) == 1
    assert other not in traits.values()
