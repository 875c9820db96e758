"""What this process asks home for because a gateway asks for it: single objects, and what an account may do.

In: the Tables of objects to read by name and of accounts to review. Out: facts. Joins what `watchers` has for that;
decides nothing itself. There is nothing of it where home is a directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aggregator.app.aggregate import Tables
from aggregator.app.settings import Settings
from watchers.kubernetes.access_reviews import AccessReviews
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.named_objects import NamedObjects
from watchers.kubernetes.newest import NewestSession
from watchers.metrics import WatchMetrics


class Asking:
    """The questions of a process. `now` is Unix time in seconds; `session` is closed by whoever made it."""

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        session: NewestSession,
        metrics: WatchMetrics,
        *,
        now: Callable[[], float],
    ) -> None:
        limits = Limits(
            settings.cluster_objects, settings.object_bytes, settings.cluster_bytes, settings.cluster_events
        )
        self._named = NamedObjects(
            tables.wanted,
            tables.facts,
            session,
            cluster=settings.home,
            metrics=metrics,
            limits=limits,
            wall=now,
        )
        self._reviews = AccessReviews(tables.reviews, tables.facts, session)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Starts the tasks that ask."""
        tasks.create_task(self._named.run(), name="read objects by name")
        tasks.create_task(self._reviews.run(), name="review access")
