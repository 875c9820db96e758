"""Clusters that hold or say more than they may: they are held back, by name, and all others are served as ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.kit.clock import virtual_time
from tests.kit.eventually import eventually
from tests.kit.kube_api import KubeApi, KubeCluster
from tests.kit.kube_mesh import KubeMesh
from tests.kit.manifests import endpoint, namespace, pod, service, slice_
from watchers.kubernetes.budget import Limits


def far(name: str, pods: int) -> KubeCluster:
    cluster = KubeCluster(name)
    cluster.apply(namespace("shop"), service("shop/orders", is_global=True))
    cluster.apply(*(pod(f"shop/p-{number:03}", f"10.2.0.{number}") for number in range(pods)))
    return cluster


def held(mesh: KubeMesh, cluster: str) -> int:
    """How many objects of a cluster are held: its facts but for what is said of the cluster itself."""
    return sum(1 for key, _ in mesh.table.scan((cluster,)) if key[1] in ("Namespace", "Node", "Pod", "Service"))


@virtual_time
async def test_of_a_cluster_over_its_limit_no_more_is_taken_until_there_is_room() -> None:
    # Beside the pods there are a service and two namespaces.
    quay, mesa, fjord = KubeCluster("quay"), far("mesa", 10), far("fjord", 10)
    async with KubeMesh(quay, mesa, fjord, limits=Limits(objects=13)) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await asyncio.sleep(5)
        assert (mesh.state("mesa"), mesh.reason("mesa"), held(mesh, "mesa")) == ("synced", "", 13)
        mesa.apply(*(pod(f"shop/p-{number:03}", f"10.2.0.{number}") for number in range(10, 14)))
        fjord.delete("Pod", "shop/p-001")
        await asyncio.sleep(1)
        assert mesh.names("mesa") == [f"p-{number:03}" for number in range(10)]
        reason = "Pod: the cluster holds 13 objects, as many as --cluster-objects allows; more are not taken"
        assert (mesh.state("mesa"), mesh.reason("mesa")) == ("synced", reason)
        assert mesh.metrics.withheld.values["mesa", "Pod"] == 4
        assert (len(mesh.names("fjord")), mesh.reason("fjord")) == (9, "")
        # What is held goes on changing, and room is filled.
        mesa.delete("Pod", "shop/p-000", "shop/p-001", "shop/p-002")
        mesa.apply(pod("shop/p-003", "10.2.0.99"))
        await asyncio.sleep(120)
        assert mesh.names("mesa") == [f"p-{number:03}" for number in range(3, 13)]
        assert (mesh.metrics.withheld.values["mesa", "Pod"], mesh.reason("mesa")) == (1, reason)
        mesa.delete("Pod", "shop/p-013")
        await asyncio.sleep(1)
        assert (mesh.metrics.withheld.values["mesa", "Pod"], mesh.reason("mesa")) == (0, "")
        assert mesh.metrics.restarts.values["mesa", "room"] == 1


@virtual_time
async def test_a_list_beyond_the_limit_is_taken_in_part_however_it_comes() -> None:
    for streams in (True, False):
        quay, mesa = KubeCluster("quay"), far("mesa", 600)
        mesa.watch_list = streams
        async with KubeMesh(quay, mesa, limits=Limits(objects=400)) as mesh:
            mesh.register("far", {"mesa": mesa})
            await asyncio.sleep(5)
            assert (mesh.state("mesa"), held(mesh, "mesa")) == ("synced", 400)
            first = mesh.names("mesa")
            mesh.register("far", {"mesa": mesa}, "t2")
            await asyncio.sleep(5)
            assert (held(mesh, "mesa"), mesh.names("mesa")) == (400, first)
            assert "--cluster-objects" in mesh.reason("mesa")


@virtual_time
async def test_a_cluster_that_floods_is_read_more_slowly_loses_nothing_and_holds_up_nobody() -> None:
    quay, mesa, fjord = KubeCluster("quay"), far("mesa", 1), far("fjord", 1)
    async with KubeMesh(quay, mesa, fjord, limits=Limits(events_per_second=100.0)) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await asyncio.sleep(5)

        async def flood() -> None:
            for number in range(5000):
                mesa.apply(pod("shop/p-000", f"10.3.{number // 250}.{number % 250}"))
                if number % 50 == 0:
                    await asyncio.sleep(0.01)

        flooding = asyncio.create_task(flood())
        for number in range(1, 20):
            fjord.apply(pod(f"shop/new-{number}", "10.9.0.1"))
            await asyncio.sleep(0.1)
            assert f"new-{number}" in mesh.names("fjord")
        await flooding
        await asyncio.sleep(60)
        told = mesh.table.get(("mesa", "Pod", "shop", "p-000"))
        assert "10.3.19.249" in str(told)
        assert mesh.state("mesa") == mesh.state("fjord") == "synced"
        assert mesh.metrics.slowed.values["mesa",] > 30
        assert ("fjord",) not in mesh.metrics.slowed.values


async def test_by_sockets_a_flood_is_slowed_down_at_its_source_while_others_are_heard_at_once() -> None:
    quay, mesa, fjord = KubeCluster("quay"), far("mesa", 1), far("fjord", 1)
    limits = Limits(events_per_second=500.0, bytes_per_second=64 << 10)
    async with (
        KubeApi(quay, mesa, fjord, tls=True),
        KubeMesh(quay, mesa, fjord, sockets=True, limits=limits) as mesh,
    ):
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await eventually(lambda: mesh.state("mesa") == mesh.state("fjord") == "synced")
        # Two megabytes, where 640 KiB may come at once.
        padding = {"padding": "x" * 20_000}
        mesa.apply(*(pod(f"shop/m-{number}", "10.3.0.1", annotations=padding) for number in range(100)))
        await eventually(lambda: mesh.metrics.slowed.values.get(("mesa",), 0.0) > 0)
        for number in range(5):
            fjord.apply(pod(f"shop/new-{number}", "10.9.0.1"))
            await eventually(lambda number=number: f"new-{number}" in mesh.names("fjord"))  # type: ignore[misc]
        assert len(mesh.names("mesa")) < 101
        mesa.delete("Pod", "shop/p-000")
        assert mesh.state("mesa") == "synced"


@virtual_time
async def test_a_service_of_5000_endpoints_is_read_in_slices_while_others_are_told() -> None:
    quay, mesa, fjord = KubeCluster("quay"), far("mesa", 1), far("fjord", 1)
    async with KubeMesh(quay, mesa, fjord) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await asyncio.sleep(5)
        for part in range(50):
            addresses = [endpoint(f"10.3.{part}.{number}", pod=f"shop/p-{part}-{number}") for number in range(100)]
            mesa.apply(slice_(f"shop/orders-{part}", *addresses, service="orders"))
        fjord.apply(pod("shop/new", "10.9.0.1"))
        slices = []
        while len(mesh.names("mesa", "EndpointSlice")) < 50 or "new" not in mesh.names("fjord"):
            began = time.thread_time()
            await asyncio.sleep(0)
            slices.append(time.thread_time() - began)
        # One turn of the loop takes a share of it, never all.
        assert len(slices) > 3


@pytest.mark.parametrize("streams", [True, False])
@virtual_time
async def test_a_long_first_list_is_written_some_at_a_time_and_is_synced_when_it_is_complete(streams: bool) -> None:
    quay, mesa = KubeCluster("quay"), KubeCluster("mesa")
    mesa.watch_list = streams
    mesa.apply(*(pod(f"shop/p-{number}", f"10.1.{number // 250}.{number % 250}") for number in range(6_500)))
    async with KubeMesh(quay, mesa) as mesh:
        changes: list[int] = []
        cursor = mesh.table.cursor("mesa", lambda: changes.append(len(cursor.take().changes)))
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(30)
        assert (mesh.state("mesa"), len(mesh.names("mesa"))) == ("synced", 6_500)
        assert max(changes) <= 2_100
        cursor.close()
