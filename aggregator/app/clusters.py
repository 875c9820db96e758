"""The clusters of this process: registered before anything runs, then each watched by a task of its own.

In: the settings. Out: Cluster facts at once, so that no view settles without a cluster that has not been heard of yet,
then whatever the watchers find. A source that cannot be used at the start stops the process with its reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from aggregator.app.settings import Settings
from aggregator.cache.table import Table
from watchers.directory import watch_directory
from watchers.facts import Fact
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey


class Clusters:
    """Home and the remotes."""

    def __init__(self, settings: Settings, facts: Table[ObjectKey, Fact]) -> None:
        self._settings = settings
        self._facts = facts
        # Home is waited for without limit: nobody is served before it has been read.
        self._deadline = time.time() + settings.remote_timeout
        self._sources = [(settings.local, True), *((source, False) for source in settings.remote)]
        facts.apply(
            [
                (
                    (source.name, "Cluster", "", source.name),
                    Cluster(state="connecting", home=home, deadline=self._deadline, reason=""),
                )
                for source, home in self._sources
            ]
        )

    def watch(self, tasks: asyncio.TaskGroup) -> None:
        """Start a task per cluster."""
        for source, home in self._sources:
            tasks.create_task(
                watch_directory(
                    source.name,
                    source.path,
                    self._facts,
                    home=home,
                    system_namespace=self._settings.system_namespace,
                    deadline=self._deadline,
                ),
                name=f"watch {source.name}",
            )

    def states(self) -> Iterable[tuple[str, Cluster]]:
        """Every cluster's name and state."""
        for source, _ in self._sources:
            fact = self._facts.get((source.name, "Cluster", "", source.name))
            if isinstance(fact, Cluster):
                yield source.name, fact
