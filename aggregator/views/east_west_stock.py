"""How a stock Envoy is told to be an east-west gateway.

Listeners and the clusters between them are constant. The name of a service's cluster is made from the authority of the
CONNECT request when a connection begins, under a prefix, so that no client can name one of the gateway's own; where
there is none of that name the client is answered 503.

What kind of proxy asks is in filter state beside the authority. It picks one of three chains, which differ in nothing
but whom they ask the cluster an endpoint for. Only the cluster of a service with a waypoint listens to that: its pods
are for waypoints, and for ingress gateways unless those are to go through the waypoint as well. For everybody else
there is one endpoint that stands for the waypoint: the listener `to_waypoint`, which goes on to the cluster of the
waypoint's own Service. So a pod of a waypoint is told once, however many services are behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.mesh.exposure import ExposedPort
from aggregator.mesh.networks import HBONE_PORT
from aggregator.mesh.workload import Workload
from xds.messages.assignment import TunnelEndpoint, socket_text
from xds.messages.cluster import (
    BLACK_HOLE,
    DESTINATION_METADATA,
    Cluster,
    Discovered,
    InternalListener,
    Nothing,
    OriginalDestination,
)
from xds.messages.connect_terminate import AUTHORITY, FROM_GATEWAY, FROM_WAYPOINT, MAIN_INTERNAL, SOURCE
from xds.messages.filters import (
    FILTER_STATE_CLUSTER,
    STARTED,
    FilterState,
    access_logs,
    set_filter_state,
    tcp_proxy,
)
from xds.messages.hbone import CONNECT_TIMEOUT, DESTINATION, FORWARD_INNER_CONNECT, internal_listener, internal_upstream
from xds.messages.listener import FilterChain, Listener
from xds.messages.matcher import ExactMatch, encode_matcher, filter_state_input

PREFIX = "ew|"
TO_WAYPOINT = "to_waypoint"

_FROM_OTHERS = "other"
_SOURCES = (FROM_WAYPOINT, FROM_GATEWAY, _FROM_OTHERS)
_BY_SOURCE = encode_matcher(
    ExactMatch(
        filter_state_input("request-source-filter-state", SOURCE),
        ((FROM_WAYPOINT, FROM_WAYPOINT), (FROM_GATEWAY, FROM_GATEWAY)),
        otherwise=_FROM_OTHERS,
    )
)

_LOGGED = {
    "listener": MAIN_INTERNAL,
    "event": "%ACCESS_LOG_TYPE%",
    "start": STARTED,
    "authority": f"%FILTER_STATE({AUTHORITY}:PLAIN)%",
    "upstream": "%UPSTREAM_HOST%",
    "flags": "%RESPONSE_FLAGS%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
}
"""The lines of connect_terminate say who asked and what came of it; these, which endpoint it came to."""


_WAYPOINT_LOGGED = {
    **_LOGGED,
    "listener": TO_WAYPOINT,
    "authority": f"%DYNAMIC_METADATA({DESTINATION_METADATA}:local)%",
}


def internal_listeners(_ports: Iterable[ExposedPort], _network: str, log_file: str) -> tuple[Listener, ...]:
    """The listeners behind the one at which tunnels end: main_internal finds the cluster of a tunnel, and
    forward_inner_connect passes its bytes on to a pod: they are the client's tunnel, which ends there and not here.
    """
    by_authority = set_filter_state(
        "service_cluster", [FilterState(FILTER_STATE_CLUSTER, f"{PREFIX}%FILTER_STATE({AUTHORITY}:PLAIN)%")]
    )
    chains = tuple(
        FilterChain(
            (
                by_authority,
                tcp_proxy(BLACK_HOLE, MAIN_INTERNAL, access_logs=access_logs(log_file, _LOGGED), source=source),
            ),
            name=source,
        )
        for source in _SOURCES
    )
    return (
        Listener(MAIN_INTERNAL, chains, matcher=_BY_SOURCE, use_original_dst=False),
        internal_listener(
            TO_WAYPOINT,
            set_filter_state(
                "waypoint_cluster",
                [FilterState(FILTER_STATE_CLUSTER, f"{PREFIX}%DYNAMIC_METADATA({DESTINATION_METADATA}:local)%")],
            ),
            # Straight to its pods, should it be said to have a waypoint itself.
            tcp_proxy(
                BLACK_HOLE, TO_WAYPOINT, access_logs=access_logs(log_file, _WAYPOINT_LOGGED), source=FROM_WAYPOINT
            ),
            restore_destination=False,
        ),
        internal_listener(FORWARD_INNER_CONNECT, tcp_proxy(FORWARD_INNER_CONNECT, FORWARD_INNER_CONNECT)),
    )


def constant_clusters() -> tuple[Cluster, ...]:
    """The clusters that are there whatever is exposed."""
    return (
        Cluster(MAIN_INTERNAL, InternalListener(MAIN_INTERNAL), transport_socket=internal_upstream()),
        Cluster(FORWARD_INNER_CONNECT, OriginalDestination(dialled=True), connect_timeout=CONNECT_TIMEOUT),
        Cluster(BLACK_HOLE, Nothing()),
    )


def cluster_name(port: ExposedPort) -> str:
    """`ew|<hostname>:<port>`."""
    return PREFIX + port.authority


def service_cluster(port: ExposedPort) -> Cluster:
    """The cluster of an exposed port."""
    return Cluster(
        cluster_name(port),
        Discovered(),
        transport_socket=_INTO_FORWARD,
        connect_timeout=CONNECT_TIMEOUT,
        by_source=bool(port.service.waypoints),
    )


_INTO_FORWARD = internal_upstream(DESTINATION)


def endpoint(port: ExposedPort, workload: Workload, target: int) -> TunnelEndpoint:
    """An endpoint: the pod's port, dialled where tunnels to the pod end, which for a waypoint is that port."""
    address = workload.addresses[0]
    service = port.service
    ends = target if service.is_waypoint and port.number == HBONE_PORT else HBONE_PORT
    sources = (FROM_WAYPOINT,) if service.ingress_waypoint else (FROM_WAYPOINT, FROM_GATEWAY)
    return TunnelEndpoint(
        FORWARD_INNER_CONNECT,
        socket_text(address, target),
        dialled=socket_text(address, ends),
        sources=sources if service.waypoints else (),
    )


def waypoint_endpoints(port: ExposedPort) -> tuple[TunnelEndpoint, ...]:
    """The endpoints that stand for the waypoints of a port's service."""
    sources = (FROM_GATEWAY, _FROM_OTHERS) if port.service.ingress_waypoint else (_FROM_OTHERS,)
    return tuple(
        TunnelEndpoint(TO_WAYPOINT, authority, weight=percentage, sources=sources)
        for authority, percentage in port.service.waypoints
    )
