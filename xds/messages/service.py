"""What a proxy is told of one service: its addresses, ports, load balancing and identities.

A frozen record and its encoder. It travels as the `service` arm of istio.workload.Address (type ADDRESS_TYPE of
xds.messages.workload), named "<namespace>/<hostname>"; the workloads behind it name it themselves. Field meanings and
numbers: xds/proto/workload.proto. The encoder writes what it is given, in the given order: it neither validates nor
sorts.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, encode
from xds.messages.addressing import (
    GatewayAddress,
    NetworkAddress,
    Port,
    write_gateway,
    write_network_address,
    write_ports,
)


class IPFamilies(IntEnum):
    """Which of its addresses a service answers on; AUTOMATIC leaves it to the addresses given."""

    AUTOMATIC = 0
    IPV4_ONLY = 1
    IPV6_ONLY = 2
    DUAL = 3


class Visibility(IntEnum):
    """Who may use a service: everybody, or callers of its own namespace."""

    PUBLIC = 0
    NAMESPACE = 1


class Scope(IntEnum):
    """What a caller and an endpoint may have in common (LoadBalancing.Scope). A ztunnel rejects UNSPECIFIED."""

    UNSPECIFIED = 0
    REGION = 1
    ZONE = 2
    SUBZONE = 3
    NODE = 4
    CLUSTER = 5
    NETWORK = 6


class Mode(IntEnum):
    """How the scopes are used (LoadBalancing.Mode).

    STRICT takes endpoints that match all of them, FAILOVER prefers those that match more of the leading ones,
    PASSTHROUGH goes to the address that was asked for.
    """

    UNSPECIFIED = 0
    STRICT = 1
    FAILOVER = 2
    PASSTHROUGH = 3


class HealthPolicy(IntEnum):
    """Which endpoints take traffic (LoadBalancing.HealthPolicy)."""

    ONLY_HEALTHY = 0
    ALLOW_ALL = 1


class LoadBalancing(Struct, frozen=True, gc=False):
    """How an endpoint is chosen; the scopes come with the most important first."""

    routing_preference: tuple[Scope, ...] = ()
    mode: Mode = Mode.UNSPECIFIED
    health_policy: HealthPolicy = HealthPolicy.ONLY_HEALTHY


class WeightedWaypoint(Struct, frozen=True, gc=False):
    """One of several waypoints of a service, with its share of the traffic."""

    destination: GatewayAddress
    weight: int


class Service(Struct, frozen=True, gc=False):
    """One service. Its resource must be named "<namespace>/<hostname>", or it can never be removed.

    `subject_alt_names` are the identities that may answer for it, exactly; keep them sorted, since a ztunnel's
    connections are pooled by the ordered list. An address counts only for callers on its own network.
    """

    name: str
    namespace: str
    hostname: str
    addresses: tuple[NetworkAddress, ...] = ()
    ports: tuple[Port, ...] = ()
    subject_alt_names: tuple[str, ...] = ()
    waypoint: GatewayAddress | None = None
    load_balancing: LoadBalancing | None = None
    ip_families: IPFamilies = IPFamilies.AUTOMATIC
    canonical: bool = False
    ingress_use_waypoint: bool = False
    weighted_waypoints: tuple[WeightedWaypoint, ...] = ()
    visibility: Visibility = Visibility.PUBLIC


def encode_service(service: Service) -> Encoded:
    """The bytes of an istio.workload.Address that holds the service."""
    address = protos.istio.workload.Address()
    message = address.service
    message.SetInParent()
    message.name = service.name
    message.namespace = service.namespace
    message.hostname = service.hostname
    for vip in service.addresses:
        write_network_address(message.addresses.add(), vip)
    write_ports(message.ports, service.ports)
    message.subject_alt_names.extend(service.subject_alt_names)
    if service.waypoint is not None:
        write_gateway(message.waypoint, service.waypoint)
    if service.load_balancing is not None:
        _write_load_balancing(message.load_balancing, service.load_balancing)
    message.ip_families = service.ip_families
    message.canonical = service.canonical
    message.ingress_use_waypoint = service.ingress_use_waypoint
    for waypoint in service.weighted_waypoints:
        weighted = message.weighted_waypoints.add(weight=waypoint.weight)
        write_gateway(weighted.destination, waypoint.destination)
    message.visibility = service.visibility
    return encode(address)


def _write_load_balancing(message: protos.istio.workload.LoadBalancing, balancing: LoadBalancing) -> None:
    message.routing_preference.extend(balancing.routing_preference)
    message.mode = balancing.mode
    message.health_policy = balancing.health_policy
    message.SetInParent()
