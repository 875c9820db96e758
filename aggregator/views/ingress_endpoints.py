"""Endpoints of the services behind Ingresses: encoded one by one where they change, composed for each backend.

Those of the home network come first, ways to other networks stand behind them. A service that is to be reached through
its waypoint has the waypoint's pods as its endpoints and no others, so that nobody gets round what they enforce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Withheld
from aggregator.mesh.global_services import GlobalServices, Service
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.identities import spiffe_id
from aggregator.mesh.networks import HBONE_PORT, Networks, network_of
from aggregator.mesh.split_horizon import Key, SplitHorizon
from aggregator.mesh.waypoints import Waypoint, hostname_of
from aggregator.mesh.workload import Workload, WorkloadKey
from aggregator.mesh.workloads import Workloads
from aggregator.traffic.backends import Backend
from xds.encoded import Encoded, Resource, wrap
from xds.messages.assignment import (
    ASSIGNMENT_TYPE,
    DoubleTunnel,
    Group,
    SocketEndpoint,
    TunnelEndpoint,
    encode_assignment,
    encode_endpoint,
    socket_text,
)
from xds.messages.hbone import CONNECT_ORIGINATE, INNER_CONNECT_ORIGINATE

_HOME, _ELSEWHERE = 0, 1  # priorities


class Sources(msgspec.Struct, frozen=True):
    """What endpoints are made from."""

    mesh: Callable[[At], Mesh]
    networks: Networks
    workloads: Workloads
    services: GlobalServices
    split_horizon: Collection[Key, SplitHorizon]
    backends: Collection[str, Backend]


class Target(msgspec.Struct, frozen=True, gc=False):
    """A backend as its endpoints in the home network need to know it.

    Where requests go through a waypoint, `service` and `port` are those of the waypoint, whose pods are the endpoints
    then, and `behind` is the address and port of the backend itself, which it is asked for.
    """

    service: str
    port: int
    allow_unready: bool
    network: str
    trust_domain: str
    behind: str = ""


class Reach(msgspec.Struct, frozen=True, gc=False):
    """A backend as the ways to other networks need to know it: `authority` is `<hostname>:<port>`."""

    service: str
    port: int
    authority: str
    identities: tuple[str, ...]
    trust_domain: str


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One endpoint of a backend, as bytes; `tunnelled`: it is in the mesh."""

    priority: int
    weight: int
    encoded: Encoded
    tunnelled: bool = True


def declare(graph: Graph, home: Home, model: Sources) -> Collection[str, Resource]:
    """Declare the endpoints of every backend, found or not, by its key."""

    def target(at: At, _key: str, backend: Backend) -> Outcome[Target]:
        service = at.get(model.services.services, backend.service) if backend.found else None
        if service is None:
            return Withheld("BackendNotFound")
        network = network_of(at, model.networks.of_cluster, home.cluster)
        trust_domain = model.mesh(at).trust_domain
        waypoint, address = _through(service, network)
        if waypoint is not None:
            name = f"{waypoint.namespace}/{hostname_of(waypoint, home)}"
            if at.get(model.services.services, name) is None:
                detail = f"ingress gateways cannot get to its waypoint {name}"
                at.note(service.base, Finding(service.base, "WaypointHasNoService", "metadata.labels", detail))
            return Target(name, HBONE_PORT, False, network, trust_domain, socket_text(address, backend.port))
        return Target(backend.service, backend.port, service.allow_unready, network, trust_domain)

    def reach(at: At, _key: str, backend: Backend) -> Outcome[Reach]:
        service = at.get(model.services.services, backend.service) if backend.found else None
        if service is None:
            return Withheld("BackendNotFound")
        if not service.is_global:
            return Withheld("ServiceIsNotGlobal")
        if _through(service, network_of(at, model.networks.of_cluster, home.cluster))[0] is not None:
            return Withheld("ReachedThroughWaypoint")  # which knows the ways itself
        authority = f"{service.hostname}:{backend.port}"
        return Reach(backend.service, backend.port, authority, service.identities, model.mesh(at).trust_domain)

    targets = graph.derive("targets", model.backends, target)
    reaches = graph.derive("reaches", model.backends, reach)
    here = graph.pair(
        "endpoints of backends",
        graph.index("targets by service", targets, lambda _, one: ((one.network, one.service),)),
        model.workloads.near,
        _endpoint,
    )
    elsewhere = graph.pair(
        "ways of backends",
        graph.index("reaches by service", reaches, lambda _, one: (one.service,)),
        graph.index("ways by service", model.split_horizon, lambda key, _: (key[1],)),
        _way,
    )
    either = cast("tuple[Collection[tuple[str, WorkloadKey | Key], Endpoint], ...]", (here, elsewhere))
    by_backend = graph.index("endpoints by backend", either, lambda key, _: (key[0],))

    def assignment(at: At, key: str, backend: Backend) -> Resource:
        groups: dict[int, list[Encoded]] = {_HOME: [], _ELSEWHERE: []}
        weights = {_HOME: 0, _ELSEWHERE: 0}
        members = at.group(by_backend, key)
        own = own_address(at, backend, members.values()) if backend.connections.upstream and members else None
        if own is not None:
            return wrap(ASSIGNMENT_TYPE, key, encode_assignment(key, [Group((encode_endpoint(own),), own.weight)]))
        for member in sorted(members, key=lambda one: (members[one].priority, one[1])):
            one = members[member]
            groups[one.priority].append(one.encoded)
            weights[one.priority] += one.weight
        told = [
            Group(tuple(encoded), weights[priority], priority=priority)
            for priority, encoded in groups.items()
            if encoded
        ]
        return wrap(ASSIGNMENT_TYPE, key, encode_assignment(key, told))

    def own_address(at: At, backend: Backend, members: Iterable[Endpoint]) -> SocketEndpoint | None:
        """The address of a backend's Service, for who wants that; None where it is not to be had.

        What is in the mesh is reached by the mesh's tunnels whatever an Ingress wants: in plain its policies would not
        know who comes.
        """
        service = at.get(model.services.services, backend.service)
        if service is None:
            return None
        network = network_of(at, model.networks.of_cluster, home.cluster)
        address = _address(service, network)
        if (network, address) in service.allocated:
            address = ""  # nobody outside of the mesh gets there
        if any(one.tunnelled for one in members) or not address:
            detail = "some of its endpoints are in the mesh" if address else "it has no address of its own"
            at.note(service.base, Finding(service.base, "ServiceUpstreamNotUsed", "spec.clusterIP", detail))
            return None
        return SocketEndpoint(address, backend.port)

    return graph.derive("assignments of backends", model.backends, assignment)


def _address(service: Service, network: str) -> str:
    """The address of a service in a network, "" without one."""
    return next((address for where, address in service.addresses if where == network and "/" not in address), "")


def _through(service: Service, network: str) -> tuple[Waypoint | None, str]:
    """The waypoint of the home network that requests for a service go through, and the service's address there.

    Where the waypoint is in another network, the gateway there leads through it; what has no address cannot be asked of
    a waypoint.
    """
    if service.attached is None or not service.ingress_waypoint or service.attached.waypoint.network != network:
        return None, ""
    address = _address(service, network)
    return (service.attached.waypoint, address) if address else (None, "")


def _endpoint(_backend: str, target: Target, _key: WorkloadKey, workload: Workload) -> Outcome[Endpoint]:
    """A workload of the home network: by a tunnel if it takes one, which only its own identity may answer."""
    if not workload.healthy and not target.allow_unready:
        return Withheld("EndpointNotReady")
    port = next(
        (
            behind
            for service, ports in workload.services
            if service == target.service
            for number, behind in ports
            if number == target.port
        ),
        0,
    )
    if not port:
        return Withheld("PortNotServed")
    address = workload.addresses[0]
    own = socket_text(address, port)
    if not workload.tunnel and not target.behind:
        return Endpoint(_HOME, 1, encode_endpoint(SocketEndpoint(address, port)), tunnelled=False)
    traits = workload.traits
    account = workload.service_account or "default"
    identity = spiffe_id(traits.trust_domain or target.trust_domain, traits.namespace, account)
    tunnel = TunnelEndpoint(
        CONNECT_ORIGINATE,
        target.behind or own,
        # A waypoint ends tunnels itself, at the port that was asked for.
        dialled=own if target.behind else socket_text(address, HBONE_PORT),
        identities=(identity,),
        id=own,
    )
    return Endpoint(_HOME, 1, encode_endpoint(tunnel))


def _way(_backend: str, reach: Reach, _key: Key, split: SplitHorizon) -> Outcome[Endpoint]:
    """All endpoints in another network that are behind one gateway, by a tunnel within a tunnel."""
    if not any(port.number == reach.port for port in split.ports):
        return Withheld("PortNotServed")
    gateway = split.gateway
    tunnel = TunnelEndpoint(
        INNER_CONNECT_ORIGINATE,
        socket_text(gateway.address, gateway.port),
        double=DoubleTunnel(
            reach.authority,
            reach.identities,
            (spiffe_id(gateway.trust_domain or reach.trust_domain, gateway.namespace, gateway.service_account),),
        ),
        weight=split.capacity,
    )
    return Endpoint(_ELSEWHERE, split.capacity, encode_endpoint(tunnel))
