"""Clusters behind API servers over real connections: what only sockets, tasks and memory can show."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import time
import weakref
from base64 import urlsafe_b64encode

import pytest

from tests.kit.eventually import eventually
from tests.kit.kube_api import KubeApi, KubeCluster
from tests.kit.kube_mesh import REMOTE_KINDS, KubeMesh
from tests.kit.manifests import endpoint, namespace, node, pod, service, slice_
from tests.kit.toy_graph import snapshot
from tests.kit.world import World
from watchers.kubernetes.listwatch import Pace
from watchers.kubernetes.session import Session

ROTATIONS = 300
QUICK = Pace(first_wait=0.02, longest_wait=0.1)


def far(services: int = 2, pods: int = 4) -> KubeCluster:
    cluster = KubeCluster("mesa")
    cluster.apply(*(service(f"shop/orders-{number}") for number in range(services)))
    cluster.apply(*(pod(f"shop/orders-{number}", f"10.2.{number // 250}.{number % 250}") for number in range(pods)))
    return cluster


class _Mallinfo(ctypes.Structure):
    """What mallinfo2 of the C library returns."""

    _fields_ = [  # type: ignore[mutable-override]
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


def in_use() -> tuple[int, int]:
    """What is in use, whatever the allocators keep for later: blocks of small objects, and bytes of all else."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return sys.getallocatedblocks(), info.uordblks + info.hblkhd


async def in_use_at_rest() -> tuple[int, int]:
    """What is in use once that is the same for a while: the last bytes of a connection are let go of a moment late."""
    readings = [in_use()]

    def unchanged() -> tuple[int, int] | None:
        gc.collect()
        readings.append(in_use())
        last = [other for _, other in readings[-6:]]
        return readings[-1] if len(last) == 6 and max(last) - min(last) < 1 << 18 else None

    settled = await eventually(unchanged, 20.0, interval=0.1)
    assert settled is not None
    return settled


def handlers() -> int:
    """Connections that an API server still handles: of one that has ended it hears a little later."""
    return sum(getattr(task.get_coro(), "__qualname__", "") == "RequestHandler.start" for task in asyncio.all_tasks())


async def test_an_api_server_that_is_killed_is_stale_in_time_and_comes_back_without_a_new_list() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeApi(quay, mesa) as api, KubeMesh(quay, mesa, sockets=True) as mesh:
        mesh.register("far", {"mesa": mesa})
        await eventually(lambda: mesh.state("mesa") == "synced")
        held, changes = mesh.names("mesa"), mesh.table.cursor("mesa", from_start=False)
        lists = mesh.metrics.lists.values["mesa", "Pod"]
        await api.stop(mesa)
        await eventually(lambda: mesh.state("mesa") == "stale", 5)
        assert mesh.names("mesa") == held
        await api.start(mesa)
        mesa.delete("Pod", "shop/orders-0")
        await eventually(lambda: mesh.state("mesa") == "synced", 20)
        await eventually(lambda: mesh.names("mesa") == held[1:])
        assert mesh.metrics.lists.values["mesa", "Pod"] == lists
        assert {key[1] for key in changes.take().changes} == {"Cluster", "Pod"}


@pytest.mark.slow
async def test_tasks_sockets_and_memory_are_the_same_after_300_rotations() -> None:
    quay, mesa = KubeCluster("quay"), far(50, 400)
    tokens = ("t1", "t2")
    mesa.tokens = {*tokens}
    async with KubeApi(quay, mesa, tls=True) as api, KubeMesh(quay, mesa, pace=QUICK, sockets=True) as mesh:
        born: list[weakref.ref[Session]] = []
        mesh.opened = lambda session: born.append(weakref.ref(session))

        async def rotate(number: int) -> None:
            token = tokens[number % 2]
            mesh.register("far", {"mesa": mesa}, token)
            await eventually(
                lambda: (
                    mesa.watches() == REMOTE_KINDS
                    and all(request.token == token for request in mesa.watching())
                    and mesh.state("mesa") == "synced"
                ),
                interval=0.002,
            )

        def at_rest() -> bool:
            """One connection for each watch, and one by which is asked whether the server is there."""
            connections = api.connections(mesa), api.connections(quay)
            return connections[0] == REMOTE_KINDS + 1 and quay.asked_version > 0 and handlers() == sum(connections)

        for number in range(30):
            await rotate(number)
        await eventually(at_rest)
        gc.collect()
        mesa.requests.clear()
        quay.compact()
        memory = await in_use_at_rest()
        tasks, sockets = len(asyncio.all_tasks()), api.connections(mesa)
        for number in range(ROTATIONS):
            await rotate(number)
            mesa.requests.clear()
            quay.compact()
        await eventually(lambda: (len(asyncio.all_tasks()), api.connections(mesa)) == (tasks, sockets))
        gc.collect()
        alive = [session for one in born if (session := one())]
        assert len(alive) <= 2  # home's, and the one in use
        assert len(mesh.names("mesa")) == 400
        blocks, other = (now - then for now, then in zip(await in_use_at_rest(), memory, strict=True))
        assert (blocks < 6_000, other < 5 << 20) == (True, True), (blocks, other)


async def test_a_credential_that_is_replaced_leaves_no_circles_to_the_garbage_collector() -> None:
    quay, mesa = KubeCluster("quay"), far(5, 40)
    mesa.tokens = {"t1", "t2"}
    async with KubeApi(quay, mesa, tls=True) as api, KubeMesh(quay, mesa, pace=QUICK, sockets=True) as mesh:

        async def read_by(token: str) -> None:
            mesh.register("far", {"mesa": mesa}, token)
            await eventually(lambda: mesa.watches() == REMOTE_KINDS and mesh.state("mesa") == "synced")
            await eventually(lambda: all(request.token == token for request in mesa.watching()))
            await eventually(lambda: handlers() == api.connections(mesa) + api.connections(quay))

        await read_by("t1")
        gc.collect()
        gc.disable()
        try:
            await read_by("t2")
            await eventually(lambda: api.connections(mesa) == REMOTE_KINDS + 1)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = {f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert {name for name in left if name.startswith(("watchers.", "aggregator.", "aiohttp.client"))} == set()


def crowd(pods: int = 400, services: int = 20) -> KubeCluster:
    """A remote whose pods are endpoints of its global services, by selectors and by slices."""
    cluster = KubeCluster("mesa")
    cluster.apply(namespace("shop"), node("mesa-1", region="r2", zone="r2a"))
    for number in range(services):
        app = {"app": f"orders-{number}"}
        address = f"10.97.{number // 250}.{number % 250}"
        cluster.apply(service(f"shop/orders-{number}", address, selector=app, is_global=True))
        members = range(number, pods, services)
        addresses = {each: f"10.2.{each // 250}.{each % 250}" for each in members}
        cluster.apply(*(pod(f"shop/p-{each}", ip, labels=app, node="mesa-1") for each, ip in addresses.items()))
        endpoints = [endpoint(ip, pod=f"shop/p-{each}", node="mesa-1") for each, ip in addresses.items()]
        cluster.apply(slice_(f"shop/orders-{number}", *endpoints, service=f"orders-{number}"))
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize(("joins", "pods", "services"), [(50, 400, 20), (6, 4_000, 300)])
async def test_nothing_is_left_of_a_remote_after_joins_and_leaves(joins: int, pods: int, services: int) -> None:
    quay, mesa = KubeCluster("quay"), crowd(pods, services)
    quay.apply(namespace("shop"), service("shop/orders-0", "10.96.0.10", is_global=True))
    async with KubeApi(quay, mesa, tls=True) as api, KubeMesh(quay, mesa, pace=QUICK, sockets=True) as mesh:
        born: list[weakref.ref[Session]] = []
        mesh.opened = lambda session: born.append(weakref.ref(session))
        await eventually(lambda: mesh.state("quay") == "synced")
        world = World("quay", facts=mesh.table)
        world.step()

        async def join_and_leave() -> None:
            mesh.register("far", {"mesa": mesa})
            await eventually(lambda: mesh.state("mesa") == "synced", interval=0.002)
            world.step()
            assert len(world.addresses()) == pods + services
            mesh.unregister("far")
            await eventually(lambda: (mesh.state("mesa"), mesa.watches()) == ("", 0), interval=0.002)
            world.step()
            mesa.requests.clear()
            quay.requests.clear()
            quay.compact()

        def left() -> tuple[object, ...]:
            series = {metric.name: len(metric.values) for metric in mesh.metrics.all()}
            return snapshot(world.graph), dict(mesh.table.scan()), world.published, series

        for _ in range(5):
            await join_and_leave()
        await eventually(
            lambda: (
                api.connections(mesa) == 0
                and quay.asked_version
                and handlers() == api.connections(quay)
                and not any("mesa" in task.get_name() for task in asyncio.all_tasks())
            )
        )
        memory = await in_use_at_rest()
        tasks, sockets, before = len(asyncio.all_tasks()), api.connections(quay), repr(left())
        for _ in range(joins):
            await join_and_leave()
        await eventually(lambda: (len(asyncio.all_tasks()), api.connections(mesa)) == (tasks, 0))
        gc.collect()
        assert (api.connections(quay), repr(left())) == (sockets, before)
        assert len([session for one in born if (session := one())]) <= 1
        blocks, other = (now - then for now, then in zip(await in_use_at_rest(), memory, strict=True))
        assert (blocks < 6_000, other < 5 << 20) == (True, True), (blocks, other)


async def test_a_status_tells_when_what_a_connection_is_made_of_ends() -> None:
    quay, mesa = KubeCluster("quay"), far()
    token = ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", b'{"exp":1900000000}', b"-"))
    async with KubeApi(quay, mesa, tls=True), KubeMesh(quay, mesa, sockets=True) as mesh:
        mesh.register("far", {"mesa": mesa}, token)
        await eventually(lambda: mesh.state("mesa") == "synced")
        (status,) = mesh.clusters.statuses()
        assert (status.server, status.token_expires) == (mesa.url.removeprefix("https://"), 1_900_000_000)
        assert status.certificate_expires == 0.0
        assert status.server_certificate_expires > time.time()
        assert token not in repr(status)
