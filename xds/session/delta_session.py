"""A session of the incremental variant: which exchange each of its types is."""

from __future__ import annotations

from xds.session.content import Directory, Subscription
from xds.session.delta import DeltaExchange
from xds.session.directory import DirectoryExchange
from xds.session.machine import Session
from xds.session.requests import DeltaRequest


class DeltaSession(Session[DeltaRequest]):
    """A stream of DeltaAggregatedResources."""

    def _exchange(self, type_url: str, content: Subscription | None) -> DeltaExchange:
        individual = type_url in self._order.individual
        if content is not None and isinstance(content, Directory):
            return DirectoryExchange(type_url, content, content, individual=individual)
        return DeltaExchange(type_url, content, individual=individual)
