"""Rules of `watchers.leases`, against a fake API server in virtual time: who works when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hang, KubeCluster, Refuse
from tests.kit.kube_session import MemorySession
from watchers.leases import Leadership
from watchers.metrics import WriteMetrics


class Process:
    """A candidate; `working` while its work runs, `skew` is by how much its wall clock is wrong, `asleep` for how long
    its host has slept in all.
    """

    def __init__(self, cluster: KubeCluster, name: str, *, skew: float = 0.0, fails: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.cluster = cluster
        self.working = False
        self.asleep = 0.0
        self.fails = fails
        self.metrics = WriteMetrics()
        self.leadership = Leadership(
            MemorySession(cluster),
            "istio-system",
            "isthmus-leader",
            name,
            metrics=self.metrics,
            clock=lambda: loop.time() + self.asleep,
            wall=lambda: 1_767_225_600.0 + loop.time() + skew,
            chance=lambda: 0.5,
        )
        self.task = asyncio.create_task(self.leadership.run(self._work), name=name)

    async def _work(self) -> None:
        if self.fails:
            raise RuntimeError("a defect")
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


@asynccontextmanager
async def processes(cluster: KubeCluster, *names: str, **skews: float) -> AsyncIterator[list[Process]]:
    """Candidates that begin one after the other."""
    started: list[Process] = []
    try:
        for name in names:
            started.append(Process(cluster, name, skew=skews.get(name, 0.0)))
            await asyncio.sleep(0.1)
        yield started
    finally:
        for process in started:
            await process.stop()


def lease(cluster: KubeCluster) -> Any:
    stored = cluster.store.get("Lease", ("istio-system", "isthmus-leader"))
    assert stored is not None
    return stored.document["spec"]


@virtual_time
async def test_the_first_leads_and_the_others_do_nothing() -> None:
    cluster = KubeCluster()
    async with processes(cluster, "a", "b") as (a, b):
        await asyncio.sleep(600)
        assert (a.working, b.working) == (True, False)
        assert (a.metrics.leader.values, b.metrics.leader.values) == ({(): 1}, {(): 0})
        assert b.leadership.holder == "a"
        assert lease(cluster)["holderIdentity"] == "a"
        assert lease(cluster)["leaseTransitions"] == 0


@virtual_time
async def test_the_lease_says_what_clients_of_kubernetes_expect() -> None:
    cluster = KubeCluster()
    async with processes(cluster, "a"):
        await asyncio.sleep(2.5)
        assert lease(cluster) == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:02.000000Z",
            "leaseTransitions": 0,
        }


@virtual_time
async def test_one_who_stops_lets_go_and_another_takes_over_at_its_next_look() -> None:
    cluster = KubeCluster()
    async with processes(cluster, "a", "b") as (a, b):
        await asyncio.sleep(10)
        await a.stop()
        assert not a.working
        assert lease(cluster)["holderIdentity"] == ""
        await asyncio.sleep(3.3)
        assert b.working
        assert lease(cluster)["leaseTransitions"] == 1


@virtual_time
async def test_one_who_dies_is_followed_once_its_lease_has_run_out() -> None:
    cluster = KubeCluster()
    async with processes(cluster, "a", "b") as (a, b):
        await asyncio.sleep(10)
        # Nor can it let go.
        a.task.cancel()
        cluster.script(Refuse(500), verb="update")
        cluster.script(Refuse(500), verb="get")
        await asyncio.wait((a.task,))
        await asyncio.sleep(11)
        assert not b.working
        await asyncio.sleep(8)
        assert b.working


@virtual_time
async def test_one_who_cannot_renew_stops_before_another_begins() -> None:
    cluster = KubeCluster()
    async with processes(cluster, "a", "b") as (a, b):
        await asyncio.sleep(10)
        # What a writes gets lost, b reaches the server.
        cluster.script(Hang(), verb="update", times=None)
        ended: dict[str, float] = {}
        loop = asyncio.get_running_loop()
        while not ended:
            await asyncio.sleep(0.1)
            assert not (a.working and b.working)
            if not a.working:
                ended["a"] = loop.time()
        assert 18 < ended["a"] < 21
        assert not b.working


@virtual_time
async def test_wrong_clocks_do_no_harm() -> None:
    cluster = KubeCluster()
    async with processes(cluster, "a", "b", a=-600, b=600) as (a, b):
        for _ in range(600):
            await asyncio.sleep(0.5)
            assert a.working
            assert not b.working


@virtual_time
async def test_a_process_that_was_asleep_for_long_does_not_lead_when_it_wakes() -> None:
    cluster = KubeCluster()
    async with processes(cluster, "a") as (a,):
        await asyncio.sleep(5)
        assert a.leadership.leads()
        a.asleep = 12
        assert not a.leadership.leads()


@virtual_time
async def test_why_there_is_no_lease_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = KubeCluster()
    cluster.forbidden.add("Lease")
    with caplog.at_level(logging.WARNING):
        async with processes(cluster, "a") as (a,):
            await asyncio.sleep(600)
            assert not a.working
    assert [record.message for record in caplog.records] == ["lease"]


@virtual_time
async def test_labels_of_a_lease_stay() -> None:
    cluster = KubeCluster()
    cluster.apply(
        {
            "kind": "Lease",
            "metadata": {"name": "isthmus-leader", "namespace": "istio-system", "labels": {"team": "mesh"}},
            "spec": {},
        }
    )
    async with processes(cluster, "a"):
        await asyncio.sleep(5)
        stored = cluster.store.get("Lease", ("istio-system", "isthmus-leader"))
        assert stored is not None
        assert stored.labels == {"team": "mesh"}
        assert lease(cluster)["holderIdentity"] == "a"


@virtual_time
async def test_work_that_fails_ends_the_process() -> None:
    cluster = KubeCluster()

    process = Process(cluster, "a", fails=True)
    with pytest.raises(RuntimeError, match="a defect"):
        await process.task
    assert lease(cluster)["holderIdentity"] == ""
