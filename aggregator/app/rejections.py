"""Rejected resources: from what a proxy refused to the object that it was made from.

In: records of acknowledgements, of which rejections name resources. Out: rows of the rejections Table, which the graph
turns into findings on the objects behind them for as long as the rejected version is what is told. The graph is asked
for origins between passes, never during one.
"""

from __future__ import annotations

from aggregator.app.aggregate import Tables
from aggregator.pipeline import Pipeline
from aggregator.views.rejections import Rejection
from watchers.facts.keys import ObjectKey

MOST = 1000
"""Rejections kept: far more than anyone reads, few enough for a proxy that refuses everything."""


class Rejections:
    """Writes the rejections Table."""

    def __init__(self, pipeline: Pipeline, tables: Tables) -> None:
        self._pipeline = pipeline
        self._tables = tables

    def add(self, view: str, name: str, version: str, proxy: str, message: str) -> None:
        """Note that `proxy` refused a version of a resource. Only the first proxy to refuse it is kept."""
        key = (view, name)
        known = self._tables.rejections.get(key)
        if (known is not None and known.version == version) or len(self._tables.rejections) >= MOST:
            return
        objects: set[ObjectKey] = set()
        for collection in self._pipeline.told:
            for source, origin in self._pipeline.graph.origins(collection, key):
                if source != "interest" and isinstance(origin, tuple) and len(origin) == 4:
                    objects.add(origin)
        rejection = Rejection(tuple(sorted(objects)), version, proxy, message[:1000])
        self._tables.rejections.apply([(key, rejection)])
