"""Tells those who read clusters which namespaces count: from the Table of selections to `watchers.selection`.

In: the Table, which the graph writes. Out: calls, one for each cluster whose selection has changed. Woken by changes
alone.
"""

from __future__ import annotations

import asyncio

from aggregator.cache.table import Table
from aggregator.mesh.selection import Selected
from watchers.selection import Selections


async def follow(table: Table[tuple[str], Selected], selections: Selections) -> None:
    """Tells of every selection there is and will be, until cancelled."""
    bell = asyncio.Event()
    cursor = table.cursor(bell=bell.set)
    try:
        while True:
            if not cursor.pending:
                await bell.wait()
            bell.clear()
            for (cluster,), selected in cursor.take().changes.items():
                if selected is None:
                    selections.forget(cluster)
                else:
                    selections.set(cluster, selected.namespaces)
    finally:
        cursor.close()
