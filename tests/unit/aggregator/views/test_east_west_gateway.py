"""What east-west gateways are told: which services and endpoints, in both forms, and what one more of them costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from aggregator.graph import Pass
from aggregator.pipeline import RESOURCES
from aggregator.views import east_west_gateway
from aggregator.views.view import View
from tests.kit import manifests as m
from tests.kit.world import World
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.hbone import Profile
from xds.messages.listener import LISTENER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE

Json = dict[str, Any]

TYPES = (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE)
GATEWAY = m.east_west_gateway("edge/gate", "198.51.100.1", network="net-q")
HOST = "echo.apps.svc.cluster.local"
STOCK_NAME = f"ew|{HOST}:80"
ISTIO_NAME = f"inbound-vip|80|tcp|{HOST}"
NAMES = {Profile.STOCK: STOCK_NAME, Profile.ISTIO: ISTIO_NAME}


def view(type_url: str, profile: Profile = Profile.STOCK, *, network: str = "net-q", **features: str) -> View:
    given = {"gateway": "edge/gate", "bind": "0.0.0.0", **features}
    found = east_west_gateway.view_of(type_url, network=network, profile=profile, **given)
    assert found is not None
    return found


def views(profile: Profile) -> list[View]:
    return [view(type_url, profile) for type_url in TYPES]


def world_of(
    *home: m.Manifest,
    remote: Iterable[m.Manifest] = (),
    gateway: m.Manifest | None = GATEWAY,
    network: str = "net-r",
    profiles: Iterable[Profile] = Profile,
) -> World:
    """Home quay on net-q with a gateway of each kind, and pier on another network unless told otherwise."""
    world = World("quay")
    world.ask(*(one for profile in profiles for one in views(profile)))
    world.apply("quay", m.namespace("istio-system", network="net-q"), m.namespace("apps"), *home)
    if gateway is not None:
        world.apply("quay", gateway)
    world.apply("pier", m.namespace("istio-system", network=network), m.namespace("apps"), *remote)
    world.step()
    return world


def echo(vip: str = "10.96.0.1", **fields: Any) -> m.Manifest:
    return m.service("apps/echo", vip, **{"selector": {"app": "echo"}, "is_global": True, **fields})


def pod(number: int, ip: str, **fields: Any) -> m.Manifest:
    return m.pod(f"apps/echo-{number}", ip, **{"labels": {"app": "echo"}, "account": "echo", **fields})


def told(world: World, type_url: str, profile: Profile = Profile.STOCK) -> dict[str, Json]:
    return world.told(view(type_url, profile))


def endpoints(world: World, profile: Profile = Profile.STOCK, name: str = "") -> list[Json]:
    """The endpoints of a port, in order."""
    assignment = told(world, ASSIGNMENT_TYPE, profile)[name or NAMES[profile]]
    return [one for group in assignment.get("endpoints", []) for one in group["lb_endpoints"]]


def ids(found: Iterable[Json]) -> list[str]:
    return [one["endpoint"]["address"]["envoy_internal_address"]["endpoint_id"] for one in found]


def changed(result: Pass) -> set[tuple[str, str]]:
    """(type, name) of what a pass changed for stock Envoys."""
    return {
        (where.split("|")[1].rpartition(".")[2], name)
        for where, name in result.published.get(RESOURCES, {})
        if where.startswith("east-west|") and where.endswith("profile=stock")
    }


def fleet(number: int) -> list[m.Manifest]:
    """A global service of its own with a pod."""
    name = f"s{number}"
    return [
        m.service(f"apps/{name}", f"10.97.{number // 250}.{number % 250 + 1}", selector={"app": name}, is_global=True),
        m.pod(f"apps/{name}-1", f"10.3.{number // 250}.{number % 250 + 1}", labels={"app": name}, account=name),
    ]


# Views.


def test_a_view_has_the_features_that_its_type_depends_on() -> None:
    assert view(CLUSTER_TYPE).features == (("profile", "stock"),)
    assert view(ASSIGNMENT_TYPE).features == (("network", "net-q"), ("profile", "stock"))
    own = (("bind", "0.0.0.0"), ("gateway", "edge/gate"))
    assert view(LISTENER_TYPE).features == (*own, ("profile", "stock"))
    assert view(LISTENER_TYPE, Profile.ISTIO).features == (*own, ("network", "net-q"), ("profile", "istio"))


@pytest.mark.parametrize("type_url", [SECRET_TYPE, SCOPED_ROUTE_TYPE, ADDRESS_TYPE])
def test_there_is_no_view_of_other_types(type_url: str) -> None:
    found = east_west_gateway.view_of(
        type_url, gateway="edge/gate", bind="0.0.0.0", network="net-q", profile=Profile.STOCK
    )
    assert found is None


def test_gateways_that_nobody_runs_cost_nothing() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"), profiles=())
    assert not [where for where, _ in world.resources if where.startswith("east-west")]


# Golden scenarios G11 and G12.


def test_nothing_global_as_a_stock_envoy() -> None:
    world = world_of(echo(is_global=False), pod(1, "10.0.1.1"))
    listeners = {"connect_terminate", "main_internal", "to_waypoint", "forward_inner_connect"}
    assert set(told(world, LISTENER_TYPE)) == listeners
    assert set(told(world, CLUSTER_TYPE)) == {"main_internal", "forward_inner_connect", "BlackHoleCluster"}
    assert told(world, ASSIGNMENT_TYPE) == {}


def test_nothing_global_as_an_istio_proxy() -> None:
    world = world_of(echo(is_global=False), pod(1, "10.0.1.1"))
    listeners = told(world, LISTENER_TYPE, Profile.ISTIO)
    assert set(listeners) == {"connect_terminate", "main_internal", "forward_inner_connect"}
    (manager,) = (one["typed_config"] for one in listeners["connect_terminate"]["filter_chains"][0]["filters"])
    assert "request_source" in [one["name"] for one in manager["http_filters"]]
    (chain,) = listeners["main_internal"]["filter_chains"]
    assert chain["name"] == "virtualInbound-blackhole"
    assert chain["filters"][0]["typed_config"]["cluster"] == "BlackHoleCluster"
    clusters = told(world, CLUSTER_TYPE, Profile.ISTIO)
    assert set(clusters) == {"main_internal", "encap", "forward_inner_connect", "BlackHoleCluster"}
    (locality,) = clusters["encap"]["load_assignment"]["endpoints"]
    address = locality["lb_endpoints"][0]["endpoint"]["address"]["envoy_internal_address"]
    assert address["server_listener_name"] == "forward_inner_connect"


def global_echo() -> World:
    """A service for HTTP and DNS, with pods here and elsewhere."""
    ports = {"http": (80, 8080), "dns": {"port": 53, "targetPort": 53, "protocol": "UDP"}}
    return world_of(
        echo(ports=ports),
        pod(1, "10.0.1.1"),
        pod(2, "10.0.1.2"),
        remote=[echo("10.98.0.1", ports=ports), pod(1, "10.0.2.1")],
    )


def test_a_global_service_as_a_stock_envoy() -> None:
    world = global_echo()
    clusters, assignments = told(world, CLUSTER_TYPE), told(world, ASSIGNMENT_TYPE)
    assert set(clusters) == {"main_internal", "forward_inner_connect", "BlackHoleCluster", STOCK_NAME}
    assert set(assignments) == {STOCK_NAME}
    cluster = clusters[STOCK_NAME]
    assert cluster["type"] == "EDS"
    passed = cluster["transport_socket"]["typed_config"]["passthrough_metadata"]
    assert [(list(one["kind"]), one["name"]) for one in passed] == [(["host"], "envoy.filters.listener.original_dst")]
    assert endpoints(world) == [
        {
            "endpoint": {
                "address": {
                    "envoy_internal_address": {
                        "server_listener_name": "forward_inner_connect",
                        "endpoint_id": f"{address}:8080",
                    }
                }
            },
            "health_status": "HEALTHY",
            "load_balancing_weight": 1,
            "metadata": {
                "filter_metadata": {
                    "envoy.filters.listener.original_dst": {
                        "local": f"{address}:8080",
                        "waypoint": f"{address}:15008",
                    }
                }
            },
        }
        for address in ("10.0.1.1", "10.0.1.2")
    ]


def test_a_global_service_as_an_istio_proxy() -> None:
    world = global_echo()
    main = told(world, LISTENER_TYPE, Profile.ISTIO)["main_internal"]
    tree = main["filter_chain_matcher"]["matcher_tree"]
    assert list(tree["exact_match_map"]["map"]) == [f"{HOST}:80"]
    assert [chain["name"] for chain in main["filter_chains"]] == [ISTIO_NAME]
    cluster = told(world, CLUSTER_TYPE, Profile.ISTIO)[ISTIO_NAME]
    passed = cluster["transport_socket"]["typed_config"]["passthrough_metadata"]
    assert [(list(one["kind"]), one["name"]) for one in passed] == [
        (["host"], "envoy.filters.listener.original_dst"),
        (["cluster"], "istio"),
        (["host"], "istio"),
    ]
    assert ids(endpoints(world, Profile.ISTIO)) == ["10.0.1.1:8080", "10.0.1.2:8080"]
    assert not [name for name in told(world, CLUSTER_TYPE, Profile.ISTIO) if "|53|" in name]


def test_both_profiles_are_told_the_same_endpoints() -> None:
    world = world_of(
        echo(spec={"publishNotReadyAddresses": True}),
        pod(1, "10.0.1.1"),
        pod(2, "10.0.1.2", ready=False),
        pod(3, "fd00::1"),
        pod(4, "10.0.1.4", ambient=False),
    )
    assert ids(endpoints(world)) == ids(endpoints(world, Profile.ISTIO)) != []


# Listeners.


def terminating(world: World, profile: Profile = Profile.STOCK, **features: str) -> Json | None:
    return world.told(view(LISTENER_TYPE, profile, **features)).get("connect_terminate")


@pytest.mark.parametrize("profile", Profile)
def test_tunnels_end_on_the_port_of_the_gateways_hbone_listener(profile: Profile) -> None:
    world = world_of()
    moved = m.gateway("edge/gate", "istio-east-west", m.listener(port=15443, tls_mode="Terminate"), network="net-q")
    world.apply("quay", moved)
    world.step()
    listener = terminating(world, profile)
    assert listener is not None
    assert listener["address"] == {"socket_address": {"address": "0.0.0.0", "port_value": 15443}}


def test_the_address_is_the_one_the_proxy_was_told_to_bind_to() -> None:
    world = world_of()
    world.ask(view(LISTENER_TYPE, bind="127.2.0.5"))
    world.step()
    listener = terminating(world, bind="127.2.0.5")
    assert listener is not None
    assert listener["address"]["socket_address"]["address"] == "127.2.0.5"


@pytest.mark.parametrize(
    "gateway",
    [None, m.gateway("edge/gate", "istio-east-west", m.listener("tls", 15443, "TLS", tls_mode="Passthrough"))],
)
def test_without_a_gateway_that_takes_tunnels_none_are_taken(gateway: m.Manifest | None) -> None:
    world = world_of(gateway=gateway)
    assert terminating(world) is None
    world.apply("quay", GATEWAY)
    world.step()
    assert terminating(world) is not None
    world.delete("quay", GATEWAY)
    world.step()
    assert terminating(world) is None


def test_clients_have_to_be_of_the_trust_domain_in_force() -> None:
    world = world_of()
    world.apply("quay", m.mesh_config_map(trust_domain="harbour.example"))
    world.step()
    listener = terminating(world)
    assert listener is not None
    context = listener["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
    peers = context["combined_validation_context"]["default_validation_context"]["match_typed_subject_alt_names"]
    assert [one["matcher"]["prefix"] for one in peers] == ["spiffe://harbour.example/"]


def test_a_client_can_name_no_cluster_but_those_of_services() -> None:
    for chain in told(world_of(), LISTENER_TYPE)["main_internal"]["filter_chains"]:
        setting, proxy = (one["typed_config"] for one in chain["filters"])
        (state,) = setting["on_new_connection"]
        assert state["object_key"] == "envoy.tcp_proxy.cluster"
        assert state["format_string"]["text_format_source"]["inline_string"] == (
            "ew|%FILTER_STATE(io.istio.connect_authority:PLAIN)%"
        )
        assert proxy["cluster"] == "BlackHoleCluster"


def test_an_istio_proxy_matches_addresses_of_its_own_network_alone() -> None:
    world = world_of(
        echo(),
        m.service("apps/headless", None, selector={"app": "echo"}, is_global=True),
        remote=[echo("10.98.0.1"), m.service("apps/far", "10.98.0.2", is_global=True)],
    )
    matcher = told(world, LISTENER_TYPE, Profile.ISTIO)["main_internal"]["filter_chain_matcher"]
    assert len(matcher["matcher_tree"]["exact_match_map"]["map"]) == 3
    tree = matcher["on_no_match"]["matcher"]["matcher_tree"]["custom_match"]["typed_config"]
    assert [one["ranges"] for one in tree["range_matchers"]] == [[{"address_prefix": "10.96.0.1", "prefix_len": 32}]]


# Endpoints.


@pytest.mark.parametrize("profile", Profile)
def test_a_service_without_endpoints_here_has_an_empty_assignment(profile: Profile) -> None:
    world = world_of(echo(), remote=[echo("10.98.0.1"), pod(1, "10.0.2.1")])
    name = NAMES[profile]
    assert told(world, ASSIGNMENT_TYPE, profile)[name] == {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": name,
    }


def test_a_service_that_exists_elsewhere_alone_is_known() -> None:
    world = world_of(remote=[echo("10.98.0.1"), pod(1, "10.0.2.1")])
    assert STOCK_NAME in told(world, CLUSTER_TYPE)
    assert endpoints(world) == []


def test_endpoints_of_other_clusters_count_if_they_are_on_the_gateways_network() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"), remote=[echo("10.98.0.1"), pod(1, "10.0.2.1")], network="net-q")
    assert ids(endpoints(world)) == ["10.0.1.1:8080", "10.0.2.1:8080"]


def test_a_gateway_on_a_network_of_its_own_has_the_endpoints_there() -> None:
    own = {"labels": {"app": "echo", "topology.istio.io/network": "net-x"}}
    world = world_of(echo(), pod(1, "10.0.1.1"), pod(2, "10.0.1.2", **own))
    world.ask(view(ASSIGNMENT_TYPE, network="net-x"))
    world.step()
    there = world.told(view(ASSIGNMENT_TYPE, network="net-x"))[STOCK_NAME]["endpoints"][0]["lb_endpoints"]
    assert ids(endpoints(world)) == ["10.0.1.1:8080"]
    assert ids(there) == ["10.0.1.2:8080"]


def test_pods_that_are_not_ready_are_left_out_until_they_are() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"), pod(2, "10.0.1.2", ready=False))
    assert ids(endpoints(world)) == ["10.0.1.1:8080"]
    world.apply("quay", pod(1, "10.0.1.1", deleting=True), pod(2, "10.0.1.2"))
    world.step()
    assert ids(endpoints(world)) == ["10.0.1.2:8080"]


def test_pods_of_a_service_that_publishes_unready_addresses_are_endpoints_ready_or_not() -> None:
    world = world_of(echo(spec={"publishNotReadyAddresses": True}), pod(1, "10.0.1.1", ready=False))
    (endpoint,) = endpoints(world)
    assert endpoint["health_status"] == "HEALTHY"


def test_pods_outside_the_mesh_are_left_out_and_the_service_is_told_so() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"), pod(2, "10.0.1.2", ambient=False))
    assert ids(endpoints(world)) == ["10.0.1.1:8080"]
    (finding,) = world.findings()
    assert (finding.object, finding.code) == (("quay", "Service", "apps", "echo"), "EndpointTakesNoTunnels")
    world.apply("quay", pod(2, "10.0.1.2"))
    world.step()
    assert world.findings() == []


def test_a_named_port_is_that_of_each_pod() -> None:
    ports: Mapping[str, Any] = {"http": (80, "web")}
    world = world_of(
        echo(ports=ports),
        pod(1, "10.0.1.1", ports={"web": 8080}),
        pod(2, "10.0.1.2", ports={"web": 9090}),
        pod(3, "10.0.1.3"),
    )
    assert ids(endpoints(world)) == ["10.0.1.1:8080", "10.0.1.2:9090"]


def test_an_address_of_ipv6_is_in_brackets() -> None:
    (endpoint,) = endpoints(world_of(echo(), pod(1, "fd00::1")))
    way = endpoint["metadata"]["filter_metadata"]["envoy.filters.listener.original_dst"]
    assert way == {"local": "[fd00::1]:8080", "waypoint": "[fd00::1]:15008"}


def test_endpoints_are_grouped_by_locality_in_order() -> None:
    nodes = [m.node(f"n{zone}", region="r", zone=zone) for zone in "ba"]
    pods = [
        pod(1, "10.0.1.1", node="nb"),
        pod(2, "10.0.1.2", node="na"),
        pod(3, "10.0.1.3"),
        pod(4, "10.0.1.4", node="nb"),
    ]
    groups = told(world_of(echo(), *nodes, *pods), ASSIGNMENT_TYPE)[STOCK_NAME]["endpoints"]
    assert [(group.get("locality"), ids(group["lb_endpoints"])) for group in groups] == [
        (None, ["10.0.1.3:8080"]),
        ({"region": "r", "zone": "a"}, ["10.0.1.2:8080"]),
        ({"region": "r", "zone": "b"}, ["10.0.1.1:8080", "10.0.1.4:8080"]),
    ]
    assert [group["load_balancing_weight"] for group in groups] == [1, 1, 2]


def test_a_port_for_tcp_and_udp_is_one_port_and_one_for_udp_alone_none() -> None:
    ports: Mapping[str, Any] = {
        "dns": {"port": 53, "targetPort": 53, "protocol": "UDP"},
        "dns-tcp": {"port": 53, "targetPort": 53, "protocol": "TCP"},
        "log": {"port": 514, "targetPort": 514, "protocol": "UDP"},
    }
    world = world_of(echo(ports=ports), pod(1, "10.0.1.1"))
    assert set(told(world, ASSIGNMENT_TYPE)) == {f"ew|{HOST}:53"}
    assert ids(endpoints(world, name=f"ew|{HOST}:53")) == ["10.0.1.1:53"]


def test_of_each_endpoint_the_ports_that_it_serves() -> None:
    world = world_of(
        echo(ports={"http": (80, 8080)}),
        pod(1, "10.0.1.1"),
        remote=[echo("10.98.0.1", ports={"http": (80, 9090), "grpc": (81, 9091)}), pod(1, "10.0.2.1")],
        network="net-q",
    )
    assert ids(endpoints(world)) == ["10.0.1.1:8080", "10.0.2.1:9090"]
    assert ids(endpoints(world, name=f"ew|{HOST}:81")) == ["10.0.2.1:9091"]


# What changes.


def test_a_service_comes_and_goes_with_its_scope() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"))
    before = dict(world.resources)
    world.apply("quay", echo(is_global=False))
    assert changed(world.step()) == {("Cluster", STOCK_NAME), ("ClusterLoadAssignment", STOCK_NAME)}
    assert STOCK_NAME not in told(world, CLUSTER_TYPE)
    world.apply("quay", echo())
    world.step()
    assert world.resources == before


def test_a_new_global_service_is_its_cluster_and_its_assignment_and_no_listener() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"))
    world.apply("quay", *fleet(7))
    name = "ew|s7.apps.svc.cluster.local:80"
    assert changed(world.step()) == {("Cluster", name), ("ClusterLoadAssignment", name)}


def test_an_endpoint_changes_the_assignments_of_its_ports_alone() -> None:
    world = world_of(echo(ports={"a": 80, "b": 81}), pod(1, "10.0.1.1"), *fleet(7))
    world.apply("quay", pod(2, "10.0.1.2"))
    expected = {("ClusterLoadAssignment", STOCK_NAME), ("ClusterLoadAssignment", f"ew|{HOST}:81")}
    assert changed(world.step()) == expected


def test_an_address_of_a_service_changes_nothing() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"))
    world.apply("quay", echo("10.96.0.9"))
    assert changed(world.step()) == set()


def test_what_a_new_service_costs_does_not_grow_with_their_number() -> None:
    costs = []
    for size in (10, 200):
        world = world_of(*(one for number in range(size) for one in fleet(number)), profiles=[Profile.STOCK])
        world.apply("quay", *fleet(size))
        costs.append(world.step().evaluated)
    assert costs[0] == costs[1]


def test_what_an_endpoint_costs_does_not_grow_with_their_number() -> None:
    costs = []
    for size in (2, 100):
        world = world_of(
            echo(), *(pod(number, f"10.0.1.{number + 1}") for number in range(size)), profiles=[Profile.STOCK]
        )
        world.apply("quay", pod(size, f"10.0.1.{size + 1}"))
        costs.append(world.step().evaluated)
    assert costs[0] == costs[1]


def test_a_gateway_that_goes_leaves_nothing() -> None:
    world = world_of(echo(), pod(1, "10.0.1.1"), profiles=[Profile.STOCK])
    interest = world.pipeline.interest
    world.step({interest: {one.key: None for one in views(Profile.STOCK)}})
    assert not [where for where, _ in world.resources if where.startswith("east-west")]


def test_the_order_of_arrival_leaves_no_trace() -> None:
    objects = [echo(), *fleet(1), *fleet(2), pod(1, "10.0.1.1"), pod(2, "10.0.1.2")]
    one = world_of(*objects)
    other = world_of()
    for manifest in reversed(objects):
        other.apply("quay", manifest)
        other.step()
    assert one.resources == other.resources
