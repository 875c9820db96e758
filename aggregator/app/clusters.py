"""The clusters of this process: registered before anything runs, then each watched by a task of its own.

In: the settings. Out: Cluster facts at once, so that no view settles without a cluster that has not been heard of yet,
then whatever the watchers find. A source that cannot be used at the start stops the process with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from aggregator.app.setting_values import ClusterSource
from aggregator.app.settings import Settings
from aggregator.cache.table import Table
from watchers.directory import watch_directory
from watchers.facts import Fact
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey
from watchers.sink import Facts
from watchers.watching import SourceError


class WatchSource(Protocol):
    """What keeps the facts of a cluster equal to what its source says; `watchers.directory.watch_directory` is one."""

    async def __call__(
        self, cluster: str, path: Path, facts: Facts, *, home: bool, system_namespace: str, deadline: float
    ) -> None:
        """Runs until cancelled; raises SourceError if the source cannot be used at all."""


class Clusters:
    """Home and the remotes. `now` is the time in seconds since the epoch, `watch` follows one source."""

    def __init__(
        self,
        settings: Settings,
        facts: Table[ObjectKey, Fact],
        *,
        now: Callable[[], float],
        watch: WatchSource = watch_directory,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._watch_source = watch
        # Home is waited for without limit: nobody is served before it has been read.
        self._deadline = now() + settings.remote_timeout
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
            tasks.create_task(self._watch(source, home=home), name=f"watch {source.name}")

    async def _watch(self, source: ClusterSource, *, home: bool) -> None:
        try:
            await self._watch_source(
                source.name,
                source.path,
                self._facts,
                home=home,
                system_namespace=self._settings.system_namespace,
                deadline=self._deadline,
            )
        except SourceError as error:
            origin = self._settings.origin("local" if home else "remote")
            raise SourceError(f"{origin}: cluster {source.name!r}: {error}") from None

    def states(self) -> Iterable[tuple[str, Cluster]]:
        """Every cluster's name and state."""
        for source, _ in self._sources:
            fact = self._facts.get((source.name, "Cluster", "", source.name))
            if isinstance(fact, Cluster):
                yield source.name, fact
