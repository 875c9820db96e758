"""How a stock Envoy is told to be an east-west gateway.

Listeners and the clusters between them are constant. The name of a service's cluster is made from the authority of the
CONNECT request when a connection begins, under a prefix, so that no client can name one of the gateway's own; where
there is none of that name the client is answered 503. What kind of proxy asks is kept in filter state beside it, for
services whose waypoint is to be passed over for some.
"""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.mesh.exposure import ExposedPort
from aggregator.mesh.networks import HBONE_PORT
from aggregator.mesh.workload import Workload
from xds.messages.assignment import TunnelEndpoint, socket_text
from xds.messages.cluster import BLACK_HOLE, Cluster, Discovered, InternalListener, Nothing, OriginalDestination
from xds.messages.connect_terminate import AUTHORITY, MAIN_INTERNAL
from xds.messages.filters import (
    FILTER_STATE_CLUSTER,
    STARTED,
    FilterState,
    access_logs,
    set_filter_state,
    tcp_proxy,
)
from xds.messages.hbone import CONNECT_TIMEOUT, DESTINATION, FORWARD_INNER_CONNECT, internal_listener, internal_upstream
from xds.messages.listener import Listener

PREFIX = "ew|"

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


def main_internal(_ports: Iterable[ExposedPort], _network: str, log_file: str) -> Listener:
    """The listener that finds the cluster of a tunnel."""
    return internal_listener(
        MAIN_INTERNAL,
        set_filter_state(
            "service_cluster", [FilterState(FILTER_STATE_CLUSTER, f"{PREFIX}%FILTER_STATE({AUTHORITY}:PLAIN)%")]
        ),
        tcp_proxy(BLACK_HOLE, MAIN_INTERNAL, access_logs=access_logs(log_file, _LOGGED)),
        restore_destination=False,
    )


def forward_inner_connect() -> Listener:
    """The listener that passes bytes on to an endpoint: they are the client's tunnel, which ends there and not here."""
    return internal_listener(FORWARD_INNER_CONNECT, tcp_proxy(FORWARD_INNER_CONNECT, FORWARD_INNER_CONNECT))


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
    return Cluster(cluster_name(port), Discovered(), transport_socket=_INTO_FORWARD, connect_timeout=CONNECT_TIMEOUT)


_INTO_FORWARD = internal_upstream(DESTINATION)


def endpoint(workload: Workload, port: int) -> TunnelEndpoint:
    """An endpoint: the pod's port, dialled where tunnels to the pod end."""
    address = workload.addresses[0]
    return TunnelEndpoint(FORWARD_INNER_CONNECT, socket_text(address, port), dialled=socket_text(address, HBONE_PORT))
