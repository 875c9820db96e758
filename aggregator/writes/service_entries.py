"""Which addresses hosts of ServiceEntries were given: their status says so, for people and for other control planes.

Whoever starts later, this process included, keeps what stands there. What was given already is not written again, and
an entry that is given none any more, as its hosts have addresses of their own or are another object's, loses what we
wrote.
"""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.allocated_addresses import AllocatedAddresses
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.service_entries import EntryKey
from aggregator.mesh.services import Declared
from watchers.facts.istio_networking import ServiceEntry
from watchers.facts.keys import ObjectKey
from watchers.writes import ServiceEntryStatus, WriteKey


def declare(
    graph: Graph,
    home: Home,
    answers: Answers,
    services: Collection[EntryKey, Declared],
    allocated: AllocatedAddresses,
    entries: Source[ObjectKey, ServiceEntry],
) -> Collection[WriteKey, ServiceEntryStatus]:
    """Declare what home's ServiceEntries are to be told."""

    def status(at: At, key: ObjectKey, entry: ServiceEntry) -> Iterable[tuple[WriteKey, Outcome[ServiceEntryStatus]]]:
        yield (*key, "status"), told(at, key, entry)

    def told(at: At, key: ObjectKey, entry: ServiceEntry) -> Outcome[ServiceEntryStatus]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        if not answers.home(at):
            return Withheld("HomeNotSynced")
        given = []
        for host in dict.fromkeys(entry.hosts):
            one = at.get(services, (*key, host))
            if one is not None:
                given += [(host, address) for address in allocated.of(at, one)]
        if not given:
            return ServiceEntryStatus(()) if "addresses" in entry.written else Withheld("AddressNotAllocated")
        if set(given) == set(entry.allocated):
            return Withheld("StatusCurrent")
        return ServiceEntryStatus(tuple(given))

    return graph.expand("status of service entries", entries, status)
