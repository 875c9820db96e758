"""Profiles: what labels decide of a workload, worked out once per set of labels.

Which services a pod belongs to, and which network, depends on its labels alone; the pods of a Deployment share one set.
A pod reads its profile and nothing that is its own, so that pods share their records of reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from aggregator.graph import At, Collection, Graph, Source, Sums
from aggregator.mesh.home import Home
from aggregator.mesh.networks import NETWORK_LABEL, network_of
from aggregator.mesh.selection import Includes
from aggregator.mesh.services import Port, Services
from aggregator.mesh.standing import Standing, StandingOf
from aggregator.mesh.trust_domains import TrustDomains
from aggregator.mesh.waypoints import GATEWAY_LABEL, Asked, Attached, Waypoint, Waypoints
from aggregator.mesh.workload import (
    TOTAL,
    WORKLOAD_NAME_LABEL,
    ServicePorts,
    Traits,
    canonical_name,
    canonical_revision,
    ends_tunnels,
)
from watchers.facts.core import Pod
from watchers.facts.istio_networking import ServiceEntry, WorkloadEntry
from watchers.facts.keys import Labels, ObjectKey, label

LabelSet: TypeAlias = tuple[str, str, Labels]
"""(cluster, namespace, labels)."""


class Profile(msgspec.Struct, frozen=True, gc=False):
    """All that pods of a cluster and namespace with one set of labels have in common.

    The services that select them (`served` is ready to use unless some target port is `named`), the name labels give
    to the workload they belong to ("" where they give none), and their `traits`.
    Of a namespace that does not count there is nothing else to say: they are not `selected`.
    """

    services: tuple[tuple[str, tuple[Port, ...]], ...]
    served: tuple[tuple[str, ServicePorts], ...]
    named: bool
    traits: Traits
    standing: Standing = "full"
    selected: bool = True
    workload_name: str = ""


_UNSELECTED = Profile((), (), named=False, traits=Traits("", "", network="", at_home=False), selected=False)

ProfileOf: TypeAlias = Callable[[At, str, str, Labels], Profile]
"""Reads, inside a derivation, the profile of a cluster, a namespace and labels."""


class Profiles(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    label_sets: Collection[LabelSet, Sums]
    of: ProfileOf


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    standing: StandingOf,
    trust_domains: TrustDomains,
    networks: Collection[ObjectKey, str],
    services: Services,
    waypoints: Waypoints,
    labelled: tuple[Source[ObjectKey, Pod], Source[ObjectKey, WorkloadEntry], Source[ObjectKey, ServiceEntry]],
) -> Profiles:
    """Declare the profiles of the label sets that workloads have; what ServiceEntries list has the entry's."""
    def label_set(key: ObjectKey, one: Pod | WorkloadEntry | ServiceEntry) -> Iterable[tuple[LabelSet, str, int]]:
        return (((key[0], key[2], one.labels), TOTAL, 1),) if one.labels else ()

    sources: tuple[Collection[ObjectKey, Any], ...] = labelled
    label_sets = graph.fold("label sets", sources, label_set)

    def is_home(at: At, network: str) -> bool:
        return network == network_of(at, networks, home.cluster)

    def without_labels(at: At, cluster: str, namespace: str) -> Profile:
        if not includes(at, cluster, namespace):
            return _UNSELECTED
        network, relied_on = network_of(at, networks, cluster), standing(at, cluster)
        traits = Traits(
            cluster,
            namespace,
            network=network,
            at_home=is_home(at, network),
            reduced=relied_on == "reduced",
            waypoint=waypoint_of(at, cluster, namespace, ()),
            trust_domain=trust_domains.of(at, cluster),
        )
        return Profile((), (), named=False, traits=traits, standing=relied_on)

    def waypoint_of(at: At, cluster: str, namespace: str, labels: Labels) -> Waypoint | None:
        found = waypoints.of(at, Asked(cluster, namespace, labels, (), "workload"))
        return found.waypoint if isinstance(found, Attached) else None

    def proxied(at: At, cluster: str, namespace: str, labels: Labels) -> int:
        name = label(labels, GATEWAY_LABEL)
        own = at.get(waypoints.gateways, (cluster, "Gateway", namespace, name)) if name else None
        return own.proxied if own else -1

    def profile(at: At, key: LabelSet, _count: Sums) -> Profile:
        cluster, namespace, labels = key
        if not includes(at, cluster, namespace):
            return _UNSELECTED
        present = set(labels)
        found = [
            service
            for pair in labels
            for service in at.group(services.by_selector, (cluster, namespace, pair)).values()
            if present.issuperset(service.selector)
        ]
        found.sort(key=lambda service: service.key)
        network = label(labels, NETWORK_LABEL) or network_of(at, networks, cluster)
        relied_on = standing(at, cluster)
        traits = Traits(
            cluster,
            namespace,
            network=network,
            at_home=is_home(at, network),
            labels=labels,
            native_tunnel=ends_tunnels(labels),
            canonical_name=canonical_name(labels),
            canonical_revision=canonical_revision(labels) or "latest",
            reduced=relied_on == "reduced",
            waypoint=waypoint_of(at, cluster, namespace, labels),
            proxied=proxied(at, cluster, namespace, labels),
            trust_domain=trust_domains.of(at, cluster),
        )
        return Profile(
            services=tuple((service.key, service.ports) for service in found),
            served=tuple((one.key, tuple((port.number, port.target) for port in one.ports)) for one in found),
            named=any(port.target_name for service in found for port in service.ports),
            traits=traits,
            standing=relied_on,
            workload_name=label(labels, WORKLOAD_NAME_LABEL),
        )

    profiles = graph.derive("profiles of label sets", label_sets, profile)

    def read(at: At, cluster: str, namespace: str, labels: Labels) -> Profile:
        return at.get(profiles, (cluster, namespace, labels)) or without_labels(at, cluster, namespace)

    return Profiles(label_sets, read)
