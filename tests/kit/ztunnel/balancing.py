"""Which endpoints of a service a client may be sent to, and with what weight.

ztunnel draws one of them at random by capacity. Here the whole list is returned, ordered by uid, so that a test can
state who may be chosen and how often. Health does not appear: unhealthy endpoints never became part of the service.
"""

from __future__ import annotations

from msgspec import Struct

from tests.kit.ztunnel.records import BalancingMode, Endpoint, LoadBalancer, RoutingScope, Service, Workload
from tests.kit.ztunnel.state import State


class Candidate(Struct, frozen=True):
    """An endpoint that may be chosen.

    `weight` is its capacity; with 0 it is never drawn. `port` is where it listens, None if neither endpoint nor service
    says: a connection for which it is drawn fails. `rank` counts the scopes shared with the client, among them all
    others if the first is the network.
    """

    workload: Workload
    weight: int
    port: int | None
    rank: int


def candidates(
    state: State, source: Workload, service: Service, port: int, *, waypoint: bool = False
) -> tuple[Candidate, ...]:
    """Endpoints of `service` for a connection of `source` to `port`, only those of the best rank.

    With `waypoint` the service is looked up as a waypoint, whose port need not be declared if its workloads have an
    application tunnel.
    """
    if not waypoint and port not in service.ports:
        return ()
    found: list[Candidate] = []
    for uid in sorted(service.endpoints):
        workload = state.workloads.by_uid.get(uid)
        if workload is None or not _reachable(source, workload):
            continue
        endpoint = service.endpoints[uid]
        if waypoint:
            if port not in service.ports and workload.application_tunnel is None:
                continue
        elif not service.ports[port] and port not in endpoint.ports:
            continue
        rank = _rank(source, workload, service.load_balancer)
        if rank is not None:
            found.append(Candidate(workload, workload.capacity, _target_port(service, endpoint, workload, port), rank))
    best = max((candidate.rank for candidate in found), default=0)
    return tuple(candidate for candidate in found if candidate.rank == best)


def _reachable(source: Workload, workload: Workload) -> bool:
    """A workload without address is of use only from another network, through its gateway."""
    if workload.addresses or workload.hostname:
        return True
    return workload.network != source.network and workload.network_gateway is not None


def _target_port(service: Service, endpoint: Endpoint, workload: Workload, port: int) -> int | None:
    """The endpoint's own mapping, else the service's, else the port itself if an application tunnel takes it."""
    if port in endpoint.ports:
        return endpoint.ports[port]
    if service.ports.get(port):
        return service.ports[port]
    tunnel = workload.application_tunnel
    return port if tunnel is not None and tunnel.port is not None else None


def _rank(source: Workload, workload: Workload, balancer: LoadBalancer | None) -> int | None:
    """How well an endpoint fits the client by the service's scopes; None: not at all.

    Scopes count as long as they match without a gap. A network in first place is special: endpoints of another
    network are ranked by the scopes behind it, below every endpoint of the own one.
    """
    if balancer is None or balancer.mode in (BalancingMode.STANDARD, BalancingMode.PASSTHROUGH):
        return 0
    scopes = balancer.scopes
    network_first = bool(scopes) and scopes[0] is RoutingScope.NETWORK
    rank = bonus = 0
    for scope in scopes:
        shared = _shares(scope, source, workload)
        if scope is RoutingScope.NETWORK and network_first:
            if not shared:
                continue
            bonus = len(scopes) - 1
        if not shared:
            break
        rank += 1
    if balancer.mode is BalancingMode.STRICT and rank != len(scopes):
        return None
    return rank + bonus


def _shares(scope: RoutingScope, source: Workload, workload: Workload) -> bool:
    match scope:
        case RoutingScope.REGION:
            return source.locality.region == workload.locality.region
        case RoutingScope.ZONE:
            return source.locality.zone == workload.locality.zone
        case RoutingScope.SUBZONE:
            return source.locality.subzone == workload.locality.subzone
        case RoutingScope.NODE:
            return source.node == workload.node
        case RoutingScope.CLUSTER:
            return source.cluster_id == workload.cluster_id
        case RoutingScope.NETWORK:
            return source.network == workload.network
