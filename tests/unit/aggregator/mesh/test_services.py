"""What a service is as home sees it: scope, merging, ports, balancing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

ORDERS = "shop/orders.shop.svc.cluster.local"


def two(home: m.Manifest | None, *remotes: m.Manifest | None) -> World:
    """Home quay on net-q and remotes on networks of their own, with one orders Service each (None: it has none)."""
    world = World("quay")
    for number, service in enumerate((home, *remotes)):
        name = ("quay", "mesa", "fjord")[number]
        world.apply(name, m.namespace("istio-system", network=f"net-{name[0]}"), m.namespace("shop"))
        if service is not None:
            world.apply(
                name, service, m.pod("shop/orders-1", f"10.{number}.0.5", labels={"app": "orders"}, account=name)
            )
        if number:
            world.apply(
                name, m.east_west_gateway("istio-system/edge", f"198.51.100.{number}", network=f"net-{name[0]}")
            )
    world.step()
    return world


def orders(number: int, **fields: Any) -> m.Manifest:
    """The Service orders with an address of its own."""
    return m.service(
        "shop/orders", f"10.{number}0.0.11", **{"selector": {"app": "orders"}, "is_global": True, **fields}
    )


def reach(world: World, remote: str) -> dict[str, Any]:
    """The split-horizon workload of orders in a remote's network."""
    number = ("quay", "mesa", "fjord").index(remote)
    return world.address(f"net-{remote[0]}/SplitHorizonWorkload/istio-system/edge/198.51.100.{number}/{ORDERS}")


def addresses(world: World) -> list[str]:
    """Addresses of orders with their networks."""
    return [f"{one['network']} {one['address']}" for one in world.address(ORDERS).get("addresses", ())]


def test_a_service_global_in_all_clusters_has_all_addresses_and_the_identities_of_other_networks() -> None:
    world = two(orders(1), orders(2), orders(3))
    assert addresses(world) == ["net-f 10.30.0.11", "net-m 10.20.0.11", "net-q 10.10.0.11"]
    assert world.address(ORDERS)["subject_alt_names"] == [
        "spiffe://cluster.local/ns/shop/sa/fjord",
        "spiffe://cluster.local/ns/shop/sa/mesa",
    ]
    assert reach(world, "mesa")["capacity"] == reach(world, "fjord")["capacity"] == 1


def test_a_service_home_does_not_share_stays_homes_alone() -> None:
    world = two(orders(1, is_global=False), orders(2))
    assert addresses(world) == ["net-q 10.10.0.11"]
    assert not reach(world, "mesa")


def test_a_service_its_own_cluster_does_not_share_stays_there() -> None:
    world = two(orders(1), orders(2, is_global=False), orders(3))
    assert addresses(world) == ["net-f 10.30.0.11", "net-q 10.10.0.11"]
    assert not reach(world, "mesa")
    assert reach(world, "fjord")


def test_a_service_that_only_exists_elsewhere_is_told() -> None:
    world = two(None, orders(2))
    assert "net-m 10.20.0.11" in addresses(world)
    assert reach(world, "mesa")["capacity"] == 1


def test_a_remote_that_drops_the_label_is_withdrawn() -> None:
    world = two(orders(1), orders(2))
    world.apply("mesa", orders(2, is_global=False))
    world.step()
    assert addresses(world) == ["net-q 10.10.0.11"]
    assert not reach(world, "mesa")
    assert "subject_alt_names" not in world.address(ORDERS)


def test_a_namespace_makes_its_services_global_and_a_service_may_opt_out() -> None:
    world = two(None, orders(2, is_global=False))
    world.apply("mesa", m.namespace("shop", labels={"istio.io/global": "true"}))
    world.step()
    assert reach(world, "mesa")
    world.apply("mesa", orders(2, is_global=False, labels={"istio.io/global": "false"}))
    world.step()
    assert not reach(world, "mesa")


def test_scopes_of_homes_mesh_configuration_replace_the_label() -> None:
    world = two(orders(1), orders(2))
    scopes = [{"servicesSelector": {"matchLabels": {"share": "yes"}}, "scope": "GLOBAL"}]
    world.apply("quay", m.mesh_config_map(serviceScopeConfigs=scopes))
    world.step()
    assert addresses(world) == ["net-q 10.10.0.11"]
    for name, number in (("quay", 1), ("mesa", 2)):
        world.apply(name, orders(number, labels={"share": "yes"}))
    world.step()
    assert addresses(world) == ["net-m 10.20.0.11", "net-q 10.10.0.11"]


def test_ports_are_the_union_and_each_endpoint_is_offered_only_under_those_it_serves() -> None:
    world = two(orders(1, ports={"http": (80, 8080)}), orders(2, ports={"web": (90, 9090)}))
    assert [port["service_port"] for port in world.address(ORDERS)["ports"]] == [80, 90]
    assert [port["service_port"] for port in reach(world, "mesa")["services"][ORDERS]["ports"]] == [90]
    home = world.address("quay//Pod/shop/orders-1")["services"][ORDERS]["ports"]
    assert [port["service_port"] for port in home] == [80]
    (finding,) = world.findings()
    assert (finding.code, finding.object) == ("ServicePortConflict", ("quay", "Service", "shop", "orders"))
    assert "mesa has 90 web" in finding.detail
    assert "quay has 80 http" in finding.detail


def test_the_conflict_goes_when_the_ports_agree() -> None:
    world = two(orders(1), orders(2, ports={"web": (90, 9090)}))
    world.apply("mesa", orders(2))
    world.step()
    assert world.findings() == []


def test_without_a_home_object_the_oldest_remote_decides_whatever_came_first() -> None:
    older = orders(3, ports={"grpc": (80, 8080)}, created="2026-01-01T00:00:00Z")
    younger = orders(2, ports={"http": (80, 8080)}, created="2026-02-01T00:00:00Z")
    assert two(None, younger, older).address(ORDERS)["ports"][0]["app_protocol"] == "GRPC"


@pytest.mark.parametrize(
    ("fields", "annotation", "expected"),
    [
        ({}, "", None),
        ({"internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose"}, "", (["NODE"], "STRICT")),
        ({"trafficDistribution": "PreferClose"}, "", (["NETWORK", "REGION", "ZONE"], "FAILOVER")),
        ({"trafficDistribution": "PreferSameZone"}, "", (["NETWORK", "REGION", "ZONE"], "FAILOVER")),
        ({"trafficDistribution": "PreferSameNode"}, "", (["NETWORK", "REGION", "ZONE", "SUBZONE", "NODE"], "FAILOVER")),
        ({}, "prefersamenode", (["NETWORK", "REGION", "ZONE", "SUBZONE", "NODE"], "FAILOVER")),
        ({}, "Nonsense", None),
    ],
)
def test_load_balancing_follows_the_services_wishes_then_its_namespaces(
    fields: dict[str, Any], annotation: str, expected: tuple[list[str], str] | None
) -> None:
    world = two(orders(1, spec=fields))
    if annotation:
        key = "networking.istio.io/traffic-distribution"
        world.apply("quay", m.namespace("shop", annotations={key: annotation}))
        world.step()
    told = world.address(ORDERS).get("load_balancing")
    assert (told and (told["routing_preference"], told["mode"])) == expected


def test_a_service_that_publishes_unready_addresses_takes_traffic_while_unready() -> None:
    world = two(orders(1, spec={"publishNotReadyAddresses": True}))
    assert world.address(ORDERS)["load_balancing"] == {"health_policy": "ALLOW_ALL"}


def test_a_headless_service_is_told_without_addresses() -> None:
    world = two(m.service("shop/orders", None, selector={"app": "orders"}))
    assert addresses(world) == []
    assert ORDERS in world.address("quay//Pod/shop/orders-1")["services"]


def test_external_names_are_not_told() -> None:
    world = two(orders(1, spec={"type": "ExternalName", "externalName": "db.example"}))
    assert ORDERS not in world.addresses()


def test_a_cluster_ip_that_is_none_is_left_out_with_a_finding() -> None:
    world = two(m.service("shop/orders", ["10.10.0.11", "10.10.0.999"], selector={"app": "orders"}))
    assert addresses(world) == ["net-q 10.10.0.11"]
    assert [finding.code for finding in world.findings()] == ["ServiceAddressInvalid"]


@pytest.mark.parametrize(
    ("port", "protocol"),
    [
        ({"name": "http", "port": 1}, "HTTP11"),
        ({"name": "http-web", "port": 1}, "HTTP11"),
        ({"name": "http2", "port": 1}, "HTTP2"),
        ({"name": "grpc-api", "port": 1}, "GRPC"),
        ({"name": "grpc-web", "port": 1}, "HTTP11"),
        ({"name": "https", "port": 1}, "TLS"),
        ({"name": "tls-x", "port": 1}, "TLS"),
        ({"name": "tcp", "port": 1}, "TCP"),
        ({"name": "x", "port": 3306}, "TCP"),
        ({"name": "x", "port": 1}, None),
        ({"name": "tcp", "port": 1, "appProtocol": "kubernetes.io/h2c"}, "HTTP2"),
        ({"name": "tcp", "port": 1, "appProtocol": "kubernetes.io/wss"}, "TLS"),
        ({"name": "http", "port": 1, "protocol": "UDP"}, None),
    ],
)
def test_application_protocol_comes_from_app_protocol_then_name_then_number(
    port: dict[str, Any], protocol: str | None
) -> None:
    world = two(orders(1, ports={port["name"]: port}))
    assert world.address(ORDERS)["ports"][0].get("app_protocol") == protocol


def test_a_target_port_that_is_not_given_is_the_port() -> None:
    world = two(orders(1, ports={"http": 8123}))
    assert world.address(ORDERS)["ports"][0]["target_port"] == 8123


# Another cluster on home's network, whose pods home's proxies reach directly.

BESIDE = "mesa//Pod/shop/orders-1"


def beside(*objects: m.Manifest, home: list[m.Manifest], **settings: Any) -> World:
    """Quay and mesa on one network; mesa has a pod of orders and these objects, quay those of `home`."""
    world = World("quay", **settings)
    for name in ("quay", "mesa"):
        world.apply(name, m.namespace("istio-system", network="net-q"), m.namespace("shop"))
    world.apply("quay", *home)
    world.apply("mesa", m.pod("shop/orders-1", "10.1.0.5", labels={"app": "orders"}), *objects)
    world.step()
    return world


def serves(world: World, name: str = BESIDE) -> list[str]:
    return [*world.address(name).get("services", {})]


def test_pods_beside_home_serve_a_service_that_both_share() -> None:
    world = beside(orders(2), home=[orders(1)])
    assert serves(world) == [ORDERS]
    world.apply("quay", orders(1, is_global=False))
    world.step()
    assert (serves(world), addresses(world)) == ([], ["net-q 10.10.0.11"])
    world.delete("quay", orders(1))
    world.step()
    assert (serves(world), addresses(world)) == ([ORDERS], ["net-q 10.20.0.11"])


def test_slices_beside_home_serve_no_service_that_home_keeps_to_itself() -> None:
    far = orders(2, selector=None)
    endpoints = m.endpoint("192.0.2.7"), m.endpoint("10.1.0.5", pod="shop/orders-1")
    near = m.slice_("shop/orders-x", *endpoints, service="orders")
    name = "mesa/discovery.k8s.io/EndpointSlice/shop/orders-x/192.0.2.7"
    shared = beside(far, near, home=[orders(1)])
    assert serves(shared, name) == serves(shared) == [ORDERS]
    own = beside(far, near, home=[orders(1, is_global=False)])
    assert own.address(name) == {}
    assert serves(own) == []


def test_pods_beside_home_serve_no_host_that_an_entry_of_home_keeps_to_itself() -> None:
    entry = m.service_entry("shop/mine", "orders.shop.svc.cluster.local", endpoints=["192.0.2.9"])
    world = beside(orders(2), home=[entry])
    assert serves(world) == []
    assert serves(world, "quay/networking.istio.io/ServiceEntry/shop/mine/192.0.2.9") == [ORDERS]


@pytest.mark.parametrize("shared", [True, False])
def test_endpoints_of_entries_beside_home_serve_a_host_only_if_home_shares_it(shared: bool) -> None:
    def entry(address: str, *, is_global: bool) -> m.Manifest:
        return m.service_entry("shop/db", "db.example", endpoints=[address], is_global=is_global)

    far = entry("192.0.2.2", is_global=True)
    world = beside(far, home=[entry("192.0.2.1", is_global=shared)], remote_entries=True)
    name = "networking.istio.io/ServiceEntry/shop/db"
    assert serves(world, f"quay/{name}/192.0.2.1") == ["shop/db.example"]
    assert serves(world, f"mesa/{name}/192.0.2.2") == (["shop/db.example"] if shared else [])
