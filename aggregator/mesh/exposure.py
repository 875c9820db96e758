"""Exposure: the services that other networks may reach through this network's gateways, port by port.

They are the global ones, and the Services of the waypoints before these; of each the ports that carry TCP: tunnels
carry nothing else. What is kept is the little that gateways are told, so that other changes of a service end here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Withheld
from aggregator.mesh.global_services import Service
from aggregator.mesh.home import Home
from aggregator.mesh.networks import HBONE_PORT
from aggregator.mesh.waypoints import Attached, Waypoint, hostname_of
from watchers.facts.keys import ObjectKey

_GLOBAL, _LOCAL = "global", "local"


class Exposed(msgspec.Struct, frozen=True, gc=False):
    """A service as gateways know it: see `global_services.Service`.

    `ports` are numbers, in the service's order. `waypoints` are those that clients go through, each as the authority of
    its Service and its percentage of the traffic; ingress gateways of other networks do so only if `ingress_waypoint`.
    `is_waypoint`: some service has it as its waypoint.
    """

    key: str
    namespace: str
    name: str
    hostname: str
    base: ObjectKey
    ports: tuple[int, ...]
    addresses: tuple[tuple[str, str], ...]
    allow_unready: bool
    waypoints: tuple[tuple[str, int], ...] = ()
    ingress_waypoint: bool = False
    is_waypoint: bool = False


class ExposedPort(msgspec.Struct, frozen=True, gc=False):
    """One port of it."""

    service: Exposed
    number: int

    @property
    def authority(self) -> str:
        """What a tunnel to it names as its destination, `<hostname>:<port>`: the key among exposed ports."""
        return authority(self.service.hostname, self.number)


class Exposure(msgspec.Struct, frozen=True):
    """The part of the graph this module declares; ports are by authority."""

    services: Collection[str, Exposed]
    ports: Collection[str, ExposedPort]


def authority(hostname: str, port: int) -> str:
    """`<hostname>:<port>`."""
    return f"{hostname}:{port}"


def declare(graph: Graph, home: Home, services: Collection[str, Service]) -> Exposure:
    """Declare what is exposed."""

    def before(_key: str, service: Service) -> Iterable[tuple[str, str, int]]:
        scope = _GLOBAL if service.is_global else _LOCAL
        for waypoint, _ in _shares(service.attached):
            yield f"{waypoint.namespace}/{hostname_of(waypoint, home)}", scope, 1

    behind = graph.fold("services behind waypoints", services, before)

    def exposed(at: At, key: str, service: Service) -> Outcome[Exposed]:
        fronted = at.get(behind, key) or {}
        if not service.is_global and not fronted.get(_GLOBAL):
            return Withheld("ServiceIsNotGlobal")
        return Exposed(
            key=key,
            namespace=service.namespace,
            name=service.name,
            hostname=service.hostname,
            base=service.base,
            # A number may be there twice, for TCP and for UDP.
            ports=tuple(dict.fromkeys(port.number for port in service.ports if port.transport == "TCP")),
            # Ranges stand for hosts outside the mesh, and nobody elsewhere knows what was allocated here.
            addresses=tuple([one for one in service.addresses if "/" not in one[1] and one not in service.allocated]),
            allow_unready=service.allow_unready,
            waypoints=tuple(
                [
                    (authority(hostname_of(waypoint, home), HBONE_PORT), percentage)
                    for waypoint, percentage in _shares(service.attached)
                    if percentage
                ]
            ),
            ingress_waypoint=service.ingress_waypoint,
            is_waypoint=bool(fronted),
        )

    def ports(_at: At, _key: str, service: Exposed) -> Iterable[tuple[str, Outcome[ExposedPort]]]:
        for number in service.ports:
            yield authority(service.hostname, number), ExposedPort(service, number)

    found = graph.derive("exposed services", services, exposed)
    return Exposure(found, graph.expand("exposed ports", found, ports))


def _shares(attached: Attached | None) -> Iterable[tuple[Waypoint, int]]:
    """The waypoints of a service and how many percent of its traffic each has."""
    if attached is not None:
        yield attached.waypoint, 100 - attached.canary_weight
        if attached.canary is not None:
            yield attached.canary, attached.canary_weight
