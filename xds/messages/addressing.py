"""Plumbing shared by the messages a ztunnel reads: networks and addresses, gateways, ports, localities.

Records and the functions that write them into the message under construction; xds.messages.workload and
xds.messages.service use both, whoever makes messages uses the records. Field meanings and numbers are those of Istio's
ambient workload API (xds/proto/workload.proto). Nothing is validated: what a ztunnel refuses must be kept out, with a
finding, by those who make the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from xds import protos


class AppProtocol(IntEnum):
    """What is spoken on a port, where its owner says so; ztunnel does not read it, waypoints do."""

    UNKNOWN = 0
    HTTP11 = 1
    HTTP2 = 2
    GRPC = 3
    TCP = 4
    TLS = 5


class NetworkAddress(Struct, frozen=True, gc=False):
    """An address on a network: 4 or 16 raw bytes, or a prefix of `length` bits; without length it is one host."""

    network: str
    address: bytes
    length: int | None = None


class NamespacedHostname(Struct, frozen=True, gc=False):
    """A service by its hostname, in the namespace of the object that declares it."""

    namespace: str
    hostname: str


class GatewayAddress(Struct, frozen=True, gc=False):
    """Where a gateway or waypoint is reached, and the port of its HBONE listener (mutual TLS)."""

    destination: NetworkAddress | NamespacedHostname
    port: int


class Port(Struct, frozen=True, gc=False):
    """A port of a service and the one behind it; target 0 leaves the choice to the endpoint."""

    service_port: int
    target_port: int
    app_protocol: AppProtocol = AppProtocol.UNKNOWN


class Locality(Struct, frozen=True, gc=False):
    """Where a workload runs; parts that are unknown are empty."""

    region: str
    zone: str
    subzone: str


def write_network_address(message: protos.istio.workload.NetworkAddress, address: NetworkAddress) -> None:
    """Fill an empty message."""
    message.network = address.network
    message.address = address.address
    if address.length is not None:  # 0 is a length: the prefix that holds every address
        message.length = address.length


def write_gateway(message: protos.istio.workload.GatewayAddress, gateway: GatewayAddress) -> None:
    """Fill an empty message."""
    destination = gateway.destination
    if isinstance(destination, NetworkAddress):
        write_network_address(message.address, destination)
        message.address.SetInParent()
    else:
        message.hostname.namespace = destination.namespace
        message.hostname.hostname = destination.hostname
        message.hostname.SetInParent()
    message.hbone_mtls_port = gateway.port


def write_ports(message: RepeatedCompositeFieldContainer[protos.istio.workload.Port], ports: Iterable[Port]) -> None:
    """Append to a repeated field."""
    for port in ports:
        added = message.add()
        added.service_port = port.service_port
        added.target_port = port.target_port
        if port.app_protocol:
            added.app_protocol = port.app_protocol
