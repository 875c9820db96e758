"""The clusters of this process: registered before anything runs, then each watched by a task of its own.

In: the settings. Out: Cluster facts at once, so that no view settles without a cluster that has not been heard of yet,
then whatever the watchers find. Home is a directory, or an API server whose Secrets register more clusters; remotes are
directories, or API servers named by kubeconfigs in files and in those Secrets. A source that cannot be used at the
start stops the process with its reason; one that a Secret brings never does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aggregator.app.setting_values import ClusterSource
from aggregator.app.settings import Settings
from aggregator.cache.table import Table
from watchers.directory import watch_directory
from watchers.facts import Fact
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey
from watchers.metrics import WatchMetrics
from watchers.sink import Facts
from watchers.watching import SourceError

if TYPE_CHECKING:
    from aggregator.app.api_clusters import ApiClusters


class WatchSource(Protocol):
    """What keeps the facts of a cluster equal to what its source says; `watchers.directory.watch_directory` is one."""

    async def __call__(
        self, cluster: str, path: Path, facts: Facts, *, home: bool, system_namespace: str, deadline: float
    ) -> None:
        """Runs until cancelled; raises SourceError if the source cannot be used at all."""


class Clusters:
    """Home and the remotes. `now` is the time in seconds since the epoch, `watch` follows a directory.

    Raises SourceError for a kubeconfig in the settings that cannot be used. `metrics` are those of the watches.
    """

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
        self.metrics = WatchMetrics()
        # Home is waited for without limit: nobody is served before it has been read.
        self._deadline = now() + settings.remote_timeout
        self._directories = [
            (source, home)
            for source, home in ((settings.local, True), *((source, False) for source in settings.remote))
            if source is not None and not source.path.is_file()
        ]
        facts.apply(
            [
                (
                    (source.name, "Cluster", "", source.name),
                    Cluster(state="connecting", home=home, deadline=self._deadline, reason=""),
                )
                for source, home in self._directories
            ]
        )
        self._apis = self._read_apis(now)

    def _read_apis(self, now: Callable[[], float]) -> ApiClusters | None:
        """The clusters that are not directories; None if there can be none."""
        settings = self._settings
        if len(self._directories) == len(settings.remote) + 1 and settings.remotes is None:
            return None
        # Imported only now: a client of HTTP is a good part of what the process costs.
        from aggregator.app.api_clusters import ApiClusters

        return ApiClusters(
            settings,
            self._facts,
            now=now,
            metrics=self.metrics,
            directories={source.name: source.path for source, _ in self._directories},
            environment=os.environ,
        )

    def watch(self, tasks: asyncio.TaskGroup) -> None:
        """Start a task per cluster."""
        for source, home in self._directories:
            tasks.create_task(self._watch(source, home=home), name=f"watch {source.name}")
        if self._apis is not None:
            self._apis.watch(tasks)

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
        return list(self._states())

    def _states(self) -> Iterator[tuple[str, Cluster]]:
        for cluster in self._facts.partitions():
            fact = self._facts.get((cluster, "Cluster", "", cluster))
            if isinstance(fact, Cluster):
                yield cluster, fact
