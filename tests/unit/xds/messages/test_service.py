"""What each field of a Service becomes on the wire."""

from __future__ import annotations

import pytest

from xds import protos
from xds.messages.addressing import AppProtocol, GatewayAddress, NamespacedHostname, NetworkAddress, Port
from xds.messages.service import (
    HealthPolicy,
    IPFamilies,
    LoadBalancing,
    Mode,
    Scope,
    Service,
    Visibility,
    WeightedWaypoint,
    encode_service,
)

proto = protos.istio.workload
HOST = "cart.shop.svc.cluster.local"


def decoded(service: Service) -> protos.istio.workload.Service:
    address = proto.Address.FromString(encode_service(service).data)
    assert address.WhichOneof("type") == "service"
    return address.service


def test_a_service_in_full() -> None:
    waypoint = GatewayAddress(NamespacedHostname("shop", "waypoint.shop.svc.cluster.local"), 15008)
    service = Service(
        name="cart",
        namespace="shop",
        hostname=HOST,
        addresses=(NetworkAddress("net1", bytes((10, 0, 0, 1))), NetworkAddress("net2", bytes(16))),
        ports=(Port(80, 8080, AppProtocol.HTTP11), Port(443, 8443)),
        subject_alt_names=("spiffe://cluster.local/ns/shop/sa/a", "spiffe://cluster.local/ns/shop/sa/b"),
        waypoint=waypoint,
        load_balancing=LoadBalancing((Scope.NETWORK, Scope.REGION), Mode.FAILOVER, HealthPolicy.ALLOW_ALL),
        ip_families=IPFamilies.DUAL,
        canonical=True,
        ingress_use_waypoint=True,
        weighted_waypoints=(WeightedWaypoint(waypoint, 7),),
        visibility=Visibility.NAMESPACE,
    )
    gateway = proto.GatewayAddress(
        hostname=proto.NamespacedHostname(namespace="shop", hostname="waypoint.shop.svc.cluster.local"),
        hbone_mtls_port=15008,
    )
    assert decoded(service) == proto.Service(
        name="cart",
        namespace="shop",
        hostname=HOST,
        addresses=[
            proto.NetworkAddress(network="net1", address=bytes((10, 0, 0, 1))),
            proto.NetworkAddress(network="net2", address=bytes(16)),
        ],
        ports=[
            proto.Port(service_port=80, target_port=8080, app_protocol=proto.HTTP11),
            proto.Port(service_port=443, target_port=8443),
        ],
        subject_alt_names=["spiffe://cluster.local/ns/shop/sa/a", "spiffe://cluster.local/ns/shop/sa/b"],
        waypoint=gateway,
        load_balancing=proto.LoadBalancing(
            routing_preference=[proto.LoadBalancing.NETWORK, proto.LoadBalancing.REGION],
            mode=proto.LoadBalancing.FAILOVER,
            health_policy=proto.LoadBalancing.ALLOW_ALL,
        ),
        ip_families=proto.DUAL,
        canonical=True,
        ingress_use_waypoint=True,
        weighted_waypoints=[proto.WeightedWaypoint(destination=gateway, weight=7)],
        visibility=proto.Service.NAMESPACE,
    )


def test_defaults_take_no_bytes() -> None:
    bare = encode_service(Service("cart", "shop", HOST)).data
    expected = proto.Address(service=proto.Service(name="cart", namespace="shop", hostname=HOST))
    assert bare == expected.SerializeToString()


@pytest.mark.parametrize("length", [None, 0, 24])
def test_a_host_address_and_a_prefix_are_told_apart(length: int | None) -> None:
    message = decoded(Service("s", "n", "h", addresses=(NetworkAddress("net", bytes(4), length),)))
    assert message.addresses[0].HasField("length") == (length is not None)
    assert message.addresses[0].length == (length or 0)


def test_load_balancing_without_anything_set_is_present() -> None:
    assert decoded(Service("s", "n", "h", load_balancing=LoadBalancing())).HasField("load_balancing")
    assert not decoded(Service("s", "n", "h")).HasField("load_balancing")


@pytest.mark.parametrize(
    ("destination", "arm"), [(NetworkAddress("", b""), "address"), (NamespacedHostname("", ""), "hostname")]
)
def test_a_gateway_always_has_a_destination(destination: NetworkAddress | NamespacedHostname, arm: str) -> None:
    # A gateway message without destination is refused by ztunnels.
    message = decoded(Service("s", "n", "h", waypoint=GatewayAddress(destination, 0)))
    assert message.waypoint.WhichOneof("destination") == arm


def test_addresses_ports_and_names_keep_the_order_they_are_given_in() -> None:
    names = ("b", "a", "c")
    message = decoded(Service("s", "n", "h", ports=(Port(2, 2), Port(1, 1)), subject_alt_names=names))
    assert [port.service_port for port in message.ports] == [2, 1]
    assert tuple(message.subject_alt_names) == names
