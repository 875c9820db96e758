"""Exported services: what ServiceExports of all clusters come to (the Multi-Cluster Services API, KEP-1645).

A Service that is exported under its name in some clusters is one service of the whole set of clusters, under a host
name of its own, `<name>.<namespace>.svc.<clusterset domain>`; only the clusters that export it take part. Where their
Services say different things the oldest export decides, and all that say otherwise are told so. Ports are the union;
of two that collide, in name or in number, the older export's stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.order import Rank, rank
from watchers.facts.core import Service
from watchers.facts.keys import Labels, ObjectKey
from watchers.facts.multicluster import ImportPort, ServiceExport

Name: TypeAlias = tuple[str, str]
"""(namespace, name): the same in all clusters, which makes it the same service."""

P = TypeVar("P")


class Exported(msgspec.Struct, frozen=True, gc=False):
    """A valid export: the properties of its Service that those of all clusters should have in common.

    `affinity` is spec.sessionAffinity and the seconds that of a client holds.
    """

    cluster: str
    namespace: str
    name: str
    created: str
    headless: bool
    ports: tuple[ImportPort, ...]
    affinity: tuple[str, int]
    internal_traffic_policy: str
    traffic_distribution: str
    families: tuple[str, ...]
    labels: Labels
    annotations: Labels


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """A property about which exports disagree: the API's word for it, and what people should know."""

    reason: str
    message: str


class ClusterSetService(msgspec.Struct, frozen=True, gc=False):
    """An exported service as all clusters have it. `decided` is the oldest export; `clusters` are sorted."""

    decided: Exported
    ports: tuple[ImportPort, ...]
    clusters: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


class ServiceExports(msgspec.Struct, frozen=True):
    """The part of the graph this module declares: the valid exports, and the services they come to."""

    exported: Collection[ObjectKey, Exported]
    services: Collection[Name, ClusterSetService]


def declare(
    graph: Graph,
    includes: Includes,
    services: Source[ObjectKey, Service],
    exports: Source[ObjectKey, ServiceExport],
) -> ServiceExports:
    """Declare what is exported."""

    def valid(at: At, key: ObjectKey, export: ServiceExport) -> Outcome[Exported]:
        cluster, _, namespace, name = key
        if not includes(at, cluster, namespace):
            return UNSELECTED
        service = at.get(services, (cluster, "Service", namespace, name))
        flaw = unexportable(service)
        if service is None or flaw:
            at.note(key, Finding(key, flaw, "metadata.name", f"{namespace}/{name} cannot be exported"))
            return Withheld(flaw)
        return Exported(
            cluster=cluster,
            namespace=namespace,
            name=name,
            created=export.created,
            headless=service.headless,
            ports=tuple([ImportPort(one.name, one.port, one.protocol, one.app_protocol) for one in service.ports]),
            affinity=(service.affinity, service.affinity_seconds),
            internal_traffic_policy=service.internal_traffic_policy,
            traffic_distribution=service.traffic_distribution,
            families=service.ip_families,
            labels=export.labels,
            annotations=export.annotations,
        )

    exported = graph.derive("valid exports", exports, valid)
    by_name = graph.index("exports by service", exported, lambda key, _: ((key[2], key[3]),))

    def of_all(at: At, _name: Name, members: Mapping[ObjectKey, Exported]) -> ClusterSetService:
        service = merged(members.values())
        for key in members if service.conflicts else ():
            detail = "; ".join([one.message for one in service.conflicts])
            at.note(key, Finding(key, "ExportsDiffer", "spec", detail))
        return service

    return ServiceExports(exported, graph.derive("services of the cluster set", by_name, of_all))


def unexportable(service: Service | None) -> str:
    """The code of why a ServiceExport cannot be followed, given the Service of its name; "" if it can."""
    if service is None:
        return "ExportWithoutService"
    return "ExportOfExternalName" if service.type == "ExternalName" else ""


def age(cluster: str, created: str, namespace: str, name: str) -> Rank:
    """Sort key of an export: the oldest decides (KEP-1645), wherever home is."""
    return rank("", cluster, created, namespace, name)


def merged(exports: Iterable[Exported]) -> ClusterSetService:
    """One service of the exports of a name, which are at least one."""
    order = sorted(exports, key=lambda one: age(one.cluster, one.created, one.namespace, one.name))
    ports = united([one.ports for one in order], lambda port: (port.name, (port.number, port.protocol)))
    return ClusterSetService(
        decided=order[0],
        ports=tuple(ports),
        clusters=tuple(sorted(one.cluster for one in order)),
        conflicts=tuple(_conflicts(order)),
    )


def united(lists: Iterable[Iterable[P]], identity: Callable[[P], tuple[str, tuple[int, str]]]) -> list[P]:
    """The union of lists of ports, the one that decides first.

    `identity` gives name, number and transport. What has the name of a port that is there already, or its number and
    transport, is left out.
    """
    found: list[P] = []
    names: set[str] = set()
    places: set[tuple[int, str]] = set()
    for ports in lists:
        for port in ports:
            name, place = identity(port)
            if name not in names and place not in places:
                names.add(name)
                places.add(place)
                found.append(port)
    return found


_PROPERTIES: tuple[tuple[str, str, Callable[[Exported], Any]], ...] = (
    ("TypeConflict", "whether the Service is headless", lambda one: one.headless),
    ("SessionAffinityConflict", "spec.sessionAffinity", lambda one: one.affinity[0]),
    ("InternalTrafficPolicyConflict", "spec.internalTrafficPolicy", lambda one: one.internal_traffic_policy),
    ("TrafficDistributionConflict", "spec.trafficDistribution", lambda one: one.traffic_distribution),
    ("LabelsConflict", "spec.exportedLabels", lambda one: one.labels),
    ("AnnotationsConflict", "spec.exportedAnnotations", lambda one: one.annotations),
)
"""What exports may disagree about, beside ports and what only some of them have: reason, field, value."""


def _conflicts(order: Sequence[Exported]) -> Iterable[Conflict]:
    first = order[0]
    decided = f"that of {first.cluster} is used, whose export is the oldest"
    if any(set(one.ports) != set(first.ports) for one in order):
        yield Conflict(
            "PortConflict",
            "spec.ports: the clusters that export the service have different ports; all are used, but of those with"
            f" one name or one number {decided}",
        )
    for reason, field, value in _PROPERTIES:
        if any(value(one) != value(first) for one in order):
            yield Conflict(reason, f"{field}: the clusters that export the service disagree; {decided}")
        elif reason == "SessionAffinityConflict" and any(one.affinity != first.affinity for one in order):
            field = "spec.sessionAffinityConfig"
            yield Conflict(
                "SessionAffinityConfigConflict",
                f"{field}: the clusters that export the service disagree; {decided}",
            )
