"""Rejected resources: from what a proxy refused to the object that it was made from.

In: the records of the server, which pass through on their way to the ring. Out: rows of the rejections Table, which the
graph turns into findings on the objects behind them for as long as the rejected version is what is told. The graph is
asked for origins between passes, never during one.
"""

from __future__ import annotations

from aggregator.app.aggregate import Tables
from aggregator.app.records import Records
from aggregator.app.subscriptions import credential_view, view_for
from aggregator.pipeline import Pipeline
from aggregator.security.certificates import subject_of
from aggregator.security.credential_names import has_scheme
from aggregator.views import ingress_compatible
from aggregator.views.rejections import Rejection
from aggregator.views.view import ResourceKey, View
from watchers.facts.keys import ObjectKey
from xds.messages.secret import SECRET_TYPE
from xds.records import Record, ResourceRejected

MOST = 1000
"""Rejections kept: far more than anyone reads, few enough for a proxy that refuses everything."""


class Rejections:
    """Writes the rejections Table. Satisfies `xds.records.Records`, passing everything on to the ring."""

    def __init__(self, pipeline: Pipeline, tables: Tables, records: Records) -> None:
        self._pipeline = pipeline
        self._tables = tables
        self._records = records

    def append(self, record: Record) -> None:
        """Take a record of the server."""
        self._records.append(record)
        if isinstance(record, ResourceRejected):
            self._note(record)

    def _note(self, rejected: ResourceRejected) -> None:
        """Keep the first refusal of a version, with the objects the resource was made from."""
        by_name = rejected.type_url == SECRET_TYPE and has_scheme(rejected.name)
        view = credential_view(rejected.by, rejected.name) if by_name else view_for(rejected.by, rejected.type_url)
        if view is None:
            return
        key = (view.name, rejected.name)
        known = self._tables.rejections.get(key)
        if known is not None and known.version == rejected.version:
            return
        if known is None and len(self._tables.rejections) >= MOST:
            return
        if by_name:
            objects = self._credential(view)
        elif view.role == ingress_compatible.ROLE and rejected.type_url != SECRET_TYPE:
            # Made of all hosts there are. Whose fault it is nobody can name, but whose loss.
            objects = self._pod(rejected)
        else:
            objects = self._origins(key)
        rejection = Rejection(tuple(sorted(objects)), rejected.version, rejected.by.id, rejected.message)
        self._tables.rejections.apply([(key, rejection)])

    def _origins(self, key: ResourceKey) -> set[ObjectKey]:
        """The objects that a resource is made from."""
        found: set[ObjectKey] = set()
        for collection in self._pipeline.told:
            for _, origin in self._pipeline.graph.origins(collection, key):
                if isinstance(origin, tuple) and len(origin) == 4:
                    found.add(origin)
        return found

    def _pod(self, rejected: ResourceRejected) -> set[ObjectKey]:
        """The pod of the proxy that refused."""
        proxy = rejected.by
        name = (proxy.identity.pod if proxy.identity is not None else "") or proxy.claimed("NAME")
        return {(self._pipeline.home.cluster, "Pod", proxy.namespace, name)} if name else set()

    def _credential(self, view: View) -> set[ObjectKey]:
        """The object that a credential is read from. The graph knows questions as its origins."""
        pipeline = self._pipeline
        place = pipeline.graph.values(pipeline.credentials.places).get(view.name)
        return {subject_of(pipeline.home, place.found)} if place is not None and place.found is not None else set()
