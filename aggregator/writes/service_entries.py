"""What ServiceEntries are told: which addresses their hosts were given, and what becomes of the waypoint they ask for.

Whoever starts later, this process included, keeps the addresses that stand there. What was given already is not written
again, and an entry that is given none any more, as its hosts have addresses of their own or are another object's, loses
what we wrote. Conditions are Istio's, so they are written only in Istio's place (--istio-classes).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from aggregator.findings import CATALOGUE
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.allocated_addresses import AllocatedAddresses
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.service_entries import EntryKey
from aggregator.mesh.services import Declared
from aggregator.mesh.waypoints import Asked, Attached, Waypoints
from aggregator.writes import conditions as made
from aggregator.writes.waypoints import WAYPOINT_BOUND, bound
from watchers.facts.conditions import Condition, Conditions
from watchers.facts.istio_networking import ServiceEntry
from watchers.facts.keys import ObjectKey
from watchers.writes import ServiceEntryStatus, WriteKey

WAYPOINT_MISSING: Final = "istio.io/WaypointMissing"
_TYPES = (WAYPOINT_BOUND, WAYPOINT_MISSING)


class Sources(msgspec.Struct, frozen=True):
    """What is told, and of what."""

    entries: Source[ObjectKey, ServiceEntry]
    services: Collection[EntryKey, Declared]
    allocated: AllocatedAddresses
    waypoints: Waypoints


def declare(
    graph: Graph, home: Home, answers: Answers, sources: Sources
) -> Collection[WriteKey, ServiceEntryStatus]:
    """Declare what home's ServiceEntries are to be told."""

    def status(at: At, key: ObjectKey, entry: ServiceEntry) -> Iterable[tuple[WriteKey, Outcome[ServiceEntryStatus]]]:
        yield (*key, "status"), told(at, key, entry)

    def told(at: At, key: ObjectKey, entry: ServiceEntry) -> Outcome[ServiceEntryStatus]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        if not answers.home(at):
            return Withheld("HomeNotSynced")
        served = [one for host in dict.fromkeys(entry.hosts) if (one := at.get(sources.services, (*key, host)))]
        given = tuple([(one.hostname, address) for one in served for address in sources.allocated.of(at, one)])
        if given:
            addressed = set(given) == set(entry.allocated)
        else:
            addressed = not entry.allocated or "addresses" not in entry.written
        wanted = judged(at, entry, served) if home.istio_classes else ()
        applied: Conditions | None = None
        if wanted or "conditions" in entry.written:
            applied = made.as_one(wanted, entry.conditions, _TYPES)
        if addressed and applied is None:
            return Withheld("StatusCurrent" if given or wanted else "NothingToTell")
        # Both parts are named always: what an apply leaves out is taken back.
        if applied is None and "conditions" in entry.written:
            applied = entry.conditions
        return ServiceEntryStatus(given, applied or ())

    def judged(at: At, entry: ServiceEntry, served: list[Declared]) -> Conditions:
        """Conditions of an entry some host of which is served."""
        if not served:
            return ()
        one = served[0]
        private = one.visibility != "PUBLIC"
        asked = Asked(one.cluster, one.namespace, entry.labels, entry.annotations, "service", private)
        found = sources.waypoints.of(at, asked)
        wanted = bound(found, ingress=one.ingress_waypoint)
        wild = any(each.hostname.startswith("*") and not each.addresses for each in served)
        if wild and not isinstance(found, Attached):
            flaw = CATALOGUE["NoWaypointForWildcardService"]
            message = f"{flaw.meaning} {flaw.cure}"
            wanted += (Condition(WAYPOINT_MISSING, "True", "NoWaypointForWildcardService", message, 0),)
        return wanted

    return graph.expand("status of service entries", sources.entries, status)
