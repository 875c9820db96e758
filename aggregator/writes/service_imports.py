"""The ServiceImports of home: one for each service that any cluster exports, in the namespace of its name (KEP-1645).

They are made, kept and deleted here, where home serves their kind and lets them be read. What somebody else made under
such a name is left as it is. Of a registered cluster that has not been read nothing is known: an import that names it
stands unchanged until then, and is not deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.allocated_addresses import POOLS, AllocatedAddresses
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.mesh.service_exports import ClusterSetService, Name, ServiceExports
from aggregator.writes import conditions as made
from watchers.facts.cluster import Answered
from watchers.facts.core import Namespace
from watchers.facts.keys import ObjectKey
from watchers.facts.multicluster import ImportSpec, ServiceImport
from watchers.owned_objects import ImportedService, OwnedObject, Removal
from watchers.writes import ServiceImportStatus, Write, WriteKey

READY = "Ready"
MANAGED_BY = ("app.kubernetes.io/managed-by", "isthmus")

_UNREAD = Withheld("ClusterNotRead")


class Sources(msgspec.Struct, frozen=True):
    """What is read; ``answered`` says whether home serves ServiceImports."""

    answered: Source[ObjectKey, Answered]
    namespaces: Source[ObjectKey, Namespace]
    imports: Source[ObjectKey, ServiceImport]
    exports: ServiceExports
    allocated: AllocatedAddresses


def declare(
    graph: Graph, home: Home, includes: Includes, answers: Answers, sources: Sources
) -> Collection[WriteKey, Write]:
    """Declare what home's ServiceImports are to be."""
    exports, imports = sources.exports, sources.imports

    def name_of(key: ObjectKey, _: Any) -> Iterable[Name]:
        cluster, kind, namespace, name = key
        return ((namespace, name),) if kind == "ServiceExport" or cluster == home.cluster else ()

    everything: tuple[Collection[ObjectKey, Any], ...] = (exports.exported, imports)
    by_name = graph.index("exports and imports by name", everything, name_of)

    def of_name(at: At, name: Name, _members: Mapping[ObjectKey, Any]) -> Iterable[tuple[WriteKey, Outcome[Write]]]:
        key = (home.cluster, "ServiceImport", *name)
        present, service = at.get(imports, key), at.get(exports.services, name)
        refusal = not_to_be_written(at, present)
        yield (*key, "object"), refusal or of_object(at, name, present, service)
        yield (*key, "status"), refusal or of_status(present, service)

    def not_to_be_written(at: At, present: ServiceImport | None) -> Withheld | None:
        known = at.get(sources.answered, (home.cluster, "Answered", "", home.cluster))
        if known is None or "ServiceImport" not in known.read:
            return Withheld("ImportsNotServed")
        if present is not None and not present.owned:
            return Withheld("ImportOfOthers")
        if not answers.all(at):
            return _UNREAD
        if present is not None and any(answers.unread(at, cluster) for cluster in present.clusters):
            return _UNREAD
        return None

    def of_object(
        at: At, name: Name, present: ServiceImport | None, service: ClusterSetService | None
    ) -> Outcome[OwnedObject]:
        unwanted = Withheld("NothingExported") if service is None else None
        if not home.multicluster_services:
            unwanted = Withheld("MulticlusterServicesOff")
        elif not includes(at, home.cluster, name[0]):
            unwanted = UNSELECTED
        if service is None or unwanted is not None:
            return Removal(present.uid) if present is not None else unwanted or UNSELECTED
        if at.get(sources.namespaces, home.namespace_key(home.cluster, name[0])) is None:
            return Withheld("NamespaceNotOfHome")
        spec = wanted(at, name, service)
        if spec is None:
            return Withheld("ImportAddressPending")
        labels = tuple(sorted({**dict(service.decided.labels), MANAGED_BY[0]: MANAGED_BY[1]}.items()))
        annotations = service.decided.annotations
        if present is not None and (labels, annotations, spec) == (present.labels, present.annotations, present.spec):
            return Withheld("ImportCurrent")
        return ImportedService(labels, annotations, spec, exists=present is not None)

    def wanted(at: At, name: Name, service: ClusterSetService) -> ImportSpec | None:
        """The spec of an import; None while its addresses are not known."""
        decided = service.decided
        if decided.headless:
            return ImportSpec("Headless", service.ports, families=decided.families)
        namespace, own = name
        key = f"{namespace}/{own}.{namespace}.svc.{home.clusterset_domain}"
        addresses = {family: at.get(sources.allocated.addresses, (key, family)) for family in POOLS}
        families = tuple([one for one in decided.families or POOLS if addresses.get(one)])
        if not families:
            return None
        affinity, seconds = decided.affinity
        return ImportSpec(
            "ClusterSetIP",
            service.ports,
            tuple([address for one in families if (address := addresses[one])]),
            families,
            affinity,
            seconds,
            decided.internal_traffic_policy,
            decided.traffic_distribution,
        )

    return graph.expand("service imports", by_name, of_name)


def of_status(present: ServiceImport | None, service: ClusterSetService | None) -> Outcome[ServiceImportStatus]:
    """What the status of an import is to say."""
    if present is None or service is None:
        return Withheld("ImportPending")
    conditions = (made.good(READY, present.generation),)
    if service.clusters == present.clusters and made.said(conditions, present.conditions):
        return Withheld("StatusCurrent")
    return ServiceImportStatus(service.clusters, made.dated(conditions, present.conditions))
