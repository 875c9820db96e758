"""What each field of a Workload becomes on the wire."""

from __future__ import annotations

import pytest

from xds import protos
from xds.encoded import wrap
from xds.messages.addressing import GatewayAddress, Locality, NamespacedHostname, NetworkAddress, Port
from xds.messages.service import Service, encode_service
from xds.messages.workload import (
    ADDRESS_TYPE,
    WORKLOAD_TYPE,
    ApplicationTunnel,
    ApplicationTunnelProtocol,
    NetworkMode,
    TunnelProtocol,
    Workload,
    WorkloadStatus,
    WorkloadType,
    bare_workload,
    encode_workload,
)

proto = protos.istio.workload


def decoded(workload: Workload) -> protos.istio.workload.Workload:
    address = proto.Address.FromString(encode_workload(workload).data)
    assert address.WhichOneof("type") == "workload"
    return address.workload


def test_type_urls_name_the_messages() -> None:
    assert ADDRESS_TYPE.removeprefix("type.googleapis.com/") == proto.Address.DESCRIPTOR.full_name
    assert WORKLOAD_TYPE.removeprefix("type.googleapis.com/") == proto.Workload.DESCRIPTOR.full_name


def test_a_pod_in_full() -> None:
    workload = Workload(
        uid="alpha//Pod/shop/cart-1",
        name="cart-1",
        namespace="shop",
        addresses=(bytes((10, 10, 1, 1)), bytes(16)),
        network="net1",
        tunnel_protocol=TunnelProtocol.HBONE,
        trust_domain="example.org",
        service_account="cart",
        waypoint=GatewayAddress(NamespacedHostname("shop", "waypoint.shop.svc.cluster.local"), 15008),
        node="node-1",
        canonical_name="cart",
        canonical_revision="v2",
        workload_type=WorkloadType.POD,
        workload_name="cart",
        native_tunnel=True,
        services=(("shop/cart.shop.svc.cluster.local", (Port(80, 8080), Port(443, 8443))),),
        authorization_policies=("shop/allow", "istio-system/static"),
        status=WorkloadStatus.UNHEALTHY,
        cluster_id="alpha",
        locality=Locality("r1", "z1", "s1"),
        network_mode=NetworkMode.HOST_NETWORK,
        capacity=3,
        application_tunnel=ApplicationTunnel(ApplicationTunnelProtocol.PROXY, 15088),
    )
    expected = proto.Workload(
        uid="alpha//Pod/shop/cart-1",
        name="cart-1",
        namespace="shop",
        addresses=[bytes((10, 10, 1, 1)), bytes(16)],
        network="net1",
        tunnel_protocol=proto.HBONE,
        trust_domain="example.org",
        service_account="cart",
        node="node-1",
        canonical_name="cart",
        canonical_revision="v2",
        workload_type=proto.POD,
        workload_name="cart",
        native_tunnel=True,
        authorization_policies=["shop/allow", "istio-system/static"],
        status=proto.UNHEALTHY,
        cluster_id="alpha",
        locality=proto.Locality(region="r1", zone="z1", subzone="s1"),
        network_mode=proto.HOST_NETWORK,
        capacity=protos.google.protobuf.UInt32Value(value=3),
        application_tunnel=proto.ApplicationTunnel(protocol=proto.ApplicationTunnel.PROXY, port=15088),
    )
    expected.waypoint.hostname.namespace = "shop"
    expected.waypoint.hostname.hostname = "waypoint.shop.svc.cluster.local"
    expected.waypoint.hbone_mtls_port = 15008
    ports = expected.services["shop/cart.shop.svc.cluster.local"].ports
    ports.add(service_port=80, target_port=8080)
    ports.add(service_port=443, target_port=8443)
    assert decoded(workload) == expected


def test_a_split_horizon_workload_is_reached_through_its_gateway() -> None:
    gateway = GatewayAddress(NetworkAddress("net2", bytes((192, 0, 2, 20))), 15008)
    message = decoded(Workload("net2/x", "net2/x", "shop", network="net2", network_gateway=gateway, capacity=2))
    assert message.network_gateway.WhichOneof("destination") == "address"
    assert message.network_gateway.address == proto.NetworkAddress(network="net2", address=bytes((192, 0, 2, 20)))
    assert message.network_gateway.hbone_mtls_port == 15008
    assert not message.addresses


def test_defaults_take_no_bytes() -> None:
    bare = encode_workload(Workload("u", "n", "ns")).data
    assert bare == proto.Address(workload=proto.Workload(uid="u", name="n", namespace="ns")).SerializeToString()


@pytest.mark.parametrize("capacity", [None, 0, 1])
def test_an_absent_capacity_and_one_of_zero_are_told_apart(capacity: int | None) -> None:
    message = decoded(Workload("u", "n", "ns", capacity=capacity))
    assert message.HasField("capacity") == (capacity is not None)
    assert message.capacity.value == (capacity or 0)


def test_a_service_without_ports_stays_in_the_map() -> None:
    message = decoded(Workload("u", "n", "ns", services=(("ns/a", ()), ("ns/b", (Port(80, 0),)))))
    assert sorted(message.services) == ["ns/a", "ns/b"]
    assert not message.services["ns/a"].ports


def test_the_order_of_services_does_not_reach_the_bytes() -> None:
    one, two = ("ns/a", (Port(80, 8080),)), ("ns/b", (Port(81, 8081),))
    assert encode_workload(Workload("u", "n", "ns", services=(one, two))) == encode_workload(
        Workload("u", "n", "ns", services=(two, one))
    )


def test_a_locality_that_is_given_is_there_even_if_empty() -> None:
    assert decoded(Workload("u", "n", "ns", locality=Locality("", "", ""))).HasField("locality")
    assert not decoded(Workload("u", "n", "ns")).HasField("locality")


def test_a_record_without_any_content_is_still_a_workload() -> None:
    assert decoded(Workload("", "", "")) == proto.Workload()


@pytest.mark.parametrize("size", [0, 1, 200, 20_000])
def test_the_bare_workload_of_an_address_keeps_name_and_version(size: int) -> None:
    encoded = encode_workload(Workload("u", "n" * size, "ns"))
    address = wrap(ADDRESS_TYPE, "u", encoded)
    bare = bare_workload(address)
    assert bare is not None
    assert (bare.name, bare.version) == ("u", address.version)
    assert protos.google.protobuf.Any.FromString(bare.any.tobytes()).type_url == WORKLOAD_TYPE
    assert proto.Workload.FromString(bare.body.tobytes()) == proto.Address.FromString(encoded.data).workload


def test_a_service_is_no_workload() -> None:
    assert bare_workload(wrap(ADDRESS_TYPE, "ns/h", encode_service(Service("n", "ns", "h")))) is None
