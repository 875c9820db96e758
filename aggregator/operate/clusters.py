"""Answers how the clusters are, with what the graph makes of them.

In: the status of each watched cluster, the graph, the time. Out: Clusters (see cluster_list), made when they are asked
for: nothing is kept or counted beforehand, and counting gives way to other tasks every few thousand endpoints.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from aggregator.mesh.home import cluster_key
from aggregator.mesh.services import Declared
from aggregator.mesh.workload import Workload
from aggregator.operate.cluster_list import Cluster, ClusterList, Kind
from aggregator.operate.moments import at, moment
from aggregator.pipeline import Pipeline
from watchers.status import ClusterStatus, KindStatus

CONFIRM_SECONDS = 1.0
"""How long API servers may take to say that they are there, so that the lag shown is the one of now."""

RECENT_SECONDS = 0.5
"""Whoever asks again sooner is told what the API servers said before: no client of a page can keep them busy."""

_MOST_REMEMBERED = 1000
_SLICE = 10_000


T = TypeVar("T")


class Watched(Protocol):
    """The clusters that are watched."""

    def statuses(self) -> Sequence[ClusterStatus]:
        """Each of them, home first, then by name, and those that were removed a while ago."""

    async def confirm(self, cluster: str | None, seconds: float) -> None:
        """Asks the API server of a cluster (None: of all) whether it is there, for so long at most."""


class ClusterQuestions:
    """What may be asked of the clusters. ``replica`` is what this process is called, ``now`` seconds of Unix time."""

    def __init__(self, watched: Watched, pipeline: Pipeline, *, replica: str, now: Callable[[], float]) -> None:
        self._watched = watched
        self._pipeline = pipeline
        self._replica = replica
        self._now = now
        self._confirmed: dict[str | None, float] = {}

    async def all(self) -> ClusterList:
        """Every cluster, home first, then by name."""
        await self._confirm(None)
        return ClusterList(items=tuple(await self._described(self._watched.statuses())))

    async def one(self, cluster: str) -> Cluster | Sequence[str]:
        """One cluster; the names there are, if it is none of them."""
        await self._confirm(cluster)
        statuses = self._watched.statuses()
        found = [status for status in statuses if status.cluster == cluster]
        if not found:
            return [status.cluster for status in statuses]
        described = await self._described(found)
        return described[0]

    async def _confirm(self, cluster: str | None) -> None:
        now = self._now()
        if now - self._confirmed.get(cluster, 0.0) < RECENT_SECONDS:
            return
        if len(self._confirmed) >= _MOST_REMEMBERED:
            self._confirmed.clear()
        self._confirmed[cluster] = now
        await self._watched.confirm(cluster, CONFIRM_SECONDS)

    async def _described(self, statuses: Iterable[ClusterStatus]) -> list[Cluster]:
        services, endpoints = await self._counts()
        networks = self._pipeline.graph.values(self._pipeline.networks.of_cluster)
        return [
            _described(
                status,
                network=networks.get(cluster_key(status.cluster), ""),
                services=services[status.cluster],
                endpoints=endpoints[status.cluster],
                replica=self._replica,
                observed=self._now(),
            )
            for status in statuses
        ]

    async def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """Services and ready endpoints by cluster.

        Sums kept by the graph would cost every change of an endpoint something; this costs a question some 0.1 us an
        endpoint.
        """
        values, model = self._pipeline.graph.values, self._pipeline
        services = await _counted([*values(model.declared.parts).values()], _declaring)
        workloads = [one for found in model.workloads.collections for one in values(found).values()]
        return services, await _counted(workloads, _serving)


def _declaring(service: Declared) -> str:
    return service.cluster if service.kind == "Service" else ""


def _serving(workload: Workload) -> str:
    return workload.traits.cluster if workload.healthy and workload.services else ""


async def _counted(values: Sequence[T], cluster: Callable[[T], str]) -> Counter[str]:
    """How many values are of each cluster. They are a copy, so that the graph may go on meanwhile."""
    counts: Counter[str] = Counter()
    for start in range(0, len(values), _SLICE):
        counts.update(map(cluster, values[start : start + _SLICE]))
        await asyncio.sleep(0)
    return counts


def _described(
    status: ClusterStatus, *, network: str, services: int, endpoints: int, replica: str, observed: float
) -> Cluster:
    return Cluster(
        cluster=status.cluster,
        network=network,
        home=status.home,
        state=status.state,
        reason=status.reason,
        since=moment(status.since),
        lag=None if status.lag < 0 else round(status.lag, 3),
        services=services,
        endpoints=endpoints,
        server=status.server,
        registered_by=status.registered_by,
        uid=status.uid,
        token_expires=moment(status.token_expires),
        certificate_expires=moment(status.certificate_expires),
        server_certificate_expires=moment(status.server_certificate_expires),
        withdrawn=moment(status.withdrawn),
        replica=replica,
        observed=at(observed),
        kinds=tuple(map(_kind, status.kinds)),
    )


def _kind(status: KindStatus) -> Kind:
    return Kind(
        kind=status.kind,
        state=status.state,
        reason=status.reason,
        objects=status.objects,
        heard=moment(status.heard),
        confirmed=moment(status.confirmed),
    )
