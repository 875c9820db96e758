"""What is read back from an Address, and how names of addresses are spelled."""

from __future__ import annotations

import pytest

from xds.encoded import Resource, wrap
from xds.messages.address_entry import AddressEntry, address_name, read_address_name, read_entry
from xds.messages.addressing import GatewayAddress, NamespacedHostname, NetworkAddress
from xds.messages.service import Service, WeightedWaypoint, encode_service
from xds.messages.workload import ADDRESS_TYPE, NetworkMode, TunnelProtocol, Workload, encode_workload

FOUR, SIX = bytes((10, 0, 0, 1)), bytes((0x20, 0x01, 0x0D, 0xB8)) + bytes(11) + b"\x01"
BY_NAME = GatewayAddress(NamespacedHostname("edge", "waypoint.example"), 15008)
BY_ADDRESS = GatewayAddress(NetworkAddress("far", FOUR), 15008)


def of_workload(**fields: object) -> AddressEntry:
    workload = Workload("u", "n", "ns", **fields)  # type: ignore[arg-type]
    return read_entry(wrap(ADDRESS_TYPE, "u", encode_workload(workload)))


def resource_of(service: Service) -> Resource:
    return wrap(ADDRESS_TYPE, "ns/h", encode_service(service))


@pytest.mark.parametrize(
    ("network", "address", "name"),
    [("net", FOUR, "net/10.0.0.1"), ("", FOUR, "/10.0.0.1"), ("net", SIX, "net/2001:db8::1"), ("net", b"123", "")],
)
def test_a_name_of_an_address_has_its_network_before_it(network: str, address: bytes, name: str) -> None:
    assert address_name(network, address) == name


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("net/10.0.0.1", ("net", FOUR)),
        ("/10.0.0.1", ("", FOUR)),
        ("net/2001:DB8:0::0001", ("net", SIX)),
        ("10.0.0.1", None),
        ("shop/cart.example", None),
        ("net/10.0.0.0/16", None),
        ("alpha//Pod/shop/cart", None),
        ("net/\x00", None),
        ("", None),
    ],
)
def test_a_name_of_an_address_is_read_however_it_is_spelled(name: str, read: tuple[str, bytes] | None) -> None:
    assert read_address_name(name) == read


def test_a_workload_is_found_by_its_addresses_and_needs_its_gateway_and_its_waypoint() -> None:
    entry = of_workload(
        addresses=(FOUR, SIX),
        network="net",
        network_gateway=BY_ADDRESS,
        waypoint=BY_NAME,
        cluster_id="alpha",
        node="node-1",
        tunnel_protocol=TunnelProtocol.HBONE,
    )
    assert entry == AddressEntry(
        is_service=False,
        addresses=("net/10.0.0.1", "net/2001:db8::1"),
        ranges=(),
        needs=("far/10.0.0.1", "edge/waypoint.example"),
        cluster="alpha",
        node="node-1",
        tunnel=True,
    )


def test_a_workload_that_has_its_address_from_its_node_is_not_found_by_it() -> None:
    assert of_workload(addresses=(FOUR,), network_mode=NetworkMode.HOST_NETWORK).addresses == ()


def test_a_service_is_found_by_its_addresses_and_ranges_and_needs_all_its_waypoints() -> None:
    service = Service(
        "n",
        "ns",
        "h",
        addresses=(NetworkAddress("net", FOUR), NetworkAddress("net", FOUR, 8), NetworkAddress("net", SIX, 0)),
        waypoint=BY_NAME,
        weighted_waypoints=(WeightedWaypoint(BY_ADDRESS, 10),),
    )
    assert read_entry(resource_of(service)) == AddressEntry(
        is_service=True,
        addresses=("net/10.0.0.1",),
        ranges=(("net", FOUR, 8), ("net", SIX, 0)),
        needs=("edge/waypoint.example", "far/10.0.0.1"),
    )


def test_an_address_without_content_is_a_workload_that_is_found_by_nothing() -> None:
    assert of_workload() == AddressEntry(is_service=False, addresses=(), ranges=(), needs=())
