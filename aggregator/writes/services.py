"""What Services are told: whether they are shared with other clusters, whether those agree, and their waypoint.

Two conditions are our own, on home's global Services. `isthmus.dev/Global` tells whether other clusters share the
service: not which ones, or every cluster that joins would have every Service of home written, and not how many
endpoints they have. In `isthmus.dev/ClustersAgree` it shows where their Services contradict each other. The one about
waypoints is Istio's, and is written only in Istio's place (--istio-classes).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from aggregator import findings
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh import global_services
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.services import Declared
from aggregator.mesh.waypoints import Asked, Waypoints
from aggregator.writes import conditions as made
from aggregator.writes.waypoints import bound
from watchers.facts.conditions import Condition, Conditions
from watchers.facts.core import Service
from watchers.facts.keys import ObjectKey
from watchers.writes import ConditionsStatus, WriteKey

GLOBAL: Final = "isthmus.dev/Global"
CLUSTERS_AGREE: Final = "isthmus.dev/ClustersAgree"
_OWN = (GLOBAL, CLUSTERS_AGREE)


class Sources(msgspec.Struct, frozen=True):
    """What is told, and of what."""

    services: Source[ObjectKey, Service]
    declared: Collection[ObjectKey, Declared]
    merged: Collection[str, global_services.Service]
    waypoints: Waypoints


def declare(graph: Graph, home: Home, answers: Answers, sources: Sources) -> Collection[WriteKey, ConditionsStatus]:
    """Declare what home's Services are to be told."""

    def status(at: At, key: ObjectKey, service: Service) -> Iterable[tuple[WriteKey, Outcome[ConditionsStatus]]]:
        # Of the others, of which there are a hundred times as many, not even a reason is kept.
        if key[0] == home.cluster:
            yield (*key, "status"), told(at, key, service)

    def told(at: At, key: ObjectKey, service: Service) -> Outcome[ConditionsStatus]:
        if not answers.all(at):
            return Withheld("ClusterNotRead")
        declared = at.get(sources.declared, key)
        wanted: Conditions = ()
        if declared is not None:
            if declared.is_global:
                standing = tuple([one for one in service.conditions if one.type in _OWN])
                # A cluster that was never read may be one that shares it: what was said of it before stands.
                wanted += standing if standing and answers.some_unread(at) else shared(at, declared)
            if home.istio_classes:
                asked = Asked(key[0], key[2], service.labels, service.annotations, "service")
                wanted += bound(sources.waypoints.of(at, asked), ingress=declared.ingress_waypoint)
        if not wanted and not service.written:
            return Withheld("NothingToTell")
        applied = made.one_by_one(wanted, service.conditions, service.written)
        return Withheld("StatusCurrent") if applied is None else ConditionsStatus(applied)

    def shared(at: At, declared: Declared) -> Conditions:
        """What is told of a global Service."""
        service = at.get(sources.merged, declared.key)
        if service is None:
            return ()
        if len(service.clusters) == 1:
            alone = "No other cluster has a global Service of this namespace and name."
            return (Condition(GLOBAL, "True", "NotSharedElsewhere", alone, 0),)
        together = "Other clusters have a global Service of this namespace and name."
        told = Condition(GLOBAL, "True", "Shared", together, 0)
        if not service.disagreements:
            return (told, made.good(CLUSTERS_AGREE, 0))
        flawed = made.flawed(CLUSTERS_AGREE, 0, service.disagreements[0][0])
        return (told, msgspec.structs.replace(flawed, message=_message(service.disagreements)))

    return graph.expand("status of services", sources.services, status)


def _message(disagreements: tuple[tuple[str, str], ...]) -> str:
    told = []
    for code, detail in disagreements:
        entry = findings.CATALOGUE[code]
        told.append(f"{entry.meaning} {detail[:1].upper()}{detail[1:]}. {entry.cure}")
    return " ".join(told)[: made.LONGEST_MESSAGE]
