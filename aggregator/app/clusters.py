"""The clusters of this process: registered before anything runs, then each watched by a task of its own.

In: the settings. Out: Cluster facts at once, so that no view settles without a cluster that has not been heard of yet,
then whatever the watchers find. Home is a directory, or an API server whose Secrets register more clusters; remotes are
directories, or API servers named by kubeconfigs in files and in those Secrets. A source that cannot be used at the
start stops the process with its reason; one that a Secret brings never does.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from aggregator.app.setting_values import ClusterSource
from aggregator.app.settings import Settings
from aggregator.cache.table import Table
from aggregator.mesh.selection import Selected
from watchers.directory import watch_directory
from watchers.facts import Fact
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey
from watchers.metrics import WatchMetrics
from watchers.sink import Facts
from watchers.status import STATES, ClusterStatus, KindStatus
from watchers.watching import SourceError

if TYPE_CHECKING:
    from aggregator.app.api_clusters import ApiClusters
    from watchers.kubernetes.newest import NewestSession
    from watchers.kubernetes.remote_tokens import RemoteTokens
    from watchers.kubernetes.token_renewal import Lives


class WatchSource(Protocol):
    """What keeps the facts of a cluster equal to what its source says; `watchers.directory.watch_directory` is one."""

    async def __call__(
        self, cluster: str, path: Path, facts: Facts, *, home: bool, system_namespace: str, deadline: float
    ) -> None:
        """Runs until cancelled; raises SourceError if the source cannot be used at all."""


class Clusters:
    """Home and the remotes. `now` is the time in seconds since the epoch, `watch` follows a directory, `selections`
    holds the namespaces that count of each cluster.

    Raises SourceError for a kubeconfig in the settings that cannot be used. `metrics` are those of the watches.
    """

    def __init__(
        self,
        settings: Settings,
        facts: Table[ObjectKey, Fact],
        selections: Table[tuple[str], Selected],
        *,
        now: Callable[[], float],
        watch: WatchSource | None = None,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._selections = selections
        self._now = now
        self._watch_source: WatchSource = watch or partial(watch_directory, now=now)
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
                    Cluster("connecting", home, self._deadline, "", since=now()),
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
            self._selections,
            now=now,
            metrics=self.metrics,
            directories={source.name: source.path for source, _ in self._directories},
            environment=os.environ,
        )

    @property
    def home_session(self) -> NewestSession | None:
        """Requests to home beside its watches; None if home is a directory."""
        return self._apis.home_session if self._apis is not None else None

    @property
    def remote_tokens(self) -> RemoteTokens | None:
        """Whose the tokens are that proxies of remotes present; None if there are only directories."""
        return self._apis.remote_tokens if self._apis is not None else None

    @property
    def lives(self) -> Lives | None:
        """When the tokens of remotes end; None if there are only directories."""
        return self._apis.lives if self._apis is not None else None

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

    def statuses(self) -> list[ClusterStatus]:
        """How every cluster is doing, home first, then by name; for ten minutes also those that went.

        Counts objects, which takes a millisecond or so for every ten thousand of them.
        """
        found = [self._of_directory(source, home=home) for source, home in self._directories]
        if self._apis is not None:
            found += self._apis.statuses()
        ordered = sorted(found, key=lambda one: (not one.home, one.cluster))
        return [msgspec.structs.replace(one, withdrawn=self._withdrawn(one)) for one in ordered]

    async def confirm(self, cluster: str | None, seconds: float) -> None:
        """Asks the API server of a cluster, or of all, whether it is there; waits at most so long for the answers.

        Directories tell of themselves.
        """
        if self._apis is not None:
            await self._apis.confirm(cluster, seconds)

    def _of_directory(self, source: ClusterSource, *, home: bool) -> ClusterStatus:
        fact, counted = Cluster("connecting", home, 0.0, ""), Counter[str]()
        for key, value in self._facts.scan((source.name,)):
            if isinstance(value, Cluster):
                fact = value
            else:
                counted[key[1]] += 1
        # A change of a directory is told at once, so what was read is current while it can be read.
        read, now = fact.state in ("synced", "stale"), self._now()
        lag = (now - fact.unconfirmed if fact.unconfirmed else 0.0) if read else -1.0
        confirmed = (fact.unconfirmed or now) if read else 0.0
        return ClusterStatus(
            cluster=source.name,
            home=home,
            state=STATES[fact.state],
            reason=fact.reason,
            since=fact.since,
            lag=lag,
            registered_by="--local" if home else "--remote",
            kinds=tuple(
                KindStatus(kind, fact.state, "", objects, confirmed, confirmed)
                for kind, objects in sorted(counted.items())
                if kind != "SourceFault"
            ),
        )

    def _withdrawn(self, status: ClusterStatus) -> float:
        """When the cluster's endpoints go if it cannot be read until then, 0 if they do not."""
        fact = self._facts.get((status.cluster, "Cluster", "", status.cluster))
        ttl = self._settings.stale_ttl
        if ttl is None or not isinstance(fact, Cluster) or fact.home or not fact.unconfirmed:
            return 0.0
        return fact.unconfirmed + ttl
