"""What a proxy is told of one workload: a pod, a WorkloadEntry, a network gateway, or all of a service elsewhere.

A frozen record and its encoder. It travels as the `workload` arm of istio.workload.Address (type ADDRESS_TYPE), named
by its uid; waypoints read the bare istio.workload.Workload (type WORKLOAD_TYPE). Field meanings and numbers:
xds/proto/workload.proto. The encoder writes what it is given: it neither validates nor fills in defaults.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, Resource, encode, varint_at, wrap
from xds.messages.addressing import GatewayAddress, Locality, Port, write_gateway, write_ports

ADDRESS_TYPE: Final = "type.googleapis.com/istio.workload.Address"
WORKLOAD_TYPE: Final = "type.googleapis.com/istio.workload.Workload"
_WORKLOAD_ARM: Final = 1 << 3 | 2  # the tag of Address.workload


class TunnelProtocol(IntEnum):
    """How a workload is reached. A ztunnel rejects LEGACY_ISTIO_MTLS."""

    NONE = 0
    HBONE = 1
    LEGACY_ISTIO_MTLS = 2


class WorkloadType(IntEnum):
    """What kind of owner a workload has, for telemetry."""

    DEPLOYMENT = 0
    CRONJOB = 1
    POD = 2
    JOB = 3


class WorkloadStatus(IntEnum):
    """Whether a workload takes traffic. A ztunnel never retries: this is all it knows of health."""

    HEALTHY = 0
    UNHEALTHY = 1


class NetworkMode(IntEnum):
    """Whether a workload has an address of its own; with its node's, it cannot be found by address."""

    STANDARD = 0
    HOST_NETWORK = 1


class ApplicationTunnelProtocol(IntEnum):
    """What an application tunnel speaks (ApplicationTunnel.Protocol)."""

    NONE = 0
    PROXY = 1


class ApplicationTunnel(Struct, frozen=True, gc=False):
    """A workload that takes traffic for others on one port, as a sandwiched waypoint does."""

    protocol: ApplicationTunnelProtocol
    port: int


class Workload(Struct, frozen=True, gc=False):
    """One workload. Its resource must be named by its `uid`, or it can never be removed.

    `addresses` are raw bytes, 4 or 16 of them; without any, `hostname` or `network_gateway` says where it is reached.
    `services` are pairs of "<namespace>/<hostname>" and the ports served there. `authorization_policies` are names of
    Authorization resources bound to this workload alone; a ztunnel skips one it does not know, so they go out first.
    `capacity` is a weight: None counts as 1, and 0 gets nothing.
    """

    uid: str
    name: str
    namespace: str
    addresses: tuple[bytes, ...] = ()
    hostname: str = ""
    network: str = ""
    tunnel_protocol: TunnelProtocol = TunnelProtocol.NONE
    trust_domain: str = ""
    service_account: str = ""
    network_gateway: GatewayAddress | None = None
    waypoint: GatewayAddress | None = None
    node: str = ""
    canonical_name: str = ""
    canonical_revision: str = ""
    workload_type: WorkloadType = WorkloadType.DEPLOYMENT
    workload_name: str = ""
    native_tunnel: bool = False
    services: tuple[tuple[str, tuple[Port, ...]], ...] = ()
    authorization_policies: tuple[str, ...] = ()
    status: WorkloadStatus = WorkloadStatus.HEALTHY
    cluster_id: str = ""
    locality: Locality | None = None
    network_mode: NetworkMode = NetworkMode.STANDARD
    capacity: int | None = None
    application_tunnel: ApplicationTunnel | None = None


def encode_workload(workload: Workload) -> Encoded:
    """The bytes of an istio.workload.Address that holds the workload.

    Plain assignments, and none for defaults: it runs for every workload of the mesh, and keyword arguments with nested
    messages cost twice as much.
    """
    address = protos.istio.workload.Address()
    message = address.workload
    message.SetInParent()
    message.uid = workload.uid
    message.name = workload.name
    message.namespace = workload.namespace
    if workload.addresses:
        message.addresses.extend(workload.addresses)
    if workload.hostname:
        message.hostname = workload.hostname
    message.network = workload.network
    if workload.tunnel_protocol:
        message.tunnel_protocol = workload.tunnel_protocol
    if workload.trust_domain:
        message.trust_domain = workload.trust_domain
    message.service_account = workload.service_account
    if workload.network_gateway is not None:
        write_gateway(message.network_gateway, workload.network_gateway)
    if workload.waypoint is not None:
        write_gateway(message.waypoint, workload.waypoint)
    message.node = workload.node
    message.canonical_name = workload.canonical_name
    message.canonical_revision = workload.canonical_revision
    if workload.workload_type:
        message.workload_type = workload.workload_type
    message.workload_name = workload.workload_name
    if workload.native_tunnel:
        message.native_tunnel = True
    if workload.services:
        services = message.services
        for name, ports in workload.services:
            # Asking for the key makes the entry: a service without ports stays in the map.
            write_ports(services[name].ports, ports)
    if workload.authorization_policies:
        message.authorization_policies.extend(workload.authorization_policies)
    if workload.status:
        message.status = workload.status
    message.cluster_id = workload.cluster_id
    if workload.locality is not None:
        _write_locality(message.locality, workload.locality)
    if workload.network_mode:
        message.network_mode = workload.network_mode
    if workload.capacity is not None:
        message.capacity.value = workload.capacity
        message.capacity.SetInParent()
    if workload.application_tunnel is not None:
        message.application_tunnel.protocol = workload.application_tunnel.protocol
        message.application_tunnel.port = workload.application_tunnel.port
        message.application_tunnel.SetInParent()
    return encode(address)


def bare_workload(address: Resource) -> Resource | None:
    """The workload in an Address as a resource of type WORKLOAD_TYPE, under the same version; None for a service."""
    body = address.body
    if not body or body[0] != _WORKLOAD_ARM:
        return None
    _, start = varint_at(body, 1)
    return wrap(WORKLOAD_TYPE, address.name, Encoded(body[start:].tobytes(), address.digest))


def _write_locality(message: protos.istio.workload.Locality, locality: Locality) -> None:
    message.region = locality.region
    message.zone = locality.zone
    message.subzone = locality.subzone
    message.SetInParent()
