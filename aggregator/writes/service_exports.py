"""What home's ServiceExports are told: whether they are valid and ready, and whether clusters disagree (KEP-1645).

Every cluster's control plane tells its own exports, so a conflict stands on all of them. One that was told is not taken
back while a registered cluster has not been read, which may be the one that disagrees.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from aggregator.findings import CATALOGUE
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.mesh.service_exports import Conflict, ServiceExports, unexportable
from aggregator.writes import conditions as made
from watchers.facts.conditions import Condition
from watchers.facts.core import Service
from watchers.facts.keys import ObjectKey
from watchers.facts.multicluster import ServiceExport
from watchers.writes import ConditionsStatus, WriteKey

VALID: Final = "Valid"
READY: Final = "Ready"
CONFLICT: Final = "Conflict"


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    answers: Answers,
    services: Source[ObjectKey, Service],
    objects: Source[ObjectKey, ServiceExport],
    exports: ServiceExports,
) -> Collection[WriteKey, ConditionsStatus]:
    """Declare what home's ServiceExports are to be told."""

    def status(
        at: At, key: ObjectKey, export: ServiceExport
    ) -> Iterable[tuple[WriteKey, Outcome[ConditionsStatus]]]:
        yield (*key, "status"), told(at, key, export)

    def told(at: At, key: ObjectKey, export: ServiceExport) -> Outcome[ConditionsStatus]:
        cluster, _, namespace, name = key
        if cluster != home.cluster:
            return Withheld("NotOfHome", cluster)
        if not answers.all(at):
            return Withheld("ClusterNotRead")
        if not home.multicluster_services:
            return ConditionsStatus() if export.told else Withheld("MulticlusterServicesOff")
        if not includes(at, cluster, namespace):
            return ConditionsStatus() if export.told else UNSELECTED
        if export.conditions and not export.told:
            # Two that write one condition would do so forever.
            return Withheld("OfOtherController")
        flaw = unexportable(at.get(services, (cluster, "Service", namespace, name)))
        service = at.get(exports.services, (namespace, name))
        conflicts = service.conflicts if service is not None and not flaw else ()
        before = next((one for one in export.conditions if one.type == CONFLICT), None)
        conflict = _conflict(conflicts, export.generation)
        if before is not None and before.status == "True" and not conflicts and not flaw and answers.some_unread(at):
            conflict = msgspec.structs.replace(before, generation=export.generation)
        wanted = (*_state(flaw, export.generation), conflict)
        if made.said(wanted, export.conditions):
            return Withheld("StatusCurrent")
        return ConditionsStatus(made.dated(wanted, export.conditions))

    return graph.expand("status of service exports", objects, status)


def _state(flaw: str, generation: int) -> tuple[Condition, Condition]:
    if not flaw:
        return made.good(VALID, generation), made.good(READY, generation)
    invalid = made.flawed(VALID, generation, flaw)
    # A Service may still come; one that cannot be exported has to be changed.
    reason = "Pending" if CATALOGUE[flaw].reason == "NoService" else "Failed"
    return invalid, Condition(READY, "False", reason, invalid.message, generation)


def _conflict(conflicts: tuple[Conflict, ...], generation: int) -> Condition:
    if not conflicts:
        return Condition(CONFLICT, "False", "NoConflicts", "", generation)
    reason = ",".join([one.reason for one in conflicts])
    message = "; ".join([one.message for one in conflicts])[: made.LONGEST_MESSAGE]
    return Condition(CONFLICT, "True", reason, message, generation)
