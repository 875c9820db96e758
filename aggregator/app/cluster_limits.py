"""Clusters past their limit (--stale-after): a line in the log once, and an answer for readiness.

In: the Table of `mesh.standing.PastLimit`, which passes of the graph write. Out: log lines as a cluster passes its
limit, as its endpoints are withdrawn, and as it is back; the names of those past it.
"""

from __future__ import annotations

import logging
from collections.abc import Set as AbstractSet

from aggregator.cache.table import Table
from aggregator.mesh.standing import PastLimit, Standing
from watchers.facts.keys import ObjectKey

log = logging.getLogger(__name__)

_EFFECTS: dict[Standing, str] = {
    "full": "what was read last is served unchanged",
    "reduced": "its endpoints behind gateways count half",
    "withdrawn": "its endpoints are withdrawn",
}


class ClusterLimits:
    """Follows a Table from when it is made."""

    def __init__(self, table: Table[ObjectKey, PastLimit]) -> None:
        self._past: dict[str, PastLimit] = {}
        self._cursor = table.cursor(bell=self._follow)
        self._follow()

    @property
    def past(self) -> AbstractSet[str]:
        """The clusters that have not been readable for longer than --stale-after."""
        return self._past.keys()

    def _follow(self) -> None:
        for key, found in self._cursor.take().changes.items():
            cluster = key[0]
            if found is None:
                before = self._past.pop(cluster, None)
                if before is not None:
                    log.info("cluster within its limit again", extra={"cluster": cluster})
                continue
            self._past[cluster] = found
            extra = {"cluster": cluster, "unconfirmed": found.unconfirmed, "effect": _EFFECTS[found.standing]}
            log.warning("cluster past its limit", extra=extra)
