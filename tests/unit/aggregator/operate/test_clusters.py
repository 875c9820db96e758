from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

from aggregator.operate import clusters
from aggregator.operate.cluster_list import Cluster, needs_attention
from aggregator.operate.clusters import ClusterQuestions
from aggregator.pipeline import Pipeline
from tests.kit.clusters import cluster
from watchers.status import ClusterStatus


class Watched:
    """Clusters as the watchers tell of them; `confirmed` are those that were asked whether they are there."""

    def __init__(self, *statuses: ClusterStatus) -> None:
        self._statuses = statuses
        self.confirmed: list[tuple[str | None, float]] = []

    def statuses(self) -> list[ClusterStatus]:
        assert self.confirmed, "asked before they were confirmed"
        return list(self._statuses)

    async def confirm(self, cluster: str | None, seconds: float) -> None:
        self.confirmed.append((cluster, seconds))


class Item:
    """A service or a workload, as far as it is counted."""

    def __init__(self, cluster: str, *, healthy: bool = True, serves: bool = True, kind: str = "Service") -> None:
        self.cluster = cluster
        self.traits = self
        self.kind = kind
        self.healthy = healthy
        self.services = ("some",) if serves else ()


class Model:
    """A pipeline that holds what it is given."""

    def __init__(self, services: list[Item], pods: list[Item], endpoints: list[Item], networks: dict[str, str]) -> None:
        self._values: dict[str, dict[Any, Any]] = {
            "services": dict(enumerate(services)),
            "pods": dict(enumerate(pods)),
            "endpoints": dict(enumerate(endpoints)),
            "networks": {(name, "Cluster", "", name): network for name, network in networks.items()},
        }
        self.graph = self
        self.declared: Any = self
        self.workloads = self.networks = self
        self.collections, self.of_cluster = ("pods", "endpoints"), "networks"

    def values(self, collection: str) -> dict[Any, Any]:
        return self._values[collection]


def status(name: str, **fields: Any) -> ClusterStatus:
    return ClusterStatus(cluster=name, home=name == "west", state="Synced", **fields)


def questions(watched: Watched, model: Model | None = None) -> ClusterQuestions:
    model = model or Model([], [], [], {})
    model.declared = type("Declared", (), {"parts": "services"})
    return ClusterQuestions(watched, cast("Pipeline", model), replica="isthmus-0", now=lambda: 1000.5)


async def test_every_cluster_is_confirmed_before_it_is_told() -> None:
    watched = Watched(status("west"), status("east"))
    found = await questions(watched).all()
    assert [one.cluster for one in found.items] == ["west", "east"]
    assert watched.confirmed == [(None, 1.0)]


async def test_one_cluster_is_confirmed_alone() -> None:
    watched = Watched(status("west"), status("east"))
    found = await questions(watched).one("east")
    assert isinstance(found, Cluster)
    assert (found.cluster, watched.confirmed) == ("east", [("east", 1.0)])


async def test_api_servers_are_not_asked_more_often_than_every_half_second() -> None:
    watched, time = Watched(status("west")), [1000.0]
    asked = ClusterQuestions(watched, cast("Pipeline", Model([], [], [], {})), replica="r", now=lambda: time[0])
    for moment in (1000.0, 1000.4, 1000.6, 1000.9):
        time[0] = moment
        await asked.one("lab")
    assert watched.confirmed == [("lab", 1.0)] * 2


async def test_for_a_name_there_is_not_the_others_are_told() -> None:
    assert await questions(Watched(status("west"), status("east"))).one("lab") == ["west", "east"]


async def test_services_of_the_mesh_and_ready_endpoints_behind_them_are_counted_by_cluster() -> None:
    model = Model(
        [Item("west"), Item("east"), Item("west"), Item("west", kind="ServiceEntry")],
        [Item("west"), Item("west", healthy=False), Item("east", serves=False)],
        [Item("east"), Item("west")],
        {"west": "net-w"},
    )
    found = await questions(Watched(status("west"), status("east"), status("new")), model).all()
    assert [(one.network, one.services, one.endpoints) for one in found.items] == [
        ("net-w", 2, 2),
        ("", 1, 1),
        ("", 0, 0),
    ]


async def test_counting_lets_others_run_and_the_graph_change() -> None:
    pods = [Item("west") for _ in range(3 * clusters._SLICE)]
    model = Model([], pods, [], {})
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            model.values("pods")[-turns] = Item("west")
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    found = await questions(Watched(status("west")), model).all()
    running.cancel()
    assert turns >= 3
    assert found.items[0].endpoints >= 3 * clusters._SLICE


async def test_moments_are_utc_and_unknown_ones_null() -> None:
    found = await questions(Watched(status("west", since=86400.25, lag=-1.0, token_expires=1e18))).one("west")
    assert isinstance(found, Cluster)
    assert found.since == datetime(1970, 1, 2, 0, 0, 0, 250000, tzinfo=UTC)
    assert (found.lag, found.certificate_expires) == (None, None)
    assert found.token_expires == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert found.observed == datetime(1970, 1, 1, 0, 16, 40, 500000, tzinfo=UTC)


def test_attention_is_for_what_cannot_be_read_or_not_for_long() -> None:
    needing = [
        (state, reason)
        for state in ("Connecting", "Syncing", "Synced", "Stale", "Denied", "UpdatePending", "Removed")
        for reason in ("", "why")
        if needs_attention(cluster(state=state, reason=reason))
    ]
    assert needing == [
        ("Connecting", "why"),
        ("Syncing", "why"),
        ("Stale", ""),
        ("Stale", "why"),
        ("Denied", ""),
        ("Denied", "why"),
        ("UpdatePending", ""),
        ("UpdatePending", "why"),
    ]
