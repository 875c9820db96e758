"""Exposure: the services that other networks may reach through this network's gateways, port by port.

They are the global ones, and of each the ports that carry TCP: tunnels carry nothing else. What is kept is the little
that gateways are told, so that other changes of a service end here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Withheld
from aggregator.mesh.global_services import Service
from watchers.facts.keys import ObjectKey


class Exposed(msgspec.Struct, frozen=True, gc=False):
    """A service as gateways know it: see `global_services.Service`. `ports` are numbers, in the service's order."""

    key: str
    namespace: str
    name: str
    hostname: str
    base: ObjectKey
    ports: tuple[int, ...]
    addresses: tuple[tuple[str, str], ...]
    allow_unready: bool


class ExposedPort(msgspec.Struct, frozen=True, gc=False):
    """One port of it."""

    service: Exposed
    number: int

    @property
    def authority(self) -> str:
        """What a tunnel to it names as its destination, `<hostname>:<port>`: the key among exposed ports."""
        return authority(self.service, self.number)


class Exposure(msgspec.Struct, frozen=True):
    """The part of the graph this module declares; ports are by authority."""

    services: Collection[str, Exposed]
    ports: Collection[str, ExposedPort]


def authority(service: Exposed, port: int) -> str:
    """`<hostname>:<port>`."""
    return f"{service.hostname}:{port}"


def declare(graph: Graph, services: Collection[str, Service]) -> Exposure:
    """Declare what is exposed."""

    def exposed(_at: At, key: str, service: Service) -> Outcome[Exposed]:
        if not service.is_global:
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
        )

    def ports(_at: At, _key: str, service: Exposed) -> Iterable[tuple[str, Outcome[ExposedPort]]]:
        for number in service.ports:
            yield authority(service, number), ExposedPort(service, number)

    found = graph.derive("exposed services", services, exposed)
    return Exposure(found, graph.expand("exposed ports", found, ports))
