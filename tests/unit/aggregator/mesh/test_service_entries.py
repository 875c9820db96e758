"""What ServiceEntries declare: services under names of their own, and where they are served."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

DB = "shop/db.example.com"
UID = "alpha/networking.istio.io/ServiceEntry/shop/db"
TCP = {"number": 3306, "name": "tcp", "protocol": "TCP", "targetPort": 3307}
FIRST, SECOND = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def home(*objects: m.Manifest, **settings: Any) -> World:
    """A world with only home, on net-a, with the namespace shop."""
    world = World(**settings)
    world.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"), *objects)
    world.step()
    return world


def entry(name: str = "shop/db", *hosts: str, **more: Any) -> m.Manifest:
    """An entry with an address of its own, unless it is told otherwise."""
    return m.service_entry(name, *(hosts or ("db.example.com",)), **{"addresses": ["240.1.2.3"], **more})


def codes(world: World) -> list[str]:
    return [finding.code for finding in world.findings()]


def workloads(world: World) -> list[str]:
    return sorted(name for name, one in world.addresses().items() if "workload" in one)


# The service.


def test_an_entry_is_a_service_for_each_of_its_hosts() -> None:
    world = home(entry("shop/db", "db.example.com", "DB2.example.com", "db.example.com", ports=[TCP]))
    assert world.address(DB) == {
        "name": "db",
        "namespace": "shop",
        "hostname": "db.example.com",
        "addresses": [{"network": "net-a", "address": "240.1.2.3"}],
        "ports": [{"service_port": 3306, "target_port": 3307, "app_protocol": "TCP"}],
        "canonical": True,
    }
    assert world.address("shop/db2.example.com")["hostname"] == "db2.example.com"


def test_ranges_are_brought_to_their_prefix() -> None:
    told = home(entry(addresses=["240.1.2.3", "10.7.9.1/16", "10.8.0.1/32", "2001:db8::7/64"])).address(DB)
    assert told["addresses"] == [
        {"network": "net-a", "address": "240.1.2.3"},
        {"network": "net-a", "address": "10.7.0.0", "length": 16},
        {"network": "net-a", "address": "10.8.0.1"},
        {"network": "net-a", "address": "2001:db8::", "length": 64},
    ]


def test_an_address_that_cannot_be_read_costs_itself_alone() -> None:
    world = home(entry(addresses=["nowhere", "240.1.2.3", "10.0.0.0/99"]))
    assert world.address(DB)["addresses"] == [{"network": "net-a", "address": "240.1.2.3"}]
    assert [(one.code, one.field) for one in world.findings()] == [
        ("ServiceAddressInvalid", "spec.addresses[0]"),
        ("ServiceAddressInvalid", "spec.addresses[2]"),
    ]


def test_without_resolution_the_client_chooses_where_to_go() -> None:
    world = home(entry("shop/wild", "*.ext.example", resolution="NONE", addresses=[]))
    told = world.address("shop/*.ext.example")
    assert told["load_balancing"] == {"mode": "PASSTHROUGH", "health_policy": "ALLOW_ALL"}
    assert "addresses" not in told
    assert workloads(world) == []


def test_otherwise_the_annotation_says_how_traffic_is_distributed() -> None:
    nearby = entry()
    nearby["metadata"]["annotations"] = {"networking.istio.io/traffic-distribution": "PreferClose"}
    balancing = home(nearby).address(DB)["load_balancing"]
    assert balancing == {"routing_preference": ["NETWORK", "REGION", "ZONE"], "mode": "FAILOVER"}


def test_the_names_that_may_answer_are_those_the_entry_gives() -> None:
    told = home(entry(subjectAltNames=["spiffe://b", "spiffe://a"])).address(DB)
    assert told["subject_alt_names"] == ["spiffe://a", "spiffe://b"]


@pytest.mark.parametrize(("revision", "theirs"), [("default", "canary"), ("canary", "default")])
def test_an_entry_of_another_revision_is_not_ours(revision: str, theirs: str) -> None:
    world = home(entry(labels={"istio.io/rev": theirs}, endpoints=["1.1.1.1"]), revision=revision)
    assert world.addresses() == {}
    assert home(entry(labels={"istio.io/rev": revision}), revision=revision).address(DB)


def test_an_entry_of_a_namespace_that_is_not_selected_does_not_count() -> None:
    selectors = m.mesh_config_map(discoverySelectors=[{"matchLabels": {"mesh": "on"}}])
    assert home(entry(endpoints=["1.1.1.1"]), selectors).addresses() == {}


# Who has a host.


def test_a_host_belongs_to_the_kubernetes_service_of_its_name() -> None:
    service = m.service("shop/cart", "10.96.0.10")
    rival = entry("shop/se", "cart.shop.svc.cluster.local", "db.example.com", endpoints=["1.1.1.1"])
    world = home(service, rival)
    cart = "shop/cart.shop.svc.cluster.local"
    assert world.address(cart)["name"] == "cart"
    listed = world.address("alpha/networking.istio.io/ServiceEntry/shop/se/1.1.1.1")["services"]
    assert list(listed) == [DB]
    assert codes(world) == ["HostClaimed"]
    world.delete("alpha", service)
    world.step()
    assert world.address(cart)["name"] == "se"
    assert codes(world) == []


def test_an_entry_that_loses_all_its_hosts_loses_its_endpoints() -> None:
    rival = entry("shop/se", "cart.shop.svc.cluster.local", endpoints=["1.1.1.1"])
    assert workloads(home(m.service("shop/cart", "10.96.0.10"), rival)) == []


def test_a_service_that_is_only_an_alias_takes_no_host() -> None:
    alias = m.service("shop/cart", spec={"type": "ExternalName", "externalName": "cart.example"})
    world = home(alias, entry("shop/se", "cart.shop.svc.cluster.local"))
    assert world.address("shop/cart.shop.svc.cluster.local")["name"] == "se"


def test_of_entries_the_oldest_has_a_host_and_the_next_one_when_it_goes() -> None:
    older = entry("shop/z", created=FIRST, endpoints=["1.1.1.1"])
    younger = entry("shop/a", created=SECOND, endpoints=["2.2.2.2"])
    world = home(younger, older)
    assert world.address(DB)["name"] == "z"
    assert workloads(world) == ["alpha/networking.istio.io/ServiceEntry/shop/z/1.1.1.1"]
    assert [(one.object[3], one.code) for one in world.findings()] == [("a", "HostClaimed")]
    world.delete("alpha", older)
    world.step()
    assert world.address(DB)["name"] == "a"
    assert workloads(world) == ["alpha/networking.istio.io/ServiceEntry/shop/a/2.2.2.2"]
    assert codes(world) == []


def test_entries_of_one_age_are_told_apart_by_name() -> None:
    assert home(entry("shop/b"), entry("shop/a")).address(DB)["name"] == "a"


def test_an_entry_of_another_revision_takes_no_host() -> None:
    theirs = entry("shop/a", created=FIRST, labels={"istio.io/rev": "canary"})
    assert home(theirs, entry("shop/b", created=SECOND)).address(DB)["name"] == "b"


def test_over_namespaces_the_oldest_is_canonical() -> None:
    older = entry("zoo/db", created=FIRST)
    world = home(m.namespace("zoo"), entry(created=SECOND), older)
    assert ("canonical" in world.address(DB), "canonical" in world.address("zoo/db.example.com")) == (False, True)
    world.delete("alpha", older)
    world.step()
    assert world.address(DB)["canonical"] is True


def test_over_namespaces_the_kubernetes_service_is_canonical() -> None:
    host = "cart.shop.svc.cluster.local"
    world = home(m.namespace("zoo"), m.service("shop/cart", "10.96.0.10"), entry("zoo/se", host, created=FIRST))
    assert world.address(f"shop/{host}")["canonical"] is True
    assert "canonical" not in world.address(f"zoo/{host}")


# Who sees it.


def visibility(default: str = "PUBLIC", **shop: str) -> m.Manifest:
    policies = [
        {"visibility": one, "matchingRules": [{"namespaceSelector": {"matchLabels": {"team": team}}}]}
        for team, one in shop.items()
    ]
    return m.mesh_config_map(serviceEntryVisibility={"defaultVisibility": default, "policies": policies})


def test_the_first_policy_for_the_namespace_says_who_sees_its_entries() -> None:
    red = m.namespace("shop", labels={"team": "red"})
    world = home(red, visibility("NONE", blue="PUBLIC", red="NAMESPACE"), entry())
    assert world.address(DB)["visibility"] == "NAMESPACE"
    world.apply("alpha", m.namespace("shop", labels={"team": "blue"}))
    world.step()
    assert "visibility" not in world.address(DB)


def test_an_entry_that_nobody_sees_is_left_out_with_its_endpoints() -> None:
    assert home(visibility("NONE"), entry(endpoints=["1.1.1.1"])).addresses() == {}


def test_what_only_its_namespace_sees_is_not_canonical_and_bars_nobody() -> None:
    hidden = entry("zoo/db", created=FIRST)
    world = home(m.namespace("zoo", labels={"team": "red"}), visibility(red="NAMESPACE"), hidden, entry(created=SECOND))
    assert world.address(DB)["canonical"] is True
    assert "canonical" not in world.address("zoo/db.example.com")


# Endpoints.


def test_an_endpoint_is_a_workload_with_the_names_and_labels_of_the_entry() -> None:
    endpoint = {"address": "1.1.1.1", "weight": 7, "locality": "r/z/s", "serviceAccount": "db"}
    world = home(entry(ports=[TCP], endpoints=[endpoint, "2.2.2.2"]))
    assert world.address(f"{UID}/1.1.1.1") == {
        "uid": f"{UID}/1.1.1.1",
        "name": "db",
        "namespace": "shop",
        "addresses": ["1.1.1.1"],
        "network": "net-a",
        "service_account": "db",
        "canonical_name": "db",
        "canonical_revision": "latest",
        "workload_type": "POD",
        "workload_name": "db",
        "services": {DB: {"ports": [{"service_port": 3306, "target_port": 3307}]}},
        "cluster_id": "alpha",
        "locality": {"region": "r", "zone": "z", "subzone": "s"},
        "capacity": 7,
    }
    assert world.address(f"{UID}/2.2.2.2")["services"] == {DB: {"ports": [{"service_port": 3306, "target_port": 3307}]}}


def test_canonical_names_and_tunnels_come_from_the_entry() -> None:
    labels = {"app": "store", "version": "v2", "networking.istio.io/tunnel": "http"}
    told = home(entry(labels=labels, endpoints=["1.1.1.1"])).address(f"{UID}/1.1.1.1")
    assert (told["canonical_name"], told["canonical_revision"]) == ("store", "v2")
    assert (told["tunnel_protocol"], told["native_tunnel"]) == ("HBONE", True)


def test_the_network_of_one_endpoint_is_not_that_of_the_next() -> None:
    world = home(entry(endpoints=[{"address": "1.1.1.1", "network": "net-b"}, "2.2.2.2"]))
    assert workloads(world) == [f"{UID}/2.2.2.2"]
    assert world.address(f"{UID}/2.2.2.2")["network"] == "net-a"


def test_an_endpoint_has_its_own_numbers_by_the_names_of_ports() -> None:
    ports = [TCP, {"number": 80, "name": "http", "protocol": "HTTP"}]
    endpoint = {"address": "1.1.1.1", "ports": {"tcp": 13306}}
    told = home(entry(ports=ports, endpoints=[endpoint])).address(f"{UID}/1.1.1.1")
    assert told["services"][DB]["ports"] == [
        {"service_port": 3306, "target_port": 13306},
        {"service_port": 80, "target_port": 80},
    ]


def test_an_endpoint_may_be_a_dns_name() -> None:
    told = home(entry(resolution="DNS", endpoints=["db-1.example.com"])).address(f"{UID}/db-1.example.com")
    assert told["hostname"] == "db-1.example.com"
    assert "addresses" not in told


def test_an_endpoint_that_cannot_be_reached_costs_itself_alone() -> None:
    world = home(entry(endpoints=["unix:///var/run/db", "1.1.1.1", "300.1.1", "", "1.1.1.1"]))
    assert workloads(world) == [f"{UID}/1.1.1.1"]
    assert [(one.code, one.field) for one in world.findings()] == [
        ("EndpointAddressInvalid", "spec.endpoints[0].address"),
        ("EndpointAddressInvalid", "spec.endpoints[2].address"),
        ("EndpointAddressInvalid", "spec.endpoints[3].address"),
        ("EndpointAddressRepeated", "spec.endpoints[4].address"),
    ]


@pytest.mark.parametrize("resolution", ["DNS", "DNS_ROUND_ROBIN", "DYNAMIC_DNS"])
def test_what_is_resolved_and_lists_no_endpoints_is_served_by_its_hosts(resolution: str) -> None:
    world = home(entry("shop/se", "a.ext", "b.ext", "*.ext", resolution=resolution))
    uid = "alpha/networking.istio.io/ServiceEntry/shop/se"
    assert workloads(world) == [f"{uid}/a.ext", f"{uid}/b.ext"]
    assert list(world.address(f"{uid}/a.ext")["services"]) == ["shop/a.ext"]
    assert world.address(f"{uid}/a.ext")["hostname"] == "a.ext"


@pytest.mark.parametrize("more", [{"resolution": "STATIC"}, {"resolution": "DNS", "selector": {"app": "db"}}])
def test_what_is_not_resolved_or_selects_workloads_is_not_served_by_its_hosts(more: Any) -> None:
    assert workloads(home(entry(**more))) == []


def test_a_host_that_another_object_has_is_not_served_by_the_entry() -> None:
    world = home(
        entry("shop/a", "a.ext", resolution="DNS", created=FIRST),
        entry("shop/b", "a.ext", "b.ext", resolution="DNS", created=SECOND),
    )
    listed = [name.removeprefix("alpha/networking.istio.io/ServiceEntry/shop/") for name in workloads(world)]
    assert listed == ["a/a.ext", "b/b.ext"]


def test_policies_select_endpoints_by_the_labels_of_the_entry() -> None:
    policy = m.authorization_policy("shop/p", selector={"app": "db"})
    told = home(policy, entry(labels={"app": "db"}, endpoints=["1.1.1.1"])).address(f"{UID}/1.1.1.1")
    assert told["authorization_policies"] == ["shop/p"]


# Waypoints.


def waypoint(traffic: str = "service") -> m.Manifest:
    return m.gateway(
        "shop/wp",
        addresses=[("Hostname", "wp.shop.svc.cluster.local")],
        labels={"istio.io/waypoint-for": traffic},
    )


def test_an_entry_goes_through_the_waypoint_it_asks_for() -> None:
    told = home(waypoint(), entry(labels={"istio.io/use-waypoint": "wp"})).address(DB)
    assert told["waypoint"]["hostname"] == {"namespace": "shop", "hostname": "wp.shop.svc.cluster.local"}


def test_an_endpoint_goes_through_the_waypoint_its_own_labels_ask_for() -> None:
    endpoint = {"address": "1.1.1.1", "labels": {"istio.io/use-waypoint": "wp"}}
    world = home(waypoint("workload"), entry(endpoints=[endpoint, "2.2.2.2"]))
    assert "waypoint" in world.address(f"{UID}/1.1.1.1")
    assert "waypoint" not in world.address(f"{UID}/2.2.2.2")


# Pods that are selected.


def test_a_pod_that_is_selected_serves_the_port_of_that_name_or_else_the_target_or_the_number() -> None:
    ports = [
        {"number": 80, "name": "web", "protocol": "HTTP", "targetPort": 8080},
        {"number": 81, "name": "admin", "protocol": "HTTP", "targetPort": 8081},
        {"number": 82, "name": "more", "protocol": "HTTP"},
    ]
    pod = m.pod("shop/db-1", "10.1.0.5", labels={"app": "db"}, ports={"web": 9090})
    told = home(pod, entry(selector={"app": "db"}, ports=ports)).address("alpha//Pod/shop/db-1")
    assert told["services"][DB]["ports"] == [
        {"service_port": 80, "target_port": 9090},
        {"service_port": 81, "target_port": 8081},
        {"service_port": 82, "target_port": 82},
    ]


def test_pods_are_selected_within_the_namespace_of_the_entry() -> None:
    pod = m.pod("zoo/db-1", "10.1.0.5", labels={"app": "db"})
    told = home(m.namespace("zoo"), pod, entry(selector={"app": "db"})).address("alpha//Pod/zoo/db-1")
    assert "services" not in told


def test_an_entry_without_selector_selects_nothing() -> None:
    pod = m.pod("shop/db-1", "10.1.0.5", labels={"app": "db"})
    assert "services" not in home(pod, entry(selector={})).address("alpha//Pod/shop/db-1")


# Other clusters.

BETA = (
    m.namespace("istio-system", network="net-b"),
    m.namespace("shop"),
    m.east_west_gateway("istio-system/edge", "203.0.113.9", network="net-b"),
)
REACH = f"net-b/SplitHorizonWorkload/istio-system/edge/203.0.113.9/{DB}"


def remote(*objects: m.Manifest, remote_entries: bool = True, at_home: tuple[m.Manifest, ...] = ()) -> World:
    world = home(*at_home, remote_entries=remote_entries)
    world.apply("beta", *BETA, *objects)
    world.step()
    return world


def test_entries_of_other_clusters_count_only_if_asked_for_and_global_there() -> None:
    shared = entry(is_global=True, endpoints=["1.1.1.1"])
    assert DB not in remote(shared, remote_entries=False).addresses()
    assert DB not in remote(entry(endpoints=["1.1.1.1"])).addresses()
    assert remote(shared).address(REACH)["capacity"] == 1


def test_a_global_entry_of_two_clusters_is_one_service_and_weights_are_capacity() -> None:
    world = remote(
        entry(is_global=True, endpoints=[{"address": "1.1.1.1", "weight": 5}, "1.1.1.2"]),
        at_home=(entry(is_global=True, endpoints=["9.9.9.9"]),),
    )
    assert world.address(REACH)["capacity"] == 6
    assert workloads(world) == ["NetworkGateway/net-b/203.0.113.9/0", f"{UID}/9.9.9.9", REACH]


def test_an_entry_that_home_does_not_share_is_not_merged() -> None:
    host = "cart.shop.svc.cluster.local"
    world = remote(
        m.service("shop/cart", "10.97.0.20", selector={"app": "cart"}, is_global=True),
        m.pod("shop/cart-1", "10.2.0.5", labels={"app": "cart"}),
        at_home=(entry("shop/se", host),),
    )
    assert world.address(f"shop/{host}")["addresses"] == [{"network": "net-a", "address": "240.1.2.3"}]
    assert not [name for name in world.addresses() if "SplitHorizon" in name]


def test_an_endpoint_in_another_network_is_reached_through_its_gateway_if_the_entry_is_global() -> None:
    elsewhere = {"address": "10.2.0.9", "network": "net-b", "weight": 3}
    world = remote(at_home=(entry(is_global=True, endpoints=[elsewhere]),))
    assert world.address(REACH)["capacity"] == 3


def test_endpoints_of_a_cluster_that_is_lost_count_half_and_then_not_at_all() -> None:
    world = home(remote_entries=True, stale_after=10.0, stale_ttl=20.0)
    world.apply("beta", *BETA, entry(is_global=True, endpoints=[{"address": "1.1.1.1", "weight": 4}]))
    world.step()
    world.lose("beta")
    world.wait(10.0)
    assert world.address(REACH)["capacity"] == 2
    world.wait(10.0)
    assert world.address(REACH) == {}
