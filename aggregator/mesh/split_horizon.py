"""Split horizon: how home reaches a global service's endpoints in another network.

Those endpoints are not told one by one. For every (network, service) there is one record per gateway into the network,
whose capacity is that gateway's share of the endpoints ready behind it: the same numbers for every kind of proxy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Sums, Withheld
from aggregator.mesh.global_services import GlobalServices
from aggregator.mesh.home import Home
from aggregator.mesh.networks import NetworkGateway, Networks, network_of
from aggregator.mesh.services import Port
from aggregator.mesh.workload import PORTS, READY, READY_REDUCED, REDUCED, TOTAL, ServiceInNetwork
from aggregator.mesh.workloads import Workloads

Key: TypeAlias = tuple[str, str, str, int]
"""(network, service key, gateway address, gateway port)."""


class SplitHorizon(msgspec.Struct, frozen=True, gc=False):
    """A service's endpoints in one other network, through one gateway.

    `capacity` counts endpoints (never 0), half of those of clusters whose standing is reduced. `healthy` is false only
    for services that take traffic while unready (publishNotReadyAddresses) and have no ready endpoint there; then
    capacity counts all of them. `ports` are the service's ports that some endpoint there serves.
    """

    network: str
    service: str
    namespace: str
    gateway: NetworkGateway
    capacity: int
    healthy: bool
    ports: tuple[Port, ...]


def declare(
    graph: Graph,
    home: Home,
    networks: Networks,
    global_services: GlobalServices,
    workloads: Workloads,
) -> Collection[Key, SplitHorizon]:
    """Declare the ways to endpoints in other networks."""

    def split(at: At, key: ServiceInNetwork, sums: Sums) -> Iterable[tuple[Key, Outcome[SplitHorizon]]]:
        network, name = key
        nowhere = (network, name, "", 0)
        if network == network_of(at, networks.of_cluster, home.cluster):
            yield nowhere, Withheld("InHomeNetwork")
            return
        service = at.get(global_services.shared, name)
        if service is None:
            yield nowhere, Withheld("ServiceIsNotGlobal")
            return
        healthy = sums.get(READY, 0) > 0
        if not healthy and not service.allow_unready:
            yield nowhere, Withheld("NetworkHasNoReadyEndpoint", f"{sums.get(TOTAL, 0)} not ready")
            return
        gateways = sorted(at.group(networks.ways_into, network).values(), key=_address_order)
        if not gateways:
            detail = f"{sums.get(TOTAL, 0)} endpoints are in network {network!r}, which no gateway leads to"
            if at.group(networks.declared, network):
                detail += "; those it has are without an address that can be used"
            at.note(service.base, Finding(service.base, "NetworkHasNoGateway", "metadata.labels", detail))
            yield nowhere, Withheld("NetworkHasNoGateway", network)
            return
        served = {number for tag in sums if isinstance(tag, tuple) and tag[0] == PORTS for number in tag[1]}
        ports = tuple(port for port in service.ports if port.number in served)
        capacity = _capacity(sums, READY, READY_REDUCED) if healthy else _capacity(sums, TOTAL, REDUCED)
        for gateway, share in zip(gateways, shares(capacity, len(gateways)), strict=True):
            if share:
                yield (
                    (network, name, gateway.address, gateway.port),
                    SplitHorizon(network, name, service.namespace, gateway, share, healthy, ports),
                )

    return graph.expand("split horizon", workloads.by_service, split)


def shares(capacity: int, gateways: int) -> list[int]:
    """Split `capacity` evenly over `gateways` in whole numbers; what is left over goes to the first ones."""
    share, left = divmod(capacity, gateways)
    return [share + (number < left) for number in range(gateways)]


def _capacity(sums: Sums, counted: str, reduced: str) -> int:
    """The endpoints, of which those of every cluster with a reduced standing count half, rounded up."""
    halves = sum(number // 2 for tag, number in sums.items() if isinstance(tag, tuple) and tag[0] == reduced)
    return sums[counted] - halves


def _address_order(gateway: NetworkGateway) -> tuple[bytes, str, int]:
    return (gateway.packed, gateway.address, gateway.port)
