"""What WorkloadEntries that ask for a waypoint are told of it; see `waypoints`."""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.selection import Includes
from aggregator.mesh.waypoints import Asked, Waypoints
from aggregator.writes import conditions as made
from aggregator.writes.waypoints import WAYPOINT_BOUND, bound
from watchers.facts.istio_networking import WorkloadEntry
from watchers.facts.keys import ObjectKey
from watchers.writes import ConditionsStatus, WriteKey


def declare(
    graph: Graph,
    home: Home,
    answers: Answers,
    includes: Includes,
    waypoints: Waypoints,
    entries: Source[ObjectKey, WorkloadEntry],
) -> Collection[WriteKey, ConditionsStatus]:
    """Declare what home's WorkloadEntries are to be told."""

    def status(at: At, key: ObjectKey, entry: WorkloadEntry) -> Iterable[tuple[WriteKey, Outcome[ConditionsStatus]]]:
        yield (*key, "status"), told(at, key, entry)

    def told(at: At, key: ObjectKey, entry: WorkloadEntry) -> Outcome[ConditionsStatus]:
        cluster, _, namespace, _ = key
        if cluster != home.cluster:
            return Withheld("NotOfHome", cluster)
        if not answers.home(at):
            return Withheld("HomeNotSynced")
        counts = home.serves(entry.revision) and includes(at, cluster, namespace)
        asked = Asked(cluster, namespace, entry.labels, (), "workload")
        wanted = bound(waypoints.of(at, asked)) if home.istio_classes and counts else ()
        if not wanted and "conditions" not in entry.written:
            return Withheld("NothingToTell")
        applied = made.as_one(wanted, entry.conditions, (WAYPOINT_BOUND,))
        return Withheld("StatusCurrent") if applied is None else ConditionsStatus(applied)

    return graph.expand("status of workload entries", entries, status)
