"""Gateways that are known by DNS names: how names become ways into a network, and what is said while they do not."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from aggregator.findings import Finding
from aggregator.pipeline import HOSTNAMES, SETTLED
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import World, changed_names

ORDERS = "shop/orders.shop.svc.cluster.local"
NAME = "ew.mesa.example"
EDGE = ("mesa", "Gateway", "istio-system", "edge")
NAMED = m.east_west_gateway("istio-system/edge", ("Hostname", NAME), network="net-mesa")
OLD, NEW = "198.51.100.20", "198.51.100.21"


def gateway(address: str) -> str:
    return f"NetworkGateway/net-mesa/{address}/0"


def way(address: str) -> str:
    return f"net-mesa/SplitHorizonWorkload/istio-system/edge/{address}/{ORDERS}"


def secret(world: World) -> None:
    """What registering mesa brings at once: its name and network."""
    world.apply("mesa", m.namespace("istio-system", network="net-mesa"), m.namespace("shop"))


def service(world: World) -> None:
    world.apply("mesa", m.service("shop/orders", "10.20.0.11", selector={"app": "orders"}, is_global=True))


def pods(world: World) -> None:
    for number in (1, 2):
        world.apply("mesa", m.pod(f"shop/orders-{number}", f"10.2.0.{number}", labels={"app": "orders"}))


def home() -> World:
    """Quay on net-quay, with a pod of its own."""
    world = World("quay")
    world.apply(
        "quay",
        m.namespace("istio-system", network="net-quay"),
        m.namespace("shop"),
        m.service("shop/orders", "10.10.0.11", is_global=True),
        m.pod("shop/client", "10.1.0.1"),
    )
    return world


def world_of(edge: Manifest = NAMED) -> World:
    """Quay, and mesa with two pods of orders behind a gateway."""
    world = home()
    for part in (secret, service, pods):
        part(world)
    world.apply("mesa", edge)
    world.step()
    return world


def ways(world: World) -> dict[str, int]:
    """Address -> capacity of the ways to orders in mesa."""
    told = {name: one["workload"] for name, one in world.addresses().items() if "/SplitHorizonWorkload/" in name}
    return {one["network_gateway"]["address"]["address"]: one["capacity"] for one in told.values()}


def wanted(world: World) -> dict[tuple[str], tuple[object, ...]]:
    return world.published.get(HOSTNAMES, {})


def findings(world: World) -> list[tuple[str, str]]:
    """Codes and details of what is found about mesa's gateway."""
    return [(one.code, one.detail) for one in world.findings() if one.object == EDGE]


# Which names are wanted.


def test_the_name_of_a_gateway_is_wanted_with_the_object_that_has_it() -> None:
    assert wanted(world_of()) == {(NAME,): (EDGE,)}


def test_a_name_of_two_gateways_is_wanted_once() -> None:
    world = world_of()
    world.apply("mesa", m.east_west_gateway("istio-system/other", ("Hostname", NAME), network="net-mesa"))
    world.step()
    assert wanted(world) == {(NAME,): (EDGE, ("mesa", "Gateway", "istio-system", "other"))}


def test_a_name_is_not_wanted_any_more_when_its_gateway_is_gone() -> None:
    world = world_of()
    world.delete("mesa", NAMED)
    world.step()
    assert wanted(world) == {}


def test_the_name_of_a_stand_in_at_home_is_wanted() -> None:
    world = home()
    world.apply("quay", m.remote_gateway("istio-system/mesa", ("Hostname", NAME), network="net-mesa"))
    world.step()
    assert wanted(world) == {(NAME,): (("quay", "Gateway", "istio-system", "mesa"),)}


@pytest.mark.parametrize(
    "other",
    [
        m.gateway("shop/waypoint", addresses=[("Hostname", NAME)], network="net-mesa"),
        m.gateway("istio-system/edge", "istio-east-west", addresses=[("Hostname", NAME)], network="net-mesa"),
        m.east_west_gateway("istio-system/edge", ("Hostname", NAME), network=""),
        m.east_west_gateway("istio-system/edge", ("NamedAddress", NAME), network="net-mesa"),
    ],
    ids=["a waypoint", "not a listener for others", "no network", "another type of address"],
)
def test_the_name_of_what_leads_into_no_network_is_not_wanted(other: Manifest) -> None:
    assert wanted(world_of(other)) == {}


def test_a_name_is_looked_up_as_it_is_written_in_lower_case_without_the_last_dot() -> None:
    edge = m.east_west_gateway("istio-system/edge", ("Hostname", "EW.Mesa.example."), network="net-mesa")
    assert list(wanted(world_of(edge))) == [(NAME,)]


@pytest.mark.parametrize("name", ["-ew.example", "300.1.2.3", "ew..example", "edge.istio-system.svc.cluster.local"])
def test_what_no_name_server_here_can_know_is_not_wanted_and_found_at_its_field(name: str) -> None:
    world = world_of(m.east_west_gateway("istio-system/edge", OLD, ("Hostname", name), network="net-mesa"))
    assert wanted(world) == {}
    assert [(one.code, one.field) for one in world.findings()] == [("GatewayAddressInvalid", "status.addresses[1]")]
    assert ways(world) == {OLD: 2}


# What a name stands for.


def test_every_address_of_a_name_is_a_way_and_they_share_the_capacity() -> None:
    world = world_of()
    world.resolve(NAME, OLD, NEW)
    world.step()
    assert ways(world) == {OLD: 1, NEW: 1}
    assert world.address(gateway(OLD))["service_account"] == "edge"
    assert findings(world) == []


def test_while_a_name_has_no_address_nobody_is_sent_there_nor_to_the_pods_behind_it() -> None:
    world = world_of()
    assert ways(world) == {}
    assert not any("10.2.0." in str(told) for told in world.addresses().values())
    assert findings(world) == [("GatewayAddressNotResolved", f"{NAME}: it has not been looked up yet")]


def test_a_name_that_does_not_exist_is_found_with_object_field_and_cure() -> None:
    world = world_of()
    world.resolve(NAME, reason="it does not exist (NXDOMAIN)")
    world.step()
    (found,) = [one for one in world.findings() if one.object == EDGE]
    assert str(found) == (
        "Gateway istio-system/edge in mesa: status.addresses[0]: ew.mesa.example: it does not exist (NXDOMAIN). "
        "Correct the name's records, or give the Gateway an IP address; it is looked up again within 30 seconds."
    )


def test_a_service_behind_a_name_without_address_says_that_there_is_a_gateway() -> None:
    (found,) = [one for one in world_of().findings() if one.code == "NetworkHasNoGateway"]
    assert found.detail.endswith("those it has are without an address that can be used")


def test_addresses_of_before_that_stand_are_used_and_found() -> None:
    world = world_of()
    world.resolve(NAME, OLD, reason="no name server answers")
    world.step()
    assert ways(world) == {OLD: 2}
    assert findings(world) == [("GatewayNameFails", f"{NAME}: no name server answers; used: {OLD}")]


def test_a_change_of_address_is_one_pass_in_which_the_new_way_comes_and_the_old_one_goes() -> None:
    world = world_of()
    world.resolve(NAME, OLD)
    world.step()
    world.resolve(NAME, NEW)
    assert changed_names(world.step()) == {gateway(OLD), gateway(NEW), way(OLD), way(NEW)}
    assert ways(world) == {NEW: 2}


def test_an_address_that_is_added_to_a_name_leaves_the_ways_there_are() -> None:
    world = world_of()
    world.resolve(NAME, OLD)
    world.step()
    before = world.versions()[gateway(OLD)]
    world.resolve(NAME, OLD, NEW)
    world.step()
    assert ways(world) == {OLD: 1, NEW: 1}
    assert world.versions()[gateway(OLD)] == before


def test_a_gateway_may_have_an_address_and_a_name() -> None:
    world = world_of(m.east_west_gateway("istio-system/edge", OLD, ("Hostname", NAME), network="net-mesa"))
    assert ways(world) == {OLD: 2}
    world.resolve(NAME, NEW)
    world.step()
    assert ways(world) == {OLD: 1, NEW: 1}


def test_an_address_a_gateway_has_twice_is_one_way_and_no_finding() -> None:
    names = (("Hostname", NAME), ("Hostname", "ew2.mesa.example"))
    world = world_of(m.east_west_gateway("istio-system/edge", OLD, OLD, *names, network="net-mesa"))
    world.resolve(NAME, OLD)
    world.resolve("ew2.mesa.example", OLD)
    world.step()
    assert ways(world) == {OLD: 2}
    assert findings(world) == []


def test_an_address_that_two_gateways_names_share_is_the_older_gateways() -> None:
    world = world_of()
    later = m.gateway(
        "istio-system/another",
        "istio-east-west",
        m.listener(tls_mode="Terminate"),
        addresses=[("Hostname", "ew2.mesa.example")],
        network="net-mesa",
        created="2026-02-01T00:00:00Z",
    )
    world.apply("mesa", later)
    world.resolve("ew2.mesa.example", OLD)
    world.step()
    assert list(world.address(gateway(OLD)).values()).count("another") == 1
    world.resolve(NAME, OLD)
    world.step()
    assert world.address(gateway(OLD))["service_account"] == "edge"
    taken = Finding(
        ("mesa", "Gateway", "istio-system", "another"),
        "GatewayAddressTaken",
        "status.addresses",
        f"{OLD}:15008 of network net-mesa is already claimed by Gateway istio-system/edge in mesa",
    )
    assert taken in world.findings()


# Families.


def test_of_a_dual_stack_name_only_addresses_of_a_family_that_pods_of_home_have_are_used() -> None:
    world = world_of()
    world.resolve(NAME, OLD, "2001:db8::20")
    world.step()
    assert ways(world) == {OLD: 2}
    assert findings(world) == []
    world.apply("quay", m.pod("shop/client-6", ["10.1.0.2", "2001:db8:1::2"]))
    world.step()
    assert ways(world) == {OLD: 1, "2001:db8::20": 1}


def test_a_name_with_addresses_of_the_other_family_alone_is_found() -> None:
    world = world_of()
    world.resolve(NAME, "2001:db8::20")
    world.step()
    assert ways(world) == {}
    assert findings(world) == [
        ("GatewayAddressNotResolved", f"{NAME}: it has IPv6 addresses only, and pods of home have none")
    ]


def test_an_address_written_in_a_gateway_is_used_whatever_its_family() -> None:
    assert ways(world_of(m.east_west_gateway("istio-system/edge", "2001:db8::20", network="net-mesa"))) == {
        "2001:db8::20": 2
    }


# Completeness.


def states(world: World) -> set[str]:
    return set(world.published[SETTLED].values())


def test_views_are_partial_until_every_name_has_been_answered_so_that_a_restart_withdraws_no_gateway() -> None:
    world = world_of()
    assert states(world) == {"partial"}
    world.resolve(NAME, reason="no name server answers", pending=True)
    world.step()
    assert states(world) == {"partial"}
    world.resolve(NAME, OLD)
    world.step()
    assert states(world) == {"settled"}


def test_a_name_that_is_known_to_have_no_address_settles_views() -> None:
    world = world_of()
    world.resolve(NAME, reason="it does not exist (NXDOMAIN)")
    world.step()
    assert states(world) == {"settled"}


# Any order.


def test_secret_service_pods_and_the_gateways_name_and_address_end_the_same_in_any_order() -> None:
    def edge(world: World) -> None:
        world.apply("mesa", NAMED)

    def address(world: World) -> None:
        world.resolve(NAME, OLD)

    parts: tuple[Callable[[World], None], ...] = (secret, service, pods, edge, address)
    ends = []
    for order in itertools.permutations(parts):
        world = home()
        for part in order:
            part(world)
            world.step()
            assert not any("10.2.0." in str(told) for told in world.addresses().values())
        ends.append((world.resources, world.findings()))
    assert ways(world) == {OLD: 2}
    assert all(end == ends[0] for end in ends)


def test_a_name_taken_from_a_gateway_takes_its_way_and_gives_it_back() -> None:
    world = world_of()
    world.resolve(NAME, OLD)
    world.step()
    before = dict(world.resources)
    world.apply("mesa", m.east_west_gateway("istio-system/edge", network="net-mesa"))
    world.step()
    assert ways(world) == {}
    assert not any("10.2.0." in str(told) for told in world.addresses().values())
    world.apply("mesa", NAMED)
    world.step()
    assert world.resources == before
