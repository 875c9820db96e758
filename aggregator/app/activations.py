"""Activations: when each domain became what it is, and how soon after that a gateway held its routes.

In: the domains that a pass changed, with what it published; the answers of gateways among the records. Out: two numbers
for a domain, for whoever asks. A domain costs one number, some 60 bytes, and another once a gateway has answered; what
which gateway holds is not kept here, since its session knows it. Answers are read when somebody asks, when a domain
changes, or when half the ring is full, so nothing is done for them on the way of a push.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Final

import msgspec

from aggregator.app.metrics import Metric
from aggregator.app.records import Pass, Records
from aggregator.cache.table import Table
from aggregator.operate.domain_list import Activation
from aggregator.traffic.hosts import Host
from aggregator.views.ingress_gateway import SCOPE_VIEWS, scope_keys
from aggregator.views.view import ResourceKey, View
from watchers.sink import Cause
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.records import Ack, ResourceRejected

_SECOND: Final = 1e9


class _Awaited(msgspec.Struct, frozen=True):
    """Since which revision of the resources no gateway has accepted the routes of a domain, and their scopes' names."""

    revision: int
    scopes: tuple[str, ...]


class Activations:
    """The activation of every domain. Whether gateways ask for routes at all is told by the interest Table."""

    def __init__(self, interest: Table[tuple[str], View], records: Records) -> None:
        self._interest = interest
        self._taken: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._awaited: dict[str, _Awaited] = {}
        """By host, oldest revision first."""
        self._hosts: dict[str, str] = {}
        """The hosts that are awaited, by the names of their scopes."""
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

    def note(self, changed: Mapping[str, Host | None], told: Mapping[ResourceKey, object], done: Pass) -> None:
        """A pass has changed these domains (None: gone) and published these resources.

        A domain whose routes stay as they were, whoever asks for them now, is what it was.
        """
        if self._awaited:
            self._read()
        taken = min((cause.received for cause in done.causes if isinstance(cause, Cause)), default=done.started_ns)
        moment = taken / _SECOND
        asked = any(self._interest.get(view.key) is not None for view in SCOPE_VIEWS)
        for host, domain in changed.items():
            if domain is None:
                self._taken.pop(host, None)
                self._seconds.pop(host, None)
                self._forget(host)
                continue
            keys = scope_keys(host, domain) if asked else ()
            if asked and told.keys().isdisjoint(keys):
                self._taken.setdefault(host, moment)
                continue
            self._taken[host] = moment
            self._seconds.pop(host, None)
            if asked:
                self._forget(host)
                self._awaited[host] = _Awaited(done.revision, tuple(dict.fromkeys(name for _, name in keys)))
                self._hosts.update({name: host for _, name in keys})

    def of(self, host: str) -> Activation:
        """That of a domain; of one there is not, nothing is known."""
        self._read()
        return Activation(self._taken.get(host), self._seconds.get(host))

    def metrics(self) -> tuple[Metric, Metric]:
        """How many were measured, and their sum."""
        self._read()
        return self._measured, self._waited

    def _forget(self, host: str) -> None:
        """Await nothing of a domain any more."""
        awaited = self._awaited.pop(host, None)
        for name in awaited.scopes if awaited is not None else ():
            self._hosts.pop(name, None)

    def _read(self) -> None:
        for record in self._reader.take():
            if isinstance(record, Ack):
                if record.type_url == SCOPED_ROUTE_TYPE and record.revision:
                    self._accepted(record)
            elif isinstance(record, ResourceRejected) and record.type_url == SCOPED_ROUTE_TYPE:
                # Were it measured by another gateway's answer, nobody would see that this one stayed behind.
                refused = self._hosts.get(record.name)
                if refused is not None:
                    self._forget(refused)

    def _accepted(self, ack: Ack) -> None:
        # Looked through once: a dict of which one takes the first again and again skips over all that are gone.
        reached = list(takewhile(lambda host: self._awaited[host].revision <= ack.revision, self._awaited))
        for host in reached:
            self._forget(host)
            seconds = self._seconds[host] = max(0.0, ack.received_ns / _SECOND - self._taken[host])
            self._measured.values[()] += 1
            self._waited.values[()] += seconds
        if reached and not self._awaited:
            self._awaited, self._hosts = {}, {}  # a dict keeps the size it once had
