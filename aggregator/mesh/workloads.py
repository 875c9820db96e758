"""Workloads of all kinds and clusters, and their sums per network and service.

Sums of capacity, ports and identities are all that the rest of the mesh ever needs of workloads elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aggregator.graph import Collection, Graph, Index, Source, Sums
from aggregator.mesh import pods, profiles, service_entries, slices, workload_entries
from aggregator.mesh.home import Home
from aggregator.mesh.profiles import LabelSet
from aggregator.mesh.selection import Includes
from aggregator.mesh.services import Services
from aggregator.mesh.standing import StandingOf
from aggregator.mesh.trust_domains import TrustDomains
from aggregator.mesh.waypoints import Waypoints
from aggregator.mesh.workload import ServiceInNetwork, Workload, WorkloadKey, contributions
from watchers.facts.core import Pod
from watchers.facts.discovery import EndpointSlice
from watchers.facts.istio_networking import ServiceEntry, WorkloadEntry
from watchers.facts.keys import ObjectKey


class Objects(msgspec.Struct, frozen=True):
    """The objects that say what works where."""

    pods: Source[ObjectKey, Pod]
    slices: Source[ObjectKey, EndpointSlice]
    service_entries: Source[ObjectKey, ServiceEntry]
    workload_entries: Source[ObjectKey, WorkloadEntry]


class Workloads(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `collections` are all workloads, by the kind of their objects: pods first. `by_service` are sums of all of them,
    `near` the workloads themselves: of those in home's network or cluster, which are the ones that home's gateways
    reach without another gateway.
    """

    label_sets: Collection[LabelSet, Sums]
    collections: tuple[Collection[WorkloadKey, Workload], ...]
    by_service: Collection[ServiceInNetwork, Sums]
    near: Index[ServiceInNetwork, WorkloadKey, Workload]


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    standing: StandingOf,
    trust_domains: TrustDomains,
    networks: Collection[ObjectKey, str],
    services: Services,
    waypoints: Waypoints,
    objects: Objects,
) -> Workloads:
    """Declare workloads and their sums per network and service."""
    labelled = objects.pods, objects.workload_entries, objects.service_entries
    profile = profiles.declare(graph, home, includes, standing, trust_domains, networks, services, waypoints, labelled)
    of_slices = slices.declare(graph, home, includes, standing, networks, services, objects.slices)
    found = (
        pods.declare(graph, profile.of, of_slices.attached, objects.pods),
        of_slices.endpoints,
        workload_entries.declare(graph, home, networks, profile.of, objects.workload_entries),
        service_entries.workloads(
            graph, home, standing, trust_domains, networks, waypoints, services, objects.service_entries
        ),
    )
    by_service = graph.fold("workloads by network and service", found, contributions)

    def services_of(_key: WorkloadKey, workload: Workload) -> Iterable[ServiceInNetwork]:
        return [(workload.traits.network, service) for service, _ in workload.services]

    def far(_key: WorkloadKey, workload: Workload) -> bool:
        traits = workload.traits
        return not traits.at_home and traits.cluster != home.cluster

    near = graph.index("workloads near by service", found, services_of, unless=far)
    return Workloads(profile.label_sets, found, by_service, near)
