"""Activations: when each domain became what it is, and how soon after that a gateway held its routes.

In: the domains that a pass changed, with what it published; the answers of gateways among the records. Out: two numbers
for a domain, for whoever asks. A domain costs one number, some 60 bytes, and another once a gateway has answered; what
which gateway holds is not kept here, since its session knows it. Answers are read when somebody asks, when a domain
changes, or when half the ring is full, so nothing is done for them on the way of a push.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.app.metrics import Metric
from aggregator.app.records import Pass, Records
from aggregator.cache.table import Table
from aggregator.operate.domain_list import Activation
from aggregator.views.ingress_gateway import SCOPES, scope_key
from aggregator.views.view import ResourceKey, View
from watchers.sink import Cause
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.records import Ack, ResourceRejected

_SECOND: Final = 1e9


class _Awaited(msgspec.Struct):
    """Domains whose routes no gateway has accepted yet as they are since this revision of the resources. One scope has
    the routes of one domain, or of several.
    """

    revision: int
    hosts: dict[str, None]


class Activations:
    """The activation of every domain. Whether gateways ask for routes at all is told by the interest Table."""

    def __init__(self, interest: Table[tuple[str], View], records: Records) -> None:
        self._interest = interest
        self._taken: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._awaited: dict[str, _Awaited] = {}
        """By the name of the scope, oldest revision first."""
        self._measured = Metric(
            name="isthmus.domain.activations",
            kind="counter",
            help="Changes of domains whose routes a gateway has accepted.",
            values={(): 0},
        )
        self._waited = Metric(
            name="isthmus.domain.activation",
            kind="counter",
            unit="s",
            help="Time from the news of a change of a domain to the first gateway that has accepted its routes.",
            values={(): 0},
        )
        self._reader = records.reader(bell=self._read)

    def note(self, changed: Mapping[str, object], told: Mapping[ResourceKey, object], done: Pass) -> None:
        """A pass has changed these domains (None: gone) and published these resources.

        A domain whose routes stay as they were, whoever asks for them now, is what it was.
        """
        if self._awaited:
            self._read()
        taken = min((cause.received for cause in done.causes if isinstance(cause, Cause)), default=done.started_ns)
        moment, asked = taken / _SECOND, self._interest.get(SCOPES.key) is not None
        for host, domain in changed.items():
            if domain is None:
                self._taken.pop(host, None)
                self._seconds.pop(host, None)
                if self._awaited:
                    self._forget(host)
            elif not asked:
                self._taken[host] = moment
                self._seconds.pop(host, None)
            elif (key := scope_key(host)) in told:
                self._taken[host] = moment
                self._seconds.pop(host, None)
                awaited = self._awaited.pop(key[1], None) or _Awaited(0, {})
                awaited.revision = done.revision
                awaited.hosts[host] = None
                self._awaited[key[1]] = awaited
            else:
                self._taken.setdefault(host, moment)

    def of(self, host: str) -> Activation:
        """That of a domain; of one there is not, nothing is known."""
        self._read()
        return Activation(self._taken.get(host), self._seconds.get(host))

    def metrics(self) -> tuple[Metric, Metric]:
        """How many were measured, and their sum."""
        self._read()
        return self._measured, self._waited

    def _forget(self, host: str) -> None:
        """Await nothing for a domain that is gone."""
        name = scope_key(host)[1]
        awaited = self._awaited.get(name)
        if awaited is not None:
            awaited.hosts.pop(host, None)
            if not awaited.hosts:
                del self._awaited[name]

    def _read(self) -> None:
        for record in self._reader.take():
            if isinstance(record, Ack):
                if record.type_url == SCOPED_ROUTE_TYPE and record.revision:
                    self._accepted(record)
            elif isinstance(record, ResourceRejected) and record.type_url == SCOPED_ROUTE_TYPE:
                # Were it measured by another gateway's answer, nobody would see that this one stayed behind.
                self._awaited.pop(record.name, None)

    def _accepted(self, ack: Ack) -> None:
        while self._awaited:
            name, awaited = next(iter(self._awaited.items()))
            if awaited.revision > ack.revision:
                return
            del self._awaited[name]
            for host in awaited.hosts:
                taken = self._taken.get(host)
                if taken is not None:
                    seconds = self._seconds[host] = max(0.0, ack.received_ns / _SECOND - taken)
                    self._measured.values[()] += 1
                    self._waited.values[()] += seconds
