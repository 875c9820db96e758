"""How an istio-proxy is told to be an east-west gateway: the form that istiod gives it.

A filter chain in `main_internal` and a cluster for every exposed port. The listener is made of all exposed ports at
once, so every new service costs all of them, here and in the proxy, which also drains its connections: a form for
proxies that lack what the other one needs (`east_west_stock`), kept equal to istiod's so that a fleet can be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from aggregator.mesh.exposure import Exposed, ExposedPort
from aggregator.mesh.networks import HBONE_PORT
from aggregator.mesh.workload import Workload
from xds.messages.assignment import TunnelEndpoint, socket_text
from xds.messages.cluster import (
    BLACK_HOLE,
    Cluster,
    Discovered,
    InternalListener,
    Nothing,
    OriginalDestination,
    ServiceMetadata,
)
from xds.messages.connect_terminate import AUTHORITY, FROM_GATEWAY, FROM_WAYPOINT, MAIN_INTERNAL, SOURCE
from xds.messages.extension import Extension
from xds.messages.filters import http_inspector, metadata_exchange, original_destination, tcp_proxy
from xds.messages.hbone import (
    CLUSTER,
    CONNECT_TIMEOUT,
    DESTINATION,
    FORWARD_INNER_CONNECT,
    TUNNEL,
    downstream_options,
    internal_listener,
    internal_upstream,
)
from xds.messages.listener import FilterChain, Listener, ListenerFilter
from xds.messages.matcher import (
    DESTINATION_PORT,
    AddressMatch,
    AddressRange,
    ExactMatch,
    OnMatch,
    encode_matcher,
    filter_state_input,
)

_NOWHERE = "virtualInbound-blackhole"


def internal_listeners(ports: Iterable[ExposedPort], network: str, _log_file: str) -> tuple[Listener, ...]:
    """The listeners behind the one at which tunnels end: main_internal and forward_inner_connect, which passes bytes on
    to an endpoint.
    """
    return (
        _main_internal(ports, network),
        internal_listener(FORWARD_INNER_CONNECT, _proxy(FORWARD_INNER_CONNECT)),
    )


def _main_internal(ports: Iterable[ExposedPort], network: str) -> Listener:
    """The listener that picks the chain of a tunnel: by its authority, else by the address in it."""
    exposed = sorted(ports, key=attrgetter("service.hostname", "number"))
    by_port = {port.authority: port for port in exposed}
    numbers = sorted({port.number for port in exposed})
    chains = tuple(FilterChain((metadata_exchange(), _proxy(name)), name) for name in map(cluster_name, exposed))
    by_authority = tuple((port.authority, _way(port, by_port)) for port in exposed)
    by_address = AddressMatch(tuple(_addresses(exposed, by_port, network)))
    match = (
        ExactMatch(filter_state_input("authority-filter-state", AUTHORITY), by_authority, otherwise=by_address)
        if exposed
        else by_address
    )
    return Listener(
        MAIN_INTERNAL,
        chains or (FilterChain((_proxy(BLACK_HOLE),), _NOWHERE),),
        listener_filters=(
            ListenerFilter(original_destination()),
            # Looking at the first bytes would hold up protocols in which the server speaks first.
            ListenerFilter(http_inspector(), disabled_on=tuple(numbers)),
        ),
        matcher=encode_matcher(match),
        inbound=True,
    )


def _way(port: ExposedPort, exposed: Mapping[str, ExposedPort]) -> OnMatch:
    """The chain of a port, or that of its service's waypoint for those who are to go through it.

    Which that is depends on what the client says of its kind. A waypoint that is not there is not passed over: then
    there is no chain, and connections are closed. Of a waypoint and its canary all go through the first.
    """
    straight = cluster_name(port)
    if not port.service.waypoints:
        return straight
    waypoint = exposed.get(port.service.waypoints[0][0])
    through = cluster_name(waypoint) if waypoint is not None else None
    by_source: list[tuple[str, OnMatch]] = [(FROM_WAYPOINT, straight)]
    if not port.service.ingress_waypoint:
        by_source.append((FROM_GATEWAY, straight))
    elif through is not None:
        by_source.append((FROM_GATEWAY, through))
    return ExactMatch(filter_state_input("request-source-filter-state", SOURCE), tuple(by_source), otherwise=through)


def _addresses(
    ports: Iterable[ExposedPort], exposed: Mapping[str, ExposedPort], network: str
) -> Iterable[tuple[tuple[AddressRange, ...], ExactMatch]]:
    """The addresses of each service in the gateway's network, and its ports there; headless services have none."""
    by_service: dict[str, list[ExposedPort]] = {}
    for port in ports:
        by_service.setdefault(port.service.key, []).append(port)
    for members in by_service.values():
        ranges = _ranges(members[0].service, network)
        if ranges:
            numbered = tuple((str(port.number), _way(port, exposed)) for port in members)
            yield ranges, ExactMatch(DESTINATION_PORT, numbered)


def _ranges(service: Exposed, network: str) -> tuple[AddressRange, ...]:
    own = [address for where, address in service.addresses if where == network]
    return tuple(AddressRange(address, 128 if ":" in address else 32) for address in own)


def _proxy(cluster: str) -> Extension:
    return tcp_proxy(cluster, cluster)


def constant_clusters() -> tuple[Cluster, ...]:
    """The clusters that are there whatever is exposed."""
    return (
        Cluster(
            MAIN_INTERNAL,
            InternalListener(MAIN_INTERNAL),
            transport_socket=internal_upstream(),
            http_options=downstream_options(),
            stat_name=_stat_name(MAIN_INTERNAL),
        ),
        Cluster(
            _ENCAP,
            InternalListener(FORWARD_INNER_CONNECT),
            transport_socket=internal_upstream(),
            stat_name=_stat_name(_ENCAP),
        ),
        Cluster(
            FORWARD_INNER_CONNECT,
            OriginalDestination(dialled=True, port=HBONE_PORT),
            connect_timeout=CONNECT_TIMEOUT,
            stat_name=_stat_name(FORWARD_INNER_CONNECT),
        ),
        Cluster(BLACK_HOLE, Nothing(), connect_timeout=CONNECT_TIMEOUT, stat_name=_stat_name(BLACK_HOLE)),
    )


def cluster_name(port: ExposedPort) -> str:
    """`inbound-vip|<port>|tcp|<hostname>`: whatever a port speaks, what arrives is a tunnel."""
    return f"inbound-vip|{port.number}|tcp|{port.service.hostname}"


def service_cluster(port: ExposedPort) -> Cluster:
    """The cluster of an exposed port."""
    name, service = cluster_name(port), port.service
    return Cluster(
        name,
        Discovered(named=True),
        transport_socket=_INTO_FORWARD,
        connect_timeout=CONNECT_TIMEOUT,
        stat_name=_stat_name(name),
        service=ServiceMetadata(service.hostname, service.namespace, service.name, "tcp"),
    )


def endpoint(_port: ExposedPort, workload: Workload, target: int) -> TunnelEndpoint:
    """An endpoint: the pod's port. The cluster replaces it by the one where tunnels to the pod end."""
    traits = workload.traits
    revision = "" if traits.canonical_revision == "latest" else traits.canonical_revision
    who = (workload.workload_name, traits.namespace, workload.canonical_name, revision, traits.cluster)
    return TunnelEndpoint(FORWARD_INNER_CONNECT, socket_text(workload.addresses[0], target), workload=";".join(who))


def waypoint_endpoints(_port: ExposedPort) -> tuple[TunnelEndpoint, ...]:
    """None stands for a waypoint: the chain of a tunnel leads to the cluster of its Service."""
    return ()


def _stat_name(cluster: str) -> str:
    """With the separator by which istio-proxy's statistics tell the name's end."""
    return f"{cluster};"


_ENCAP = "encap"
_INTO_FORWARD = internal_upstream(
    DESTINATION, (CLUSTER, "istio"), TUNNEL, name="envoy.transport_sockets.internal_upstream"
)
