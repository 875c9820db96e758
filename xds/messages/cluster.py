"""Cluster of Envoy's CDS: a group of endpoints and how connections to them are made.

A frozen record and its encoder. Where the endpoints come from is one of four things (`Cluster.source`). Balancing is
by least request unless something else is wanted, and nothing is limited: backpressure is the business of whoever runs
the endpoints, and a limit here would turn a burst into errors.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from xds import protos
from xds.encoded import Encoded, concatenate, encode, varint
from xds.messages.extension import Extension, write_any, write_extension

CLUSTER_TYPE: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

NO_LIMIT: Final = (1 << 32) - 1
DESTINATION_METADATA: Final = "envoy.filters.listener.original_dst"
"""Namespace of metadata that tells where a connection is to go: `local` is the destination, `waypoint` the address to
be dialled where that is another one. Envoy's listener filter reads the first, an ORIGINAL_DST cluster the second."""
DIALLED: Final = "waypoint"
BALANCING_METADATA: Final = "envoy.lb"
"""Namespace of metadata by which a cluster's endpoints are told apart when one is chosen."""
SOURCE_METADATA: Final = "source"
"""In it: the kinds of clients that an endpoint is for."""
BLACK_HOLE: Final = "BlackHoleCluster"
"""The name of the cluster without endpoints, in every mesh."""

_cluster = protos.envoy.config.cluster.v3.Cluster
_NAME: Final = b"\x0a"  # Cluster.name = 1


class Discovered(Struct, frozen=True, gc=False):
    """Endpoints come over EDS from the same stream, under the cluster's name, which is said only if `named`."""

    named: bool = False


class InternalListener(Struct, frozen=True, gc=False):
    """The one endpoint is an internal listener of the same Envoy."""

    name: str


class OriginalDestination(Struct, frozen=True, gc=False):
    """The endpoint is where each connection was to go.

    That is its original destination, or with `dialled` the address in its metadata under DIALLED. `port`, if given,
    replaces the port.
    """

    dialled: bool = False
    port: int = 0


class Nothing(Struct, frozen=True, gc=False):
    """There are no endpoints."""


Source: TypeAlias = Discovered | InternalListener | OriginalDestination | Nothing


class Balancing(IntEnum):
    """How an endpoint is chosen, as Envoy numbers it."""

    LEAST_REQUEST = _cluster.LEAST_REQUEST
    ROUND_ROBIN = _cluster.ROUND_ROBIN
    RING_HASH = _cluster.RING_HASH
    """By what the route makes a hash of."""


class SocketMatch(Struct, frozen=True, gc=False):
    """A transport socket for endpoints whose metadata `envoy.transport_socket_match` holds all of `match`."""

    name: str
    match: tuple[tuple[str, str], ...]
    transport_socket: Extension


class ServiceMetadata(Struct, frozen=True, gc=False):
    """What istio-proxy's telemetry wants to know of the service behind a cluster."""

    hostname: str
    namespace: str
    name: str
    subset: str


class Cluster(Struct, frozen=True, gc=False):
    """One cluster.

    `transport_socket` is how bytes are sent, plain if None; `socket_matches` choose one by endpoint, the first that
    fits. `http_options` are of xds.messages.hbone, None for HTTP/1.1 or plain TCP. `connect_timeout` is in seconds, 0
    leaves Envoy's own. `stat_name` is the name in statistics if it is not the cluster's. If it is parted `by_source`, a
    connection gets endpoints for its kind of client and never others. `balancing` is of endpoints that come over EDS.
    """

    name: str
    source: Source
    transport_socket: Extension | None = None
    socket_matches: tuple[SocketMatch, ...] = ()
    http_options: Extension | None = None
    connect_timeout: int = 0
    stat_name: str = ""
    service: ServiceMetadata | None = None
    by_source: bool = False
    balancing: Balancing = Balancing.LEAST_REQUEST


def encode_cluster(cluster: Cluster) -> Encoded:
    """The bytes of an envoy.config.cluster.v3.Cluster.

    Of clusters that differ in their names alone, of which there may be one for every service, all else is made once.
    """
    if isinstance(cluster.source, Discovered) and not cluster.source.named and cluster.service is None:
        name = cluster.name.encode()
        return concatenate(_NAME + varint(len(name)) + name + _nameless(replace(cluster, name="")), ())
    return encode(_message(cluster))


@lru_cache(maxsize=256)
def _nameless(cluster: Cluster) -> bytes:
    return _message(cluster).SerializeToString(deterministic=True)


def _message(cluster: Cluster) -> protos.envoy.config.cluster.v3.Cluster:
    message = _cluster(name=cluster.name, alt_stat_name=cluster.stat_name)
    match cluster.source:
        case Discovered(named):
            _write_discovered(message, cluster.balancing)
            if named:
                message.eds_cluster_config.service_name = cluster.name
        case InternalListener(name):
            message.type = _cluster.STATIC
            message.load_assignment.cluster_name = cluster.name
            endpoint = message.load_assignment.endpoints.add().lb_endpoints.add().endpoint
            endpoint.address.envoy_internal_address.server_listener_name = name
        case OriginalDestination(dialled, port):
            _write_original_destination(message, dialled, port)
        case Nothing():
            message.type = _cluster.STATIC
    if not isinstance(cluster.source, Nothing):
        thresholds = message.circuit_breakers.thresholds.add()
        for limit in (
            thresholds.max_connections,
            thresholds.max_pending_requests,
            thresholds.max_requests,
            thresholds.max_retries,
        ):
            limit.value = NO_LIMIT
    if cluster.connect_timeout:
        message.connect_timeout.seconds = cluster.connect_timeout
    if cluster.transport_socket is not None:
        write_extension(message.transport_socket, cluster.transport_socket)
    for one in cluster.socket_matches:
        added = message.transport_socket_matches.add(name=one.name)
        added.match.update(dict(one.match))
        write_extension(added.transport_socket, one.transport_socket)
    if cluster.http_options is not None:
        options = cluster.http_options
        write_any(message.typed_extension_protocol_options[options.name], options)
    if cluster.service is not None:
        _write_service(message, cluster.service)
    if cluster.by_source:
        subsets = message.lb_subset_config
        subsets.fallback_policy = _cluster.LbSubsetConfig.NO_FALLBACK
        subsets.subset_selectors.add(keys=[SOURCE_METADATA])
        subsets.list_as_any = True  # an endpoint may be for several
    return message


def _write_discovered(message: protos.envoy.config.cluster.v3.Cluster, balancing: Balancing) -> None:
    message.type = _cluster.EDS
    discovery = message.eds_cluster_config
    discovery.eds_config.ads.SetInParent()
    discovery.eds_config.resource_api_version = protos.envoy.config.core.v3.V3
    discovery.eds_config.initial_fetch_timeout.SetInParent()  # 0: without endpoints known it is never ready
    message.lb_policy = balancing.value
    # 0 %: endpoints that are said to be unhealthy get nothing, however many they are.
    message.common_lb_config.healthy_panic_threshold.SetInParent()


def _write_original_destination(message: protos.envoy.config.cluster.v3.Cluster, dialled: bool, port: int) -> None:
    message.type = _cluster.ORIGINAL_DST
    message.lb_policy = _cluster.CLUSTER_PROVIDED
    message.cleanup_interval.seconds = 60
    if dialled:
        key = message.original_dst_lb_config.metadata_key
        key.key = DESTINATION_METADATA
        key.path.add(key=DIALLED)
    if port:
        message.original_dst_lb_config.upstream_port_override.value = port


def _write_service(message: protos.envoy.config.cluster.v3.Cluster, service: ServiceMetadata) -> None:
    message.metadata.filter_metadata["istio"].update(
        {
            "services": [{"host": service.hostname, "name": service.name, "namespace": service.namespace}],
            "subset": service.subset,
        }
    )
