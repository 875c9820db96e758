"""What east-west gateways are told of services with a waypoint: which are there, and who goes which way."""

from __future__ import annotations

from collections.abc import Iterable
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

Json = dict[str, Any]

STOCK, ISTIO = Profile.STOCK, Profile.ISTIO
MANAGED = {"gateway.istio.io/managed": "istio.io-mesh-controller"}
USE = {"istio.io/use-waypoint": "wp"}
ECHO, WP = "echo.apps.svc.cluster.local", "wp.apps.svc.cluster.local"
ECHO_PORT, WP_PORT = f"ew|{ECHO}:80", f"ew|{WP}:15008"


def view(type_url: str, profile: Profile = STOCK) -> View:
    found = east_west_gateway.view_of(
        type_url, gateway="edge/gate", bind="0.0.0.0", network="net-q", profile=profile
    )
    assert found is not None
    return found


def world_of(*home: m.Manifest, remote: Iterable[m.Manifest] = (), network: str = "net-r") -> World:
    """Home quay on net-q with a gateway of each kind, a service and its pod; and pier on another network."""
    world = World("quay")
    world.ask(*(view(one, profile) for profile in Profile for one in (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE)))
    gate = m.east_west_gateway("edge/gate", "198.51.100.1", network="net-q")
    world.apply("quay", m.namespace("istio-system", network="net-q"), m.namespace("apps"), gate)
    world.apply("quay", m.pod("apps/echo-1", "10.0.1.1", labels={"app": "echo"}, account="echo"), *home)
    world.apply("pier", m.namespace("istio-system", network=network), m.namespace("apps"), *remote)
    world.step()
    return world


def echo(vip: str = "10.96.0.1", labels: Any = USE, *, is_global: bool = True, **fields: Any) -> m.Manifest:
    return m.service("apps/echo", vip, selector={"app": "echo"}, is_global=is_global, labels=labels, **fields)


def gateway(name: str = "wp", *addresses: Any) -> m.Manifest:
    given = addresses or (("Hostname", f"{name}.apps.svc.cluster.local"),)
    return m.gateway(f"apps/{name}", addresses=given)


def waypoint(name: str = "wp", number: int = 9, *, target: int = 15008, **fields: Any) -> list[m.Manifest]:
    """A waypoint's Gateway, its Service, which is not global, and its pod, which no node proxy captures."""
    own = {"app": name, **fields.pop("managed", MANAGED)}
    return [
        gateway(name),
        m.service(f"apps/{name}", f"10.96.0.{number}", ports={"mesh": (15008, target)}, selector=own, labels=own),
        m.pod(f"apps/{name}-1", f"10.0.9.{number}", labels=own, account=name, ambient=False, **fields),
    ]


def told(world: World, type_url: str, profile: Profile = STOCK) -> dict[str, Json]:
    return world.told(view(type_url, profile))


def ways(world: World, name: str = ECHO_PORT, source: str = "") -> dict[str, int]:
    """The endpoints a stock Envoy has for clients of a kind ("": of those who do not care), and their weights."""
    groups = told(world, ASSIGNMENT_TYPE)[name].get("endpoints", [])
    found = {}
    for one in (one for group in groups for one in group["lb_endpoints"]):
        sources = one["metadata"]["filter_metadata"].get("envoy.lb", {}).get("source", [""])
        if source in sources:
            address = one["endpoint"]["address"]["envoy_internal_address"]
            found[f"{address['server_listener_name']} {address['endpoint_id']}"] = one["load_balancing_weight"]
    return found


def matched(world: World, authority: str = f"{ECHO}:80") -> Json | str:
    """The chain an istio-proxy picks for an authority: its name, or one by kind of client, "" for the others."""
    matcher = told(world, LISTENER_TYPE, ISTIO)["main_internal"]["filter_chain_matcher"]
    then = matcher["matcher_tree"]["exact_match_map"]["map"][authority]
    if "action" in then:
        return name_of(then)
    tree = then["matcher"]["matcher_tree"]
    assert tree["input"]["typed_config"]["key"] == "io.istio.source"
    found = {kind: name_of(one) for kind, one in tree["exact_match_map"]["map"].items()}
    otherwise = then["matcher"].get("on_no_match")
    return {**found, "": name_of(otherwise) if otherwise else ""}


def name_of(then: Json) -> str:
    name: str = then["action"]["typed_config"]["value"]
    return name


def changed(result: Pass) -> set[tuple[str, str]]:
    """(type, name) of what a pass changed for stock Envoys."""
    return {
        (where.split("|")[1].rpartition(".")[2], name)
        for where, name in result.published.get(RESOURCES, {})
        if where.startswith("east-west|") and where.endswith("profile=stock")
    }


POD = {"forward_inner_connect 10.0.1.1:8080": 1}
VIA = {f"to_waypoint {WP}:15008": 100}
STRAIGHT, THROUGH = f"inbound-vip|80|tcp|{ECHO}", f"inbound-vip|15008|tcp|{WP}"


# Which services there are.


def test_the_waypoint_of_a_global_service_is_exposed_without_being_global() -> None:
    world = world_of(echo(), *waypoint())
    assert WP_PORT in told(world, CLUSTER_TYPE)
    assert THROUGH in told(world, CLUSTER_TYPE, ISTIO)
    assert ways(world, WP_PORT) == {"forward_inner_connect 10.0.9.9:15008": 1}


def test_the_waypoint_of_a_service_that_is_not_global_is_not_exposed() -> None:
    world = world_of(echo(is_global=False), *waypoint())
    assert WP_PORT not in told(world, CLUSTER_TYPE)


def test_a_waypoint_is_exposed_as_long_as_a_global_service_has_it() -> None:
    world = world_of(echo(), *waypoint(), m.service("apps/other", "10.96.0.2", is_global=True, labels=USE))
    for labels, there in (({}, True), (USE, True)):
        world.apply("quay", echo(labels=labels))
        world.step()
        assert (WP_PORT in told(world, CLUSTER_TYPE)) is there
    world.delete("quay", echo(), m.service("apps/other"))
    world.step()
    assert WP_PORT not in told(world, CLUSTER_TYPE)


def test_pods_of_a_waypoint_end_tunnels_themselves_and_nothing_is_amiss() -> None:
    named_by_a_service = world_of(echo(), *waypoint(managed={}))
    labelled = world_of(m.service("apps/wp", "10.96.0.9", selector={"app": "wp"}, is_global=True), *waypoint()[2:])
    assert ways(named_by_a_service, WP_PORT) == {"forward_inner_connect 10.0.9.9:15008": 1}
    assert len(ways(labelled, f"ew|{WP}:80")) == 1
    assert named_by_a_service.findings() == labelled.findings() == []


def test_a_waypoint_is_dialled_where_its_service_says() -> None:
    world = world_of(echo(), *waypoint(target=16008))
    (group,) = told(world, ASSIGNMENT_TYPE)[WP_PORT]["endpoints"]
    (endpoint,) = group["lb_endpoints"]
    way = endpoint["metadata"]["filter_metadata"]["envoy.filters.listener.original_dst"]
    assert way == {"local": "10.0.9.9:16008", "waypoint": "10.0.9.9:16008"}


# Who goes which way.


def test_a_service_without_a_waypoint_is_for_everybody_alike() -> None:
    world = world_of(echo(labels={}), *waypoint())
    assert ways(world) == POD
    assert "lb_subset_config" not in told(world, CLUSTER_TYPE)[ECHO_PORT]
    assert matched(world) == STRAIGHT


def test_waypoints_and_ingress_gateways_go_straight_and_everybody_else_through_the_waypoint() -> None:
    world = world_of(echo(), *waypoint())
    assert ways(world, source="waypoint") == ways(world, source="gateway") == POD
    assert ways(world, source="other") == VIA
    assert matched(world) == {"waypoint": STRAIGHT, "gateway": STRAIGHT, "": THROUGH}


def test_ingress_gateways_go_through_the_waypoint_if_they_are_to() -> None:
    world = world_of(echo(labels={**USE, "istio.io/ingress-use-waypoint": "true"}), *waypoint())
    assert ways(world, source="waypoint") == POD
    assert ways(world, source="gateway") == ways(world, source="other") == VIA
    assert matched(world) == {"waypoint": STRAIGHT, "gateway": THROUGH, "": THROUGH}


def test_a_stock_envoy_takes_no_endpoint_but_those_for_the_clients_kind() -> None:
    subsets = told(world_of(echo(), *waypoint()), CLUSTER_TYPE)[ECHO_PORT]["lb_subset_config"]
    assert subsets == {"list_as_any": True, "subset_selectors": [{"keys": ["source"]}]}  # and no fallback


def test_a_stock_envoy_asks_for_endpoints_by_what_the_client_says_of_its_kind() -> None:
    main = told(world_of(), LISTENER_TYPE)["main_internal"]
    tree = main["filter_chain_matcher"]["matcher_tree"]
    assert tree["input"]["typed_config"]["key"] == "io.istio.source"
    kinds = {kind: name_of(one) for kind, one in tree["exact_match_map"]["map"].items()}
    kinds["anything else"] = name_of(main["filter_chain_matcher"]["on_no_match"])
    asked = {
        chain["name"]: chain["filters"][1]["typed_config"]["metadata_match"]["filter_metadata"]["envoy.lb"]
        for chain in main["filter_chains"]
    }
    assert {kind: asked[chain] for kind, chain in kinds.items()} == {
        "waypoint": {"source": "waypoint"},
        "gateway": {"source": "gateway"},
        "anything else": {"source": "other"},
    }


def test_on_the_way_to_a_waypoint_nobody_is_sent_to_another_one() -> None:
    (chain,) = told(world_of(), LISTENER_TYPE)["to_waypoint"]["filter_chains"]
    setting, proxy = (one["typed_config"] for one in chain["filters"])
    (state,) = setting["on_new_connection"]
    assert state["object_key"] == "envoy.tcp_proxy.cluster"
    assert state["format_string"]["text_format_source"]["inline_string"] == (
        "ew|%DYNAMIC_METADATA(envoy.filters.listener.original_dst:local)%"
    )
    assert proxy["metadata_match"]["filter_metadata"]["envoy.lb"] == {"source": "waypoint"}


def test_a_canary_has_its_share() -> None:
    canary = {"istio.io/use-waypoint-canary": "wp2"}

    def shared(weight: str) -> dict[str, int]:
        annotations = {"istio.io/use-waypoint-canary-weight": weight}
        own = echo(labels={**USE, **canary}, annotations=annotations)
        return ways(world_of(own, *waypoint(), *waypoint("wp2", 8)), source="other")

    first, second = f"to_waypoint {WP}:15008", "to_waypoint wp2.apps.svc.cluster.local:15008"
    assert shared("20") == {first: 80, second: 20}
    assert shared("0") == {first: 100}
    assert shared("100") == {second: 100}


def test_a_waypoint_known_by_an_address_has_the_service_of_its_gateways_name() -> None:
    world = world_of(echo(), gateway("wp", "10.96.0.9"), *waypoint()[1:])
    assert ways(world, source="other") == VIA
    assert matched(world) == {"waypoint": STRAIGHT, "gateway": STRAIGHT, "": THROUGH}


def test_a_waypoint_that_is_not_there_is_not_passed_over() -> None:
    world = world_of(echo(labels={**USE, "istio.io/ingress-use-waypoint": "true"}), gateway())
    assert ways(world, source="other") == ways(world, source="gateway") == VIA
    assert WP_PORT not in told(world, CLUSTER_TYPE)
    assert matched(world) == {"waypoint": STRAIGHT, "": ""}


def test_a_service_whose_waypoint_is_not_there_is_told_so() -> None:
    world = world_of(echo(), gateway())
    (finding,) = world.findings()
    assert (finding.object, finding.code) == (("quay", "Service", "apps", "echo"), "WaypointHasNoService")
    world.apply("quay", *waypoint())
    world.step()
    assert world.findings() == []


def test_the_object_of_home_says_which_waypoint_its_gateways_lead_through() -> None:
    there = [echo("10.98.0.1"), *waypoint()]
    assert ways(world_of(echo(labels={}), remote=there)) == POD
    assert ways(world_of(echo(), *waypoint(), remote=[echo("10.98.0.1", labels={})]), source="other") == VIA


def test_a_service_of_another_cluster_of_this_network_is_behind_its_own_waypoint() -> None:
    (gate, service, pod), labels = waypoint(), {**MANAGED, "app": "wp", "istio.io/global": "true"}
    service = {**service, "metadata": {**service["metadata"], "labels": labels}}
    world = world_of(remote=[echo("10.98.0.1"), gate, service, pod], network="net-q")
    assert ways(world, source="other") == VIA
    assert ways(world, WP_PORT) == {"forward_inner_connect 10.0.9.9:15008": 1}


# What changes.


def test_a_waypoint_for_a_service_is_its_cluster_and_its_assignment_and_those_of_the_waypoint() -> None:
    world = world_of(echo(labels={}), *waypoint())
    world.apply("quay", echo())
    both = {(kind, name) for kind in ("Cluster", "ClusterLoadAssignment") for name in (ECHO_PORT, WP_PORT)}
    assert changed(world.step()) == both
    world.apply("quay", echo(labels={}))
    assert changed(world.step()) == both


def test_a_pod_of_a_waypoint_changes_the_waypoints_assignment_alone() -> None:
    world = world_of(echo(), *waypoint())
    world.apply("quay", m.pod("apps/wp-2", "10.0.9.10", labels={"app": "wp", **MANAGED}, account="wp", ambient=False))
    assert changed(world.step()) == {("ClusterLoadAssignment", WP_PORT)}


def test_one_more_service_behind_a_waypoint_costs_the_same_beside_many() -> None:
    def service(number: int) -> m.Manifest:
        return m.service(f"apps/s{number}", f"10.97.0.{number + 1}", is_global=True, labels=USE)

    costs = []
    for size in (5, 100):
        world = world_of(*waypoint(), *(service(number) for number in range(size)))
        world.ask()
        world.step({world.pipeline.interest: {view(LISTENER_TYPE, ISTIO).key: None}})
        world.apply("quay", service(size))
        costs.append(world.step().evaluated)
    assert costs[0] == costs[1]


@pytest.mark.parametrize("profile", Profile)
def test_order_of_arrival_leaves_no_trace(profile: Profile) -> None:
    objects = [echo(), *waypoint()]
    one, other = world_of(*objects), world_of()
    for manifest in reversed(objects):
        other.apply("quay", manifest)
        other.step()
    for type_url in (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE):
        assert told(one, type_url, profile) == told(other, type_url, profile)
