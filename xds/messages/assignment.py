"""ClusterLoadAssignment of Envoy's EDS: the endpoints of one cluster.

Records and their encoders. Each endpoint is encoded once and kept; an assignment is composed of kept encodings by
concatenation, so that one endpoint more among thousands copies bytes and serialises one endpoint.

An endpoint is reached over a socket, or through an internal listener that makes tunnels; where the tunnel leads is then
in the endpoint's metadata, which clusters pass on to the listener (xds.messages.hbone).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, concatenate, encode
from xds.messages.addressing import Locality
from xds.messages.cluster import BALANCING_METADATA, DESTINATION_METADATA, DIALLED, SOURCE_METADATA

ASSIGNMENT_TYPE: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

_NOBODY: Final = "-"
"""A name that no certificate has. An empty list would say nothing of whom to accept, so everybody would do."""

_endpoints = protos.envoy.config.endpoint.v3
# Field numbers, for composing by concatenation.
_ENDPOINTS: Final = 2  # ClusterLoadAssignment.endpoints
_LB_ENDPOINTS: Final = 2  # LocalityLbEndpoints.lb_endpoints


class SocketEndpoint(Struct, frozen=True, gc=False):
    """An endpoint that is dialled in plain: an IP address as text, and a port."""

    address: str
    port: int
    weight: int = 1


class DoubleTunnel(Struct, frozen=True, gc=False):
    """A tunnel within a tunnel: to `authority` (`<hostname>:<port>`) through a gateway.

    `gateway_identities` may answer the outer tunnel, `identities` the inner one: SPIFFE URIs, of which any one does;
    where there are none, nobody may.
    """

    authority: str
    identities: tuple[str, ...]
    gateway_identities: tuple[str, ...]


class TunnelEndpoint(Struct, frozen=True, gc=False):
    """An endpoint behind the internal listener `listener`.

    `destination` is where the connection is to go and `dialled` the address to be dialled for it, both
    `<address>:<port>`; with `dialled` empty it is the destination, which for a double tunnel is the gateway. Endpoints
    of one cluster with the same destination are told apart by their `id`, which is the destination if empty.
    `identities` are those that may answer a single tunnel. `matched` are keys and values that a cluster's
    `SocketMatch` looks for. `workload` is what istio-proxy's telemetry reads,
    `<name>;<namespace>;<canonical name>;<revision>;<cluster>`. In a cluster that is parted `by_source` it is for
    `sources`.
    """

    listener: str
    destination: str
    dialled: str = ""
    identities: tuple[str, ...] = ()
    double: DoubleTunnel | None = None
    workload: str = ""
    matched: tuple[tuple[str, str], ...] = ()
    weight: int = 1
    sources: tuple[str, ...] = ()
    id: str = ""


Endpoint: TypeAlias = SocketEndpoint | TunnelEndpoint


class Group(Struct, frozen=True, gc=False):
    """Endpoints of one locality and one priority (0 is the first); `weight` is the sum of theirs."""

    endpoints: tuple[Encoded, ...]
    weight: int
    locality: Locality | None = None
    priority: int = 0


def socket_text(address: str, port: int) -> str:
    """`<address>:<port>`, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def encode_endpoint(endpoint: Endpoint) -> Encoded:
    """The bytes of an LbEndpoint."""
    message = _endpoints.LbEndpoint()
    message.load_balancing_weight.value = endpoint.weight
    message.health_status = protos.envoy.config.core.v3.HEALTHY
    if isinstance(endpoint, SocketEndpoint):
        message.endpoint.address.socket_address.address = endpoint.address
        message.endpoint.address.socket_address.port_value = endpoint.port
        return encode(message)
    internal = message.endpoint.address.envoy_internal_address
    internal.server_listener_name = endpoint.listener
    internal.endpoint_id = endpoint.id or endpoint.destination
    metadata = message.metadata.filter_metadata
    way = {"local": endpoint.destination}
    if endpoint.dialled:
        way[DIALLED] = endpoint.dialled
    metadata[DESTINATION_METADATA].update(way)
    told = _told(endpoint)
    if told:
        metadata["istio"].update(told)
    if endpoint.matched:
        metadata["envoy.transport_socket_match"].update(dict(endpoint.matched))
    if endpoint.sources:
        metadata[BALANCING_METADATA].update({SOURCE_METADATA: list(endpoint.sources)})
    return encode(message)


def _told(endpoint: TunnelEndpoint) -> dict[str, Any]:
    """What the listener is told besides where to go. Several names are a comma list, as filter state takes them."""
    told: dict[str, Any] = {}
    if endpoint.workload:
        told["workload"] = endpoint.workload
    if endpoint.identities:
        told["identities"] = ",".join(endpoint.identities)
    if endpoint.double is not None:
        told["double_hbone"] = {
            "hbone_target_address": endpoint.double.authority,
            "inner": ",".join(endpoint.double.identities) or _NOBODY,
            "outer": ",".join(endpoint.double.gateway_identities) or _NOBODY,
        }
    return told


def encode_assignment(cluster_name: str, groups: Iterable[Group] = ()) -> Encoded:
    """The bytes of a ClusterLoadAssignment; without groups the cluster has no endpoints, which is an answer too."""
    head = _endpoints.ClusterLoadAssignment(cluster_name=cluster_name).SerializeToString()
    return concatenate(head, [(_ENDPOINTS, _encode_group(group)) for group in groups])


def _encode_group(group: Group) -> Encoded:
    message = _endpoints.LocalityLbEndpoints(priority=group.priority)
    if group.locality is not None:
        message.locality.region = group.locality.region
        message.locality.zone = group.locality.zone
        message.locality.sub_zone = group.locality.subzone
    message.load_balancing_weight.value = group.weight
    head = message.SerializeToString(deterministic=True)
    return concatenate(head, [(_LB_ENDPOINTS, endpoint) for endpoint in group.endpoints])
