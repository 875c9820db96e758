"""Faults of API servers, their connections and their credentials, each named after its row of the list of faults.

What is asserted is what a ztunnel at home is told of the cluster that suffers (`Told`), and a state or a metric. Rows
whose fault has its tests elsewhere:

- 1, 2 and 9, clusters that cannot be read any more, or not yet: test_kubernetes_lost.py
- 6, half-open connections:
  test_kubernetes_clusters.py::test_a_silent_watch_is_given_up_and_goes_on_from_its_last_version
  and ::test_an_api_server_that_is_black_holed_takes_nothing_away; that the system finds them within 25 s:
  unit/watchers/kubernetes/test_session.py::test_the_connection_asks_whether_its_other_end_is_alive
- 7, slow lists: test_kubernetes_clusters.py::test_half_a_list_is_never_applied,
  feature/test_reflector.py::test_half_a_list_is_none and ::test_a_slow_list_is_waited_for_as_long_as_it_moves
- 10, rotation:
  test_kubernetes_clusters.py::test_rotation_is_invisible_and_what_was_deleted_meanwhile_is_gone_afterwards,
  feature/test_kubernetes.py::test_no_proxy_sees_a_rotation,
  test_kubernetes_sockets.py::test_tasks_sockets_and_memory_are_the_same_after_300_rotations
- 12, a Secret deleted: feature/test_kubernetes.py::test_a_cluster_whose_secret_goes_is_withdrawn,
  test_kubernetes_clusters.py::test_removal_is_complete_and_late_events_of_a_removed_cluster_die,
  test_kubernetes_sockets.py::test_nothing_is_left_of_a_remote_after_joins_and_leaves
- 13, two claims:
  test_kubernetes_clusters.py::test_the_oldest_secret_owns_a_cluster_and_the_next_takes_over_without_a_dip
  and ::test_one_api_server_under_two_ids_counts_once
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from yarl import URL

from aggregator.graph import Pass
from aggregator.pipeline import RESOURCES
from tests.kit import golden
from tests.kit.clock import virtual_time
from tests.kit.eventually import eventually
from tests.kit.kube_api import Hold, KubeApi, KubeCluster, Lines, Refuse
from tests.kit.kube_mesh import REMOTE_KINDS, KubeMesh
from tests.kit.manifests import Manifest, east_west_gateway, endpoint, namespace, pod, service, slice_
from tests.kit.world import World, changed_names
from watchers.facts import SourceFault
from watchers.kubernetes.budget import SHARE
from watchers.kubernetes.listwatch import Pace
from xds.messages.workload import ADDRESS_TYPE

GATEWAY = "NetworkGateway/{}/192.0.2.20/0"
ORDERS_SERVICE = "shop/orders.shop.svc.cluster.local"
WAY = "{}/SplitHorizonWorkload/istio-system/east-west/192.0.2.20/" + ORDERS_SERVICE
ORDERS = {"app": "orders"}


def order(number: int, *, revision: str = "g1", **fields: Any) -> Manifest:
    """A pod of the global service `orders`."""
    address = f"10.2.{number // 250}.{number % 250 + 1}"
    return pod(f"shop/orders-{number}", address, labels={**ORDERS, "version": revision}, **fields)


def cluster(name: str, pods: int = 0) -> KubeCluster:
    """An API server with `orders` and some pods of it."""
    made = KubeCluster(name)
    made.apply(namespace("shop"), service("shop/orders", "10.96.0.10", selector=ORDERS, is_global=True))
    made.apply(*(order(number) for number in range(pods)))
    return made


class Told:
    """What a ztunnel at home is told: the graph over the table that the mesh writes."""

    def __init__(self, mesh: KubeMesh) -> None:
        self.world = World(mesh.home.name, facts=mesh.table)

    def pods(self, of: str = "mesa") -> dict[str, Mapping[str, Any]]:
        """The pods of a cluster by name, after a pass over what has changed."""
        self.world.step()
        found = (address.get("workload", {}) for address in self.world.addresses().values())
        return {one["name"]: one for one in found if one.get("cluster_id") == of}

    def news(self) -> set[str]:
        """The names of the resources that a pass over what has changed brings or takes away."""
        return changed_names(self.world.step())


def ways(told: Told) -> set[str]:
    """The gateways and the ways through them that are told."""
    return {name for name in told.world.addresses() if "192.0.2.20" in name}


def revisions(push: Pass) -> set[str]:
    """What the pods of a push say is their revision."""
    told = (golden.decode(ADDRESS_TYPE, one.body) for one in push.published[RESOURCES].values())
    return {one["workload"]["canonical_revision"] for one in told}


def event(kind: str, of: KubeCluster, name: str) -> bytes:
    """The line by which a watch tells of a pod as it is now."""
    stored = of.store.get("Pod", ("shop", name))
    assert stored is not None
    return b'{"type":"%s","object":%s}' % (kind.encode(), stored.data)


async def turns_until(done: Callable[[], bool], count: Callable[[], int]) -> list[int]:
    """What a count grew by in every turn of the loop until something is done."""
    counts = [count()]
    while not done():
        await asyncio.sleep(0)
        counts.append(count())
    return [now - before for before, now in pairwise(counts)]


@virtual_time
async def test_row_04_a_storm_of_410_leads_to_one_list_at_a_time_of_which_the_difference_is_told() -> None:
    quay, mesa = cluster("quay"), cluster("mesa", 3)
    mesa.watch_list = False
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(30)
        told = Told(mesh)
        assert [*told.pods()] == ["orders-0", "orders-1", "orders-2"]
        storm, until = mesa.script(Refuse(410, "Expired"), verb="watch", times=None), asyncio.Event()
        mesa.end_watches()
        mesa.delete("Pod", "shop/orders-2")
        lists = mesa.count("list", "Pod")
        await asyncio.sleep(600)
        assert 600 / 30 <= mesa.count("list", "Pod") - lists <= 600 / 15
        assert told.news() == {"mesa//Pod/shop/orders-2"}
        slow = mesa.script(Hold(until), verb="list", kind="Pod", times=None)
        await asyncio.sleep(45)
        assert [request.kind for request in mesa.requests if not request.status] == ["Pod"]
        slow.withdraw()
        until.set()
        storm.withdraw()
        await asyncio.sleep(60)
        assert (mesh.state("mesa"), told.news()) == ("synced", set())
        assert mesh.metrics.restarts.values["mesa", "gone"] > 0


@virtual_time
async def test_row_05_throttling_is_waited_out_while_other_clusters_are_told() -> None:
    quay, mesa, fjord = cluster("quay"), cluster("mesa", 2), cluster("fjord", 2)
    async with KubeMesh(quay, mesa, fjord) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await asyncio.sleep(30)
        told = Told(mesh)
        told.pods()
        burst = mesa.script(Refuse(429, "TooManyRequests", headers={"Retry-After": "120"}), times=None)
        mesa.end_watches()
        await asyncio.sleep(1)
        assert mesa.count(status=429) == REMOTE_KINDS
        mesa.delete("Pod", "shop/orders-0")
        fjord.delete("Pod", "shop/orders-0")
        await asyncio.sleep(0.1)
        assert told.news() == {"fjord//Pod/shop/orders-0"}
        await asyncio.sleep(118)
        assert mesa.count(status=429) == REMOTE_KINDS
        assert mesh.metrics.restarts.values["mesa", "throttled"] == REMOTE_KINDS
        burst.withdraw()
        await asyncio.sleep(120)
        assert (mesh.state("mesa"), told.news()) == ("synced", {"mesa//Pod/shop/orders-0"})


@virtual_time
async def test_row_08_events_told_twice_late_or_in_another_order_change_nothing() -> None:
    quay, mesa = cluster("quay"), cluster("mesa", 2)
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(30)
        first = event("ADDED", mesa, "orders-0")
        mesa.apply(order(0, revision="g2"))
        second = event("MODIFIED", mesa, "orders-0")
        died = event("DELETED", mesa, "orders-1")
        mesa.delete("Pod", "shop/orders-1")
        mesa.apply(order(1, revision="g2"))
        again = event("ADDED", mesa, "orders-1")
        await asyncio.sleep(1)
        told = Told(mesh)
        held = told.pods()
        assert {name: one["canonical_revision"] for name, one in held.items()} == {"orders-0": "g2", "orders-1": "g2"}
        changes = mesh.table.cursor("mesa", from_start=False)
        for lines in ((again, again), (second, first), (died,), (again, died, first)):
            mesa.script(Lines(lines), verb="watch", kind="Pod")
            mesa.end_watches("Pod")
            await asyncio.sleep(60)
            assert (told.news(), mesh.state("mesa")) == (set(), "synced")
        assert {key for key in changes.take().changes if key[1] == "Pod"} == set()
        assert told.pods() == held
        assert mesh.metrics.restarts.values["mesa", "gone"] == 3


@virtual_time
async def test_row_11_a_rotation_in_the_middle_of_a_push_leaves_it_to_one_generation() -> None:
    quay, mesa = cluster("quay"), cluster("mesa", 20)
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa}, "t1")
        await asyncio.sleep(30)
        world, cursor = World("quay"), mesh.table.cursor()
        world.facts.apply(cursor.take().changes.items())
        world.step()
        mesa.apply(*(order(number, revision="g2") for number in range(20)))
        await asyncio.sleep(1)
        graph, pipeline = world.graph, world.pipeline
        graph.begin(pipeline.facts(cursor.take().changes), world.now)
        assert graph.run(30) is None
        # The new credential leads to another content, none of whose objects is the one before.
        until = asyncio.Event()
        mesa.script(Hold(until), kind="Pod")
        mesh.register("far", {"mesa": mesa}, "t2")
        await asyncio.sleep(1)
        mesa.apply(*(order(number, revision="g3") for number in range(20)))
        until.set()
        pushes, done = [], None
        while done is None:
            await asyncio.sleep(0.05)
            done = graph.run(30)
        pushes.append(done)
        assert {request.token for request in mesa.watching()} == {"t2"}
        graph.begin(pipeline.facts(cursor.take().changes), world.now)
        pushes.append(graph.run())
        assert [revisions(push) for push in pushes] == [{"g2"}, {"g3"}]
        assert [len(changed_names(push)) for push in pushes] == [20, 20]
        assert mesh.state("mesa") == "synced"


@virtual_time
async def test_row_14_a_network_that_is_named_anew_rewrites_its_gateways_and_ways_in_one_go() -> None:
    quay, mesa = cluster("quay", 1), cluster("mesa", 2)
    quay.apply(namespace("istio-system", network="net1"))
    mesa.apply(namespace("istio-system", network="net2"))
    mesa.apply(east_west_gateway("istio-system/east-west", "192.0.2.20", network="net2"))
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(5)
        told = Told(mesh)
        told.pods()
        assert ways(told) == {GATEWAY.format("net2"), WAY.format("net2")}
        mesa.apply(namespace("istio-system", network="net3"))
        mesa.apply(east_west_gateway("istio-system/east-west", "192.0.2.20", network="net3"))
        await asyncio.sleep(0.01)
        renamed = {pattern.format(network) for pattern in (GATEWAY, WAY) for network in ("net2", "net3")}
        # The service has an address in the network.
        assert told.news() == {*renamed, ORDERS_SERVICE}
        assert ways(told) == {GATEWAY.format("net3"), WAY.format("net3")}
        assert told.world.addresses()[WAY.format("net3")]["workload"]["capacity"] == 2
        await asyncio.sleep(60)
        assert (told.news(), mesh.state("mesa")) == (set(), "synced")


@virtual_time
async def test_row_25_huge_objects_are_read_in_bounded_slices_and_one_beyond_the_limit_spoils_no_other() -> None:
    quay, mesa, fjord = cluster("quay"), cluster("mesa", 1), cluster("fjord", 1)
    async with KubeMesh(quay, mesa, fjord) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await asyncio.sleep(30)
        told = Told(mesh)
        told.pods()
        mesa.apply(order(1, annotations={"padding": "x" * 1_500_000}))
        huge = [
            slice_(
                f"shop/orders-{part}",
                *(endpoint(f"10.3.{part}.{number}", pod=f"shop/p-{part}-{number}") for number in range(100)),
                service="orders",
            )
            for part in range(50)
        ]
        mesa.apply(*huge)
        fjord.apply(order(1))
        read = await turns_until(
            lambda: len(mesh.names("mesa", "EndpointSlice")) == 50 and "orders-1" in told.pods(),
            lambda: len(mesh.names("mesa", "EndpointSlice")),
        )
        # In one turn of the loop at most a share of work, and a batch that was begun before it was used up.
        size = min(len(json.dumps(one, separators=(",", ":"))) for one in huge)
        assert max(read) <= 2 * SHARE // size < len(huge)
        assert "orders-1" in told.pods("fjord")
        # One that is larger than any may be is named, and does not even end its watch.
        mesa.apply(order(0, revision="g2", annotations={"padding": "x" * (17 << 20)}), order(2))
        fjord.delete("Pod", "shop/orders-1")
        await asyncio.sleep(0.1)
        assert told.news() == {"fjord//Pod/shop/orders-1", "mesa//Pod/shop/orders-2"}
        assert told.pods()["orders-0"]["canonical_revision"] == "g1"
        fault = mesh.table.get(("mesa", "SourceFault", "", "Pod shop/orders-0"))
        assert isinstance(fault, SourceFault)
        assert (fault.cause, "--object-bytes" in fault.cure) == ("is larger than 16,777,216 bytes", True)
        assert [labels for labels in mesh.metrics.restarts.values if labels[0] == "mesa"] == []
        # So it is in a list, in pages or streamed.
        for mesa.watch_list in (False, True):
            mesa.script(Refuse(410, "Expired"), verb="watch", kind="Pod")
            mesa.end_watches("Pod")
            await asyncio.sleep(60)
            assert (mesh.state("mesa"), told.news()) == ("synced", set())
            assert mesh.names("mesa", "SourceFault") == ["Pod shop/orders-0"]
        mesa.apply(order(0, revision="g2"))
        await asyncio.sleep(1)
        assert mesh.names("mesa", "SourceFault") == []
        assert told.pods()["orders-0"]["canonical_revision"] == "g2"


@virtual_time
async def test_row_26_hostile_objects_are_put_aside_by_name_and_all_others_are_told() -> None:
    quay, mesa = cluster("quay"), cluster("mesa", 2)
    hostile = [
        {**order(7), "metadata": {"name": "nul\0name", "namespace": "shop"}},
        {**order(7), "metadata": {"name": "../etc", "namespace": "shop"}},
        order(8, revision="not a label!"),
        order(9, ports={"http": -1}),
        service("shop/negative", "10.96.0.11", ports={"http": -80}),
    ]
    mesa.apply(*hostile)
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(30)
        told = Told(mesh)
        assert [*told.pods()] == ["orders-0", "orders-1"]
        assert mesh.names("mesa", "Service") == ["orders"]
        faults = mesh.names("mesa", "SourceFault")
        assert {"Pod shop/orders-8", "Pod shop/orders-9", "Service shop/negative"} <= {*faults}
        assert mesh.metrics.invalid.values["mesa", "Service"] == 1
        for line in (
            event("MODIFIED", mesa, "orders-0").replace(b"orders", b"\xff\xfe"),
            b'{"type":"ADDED","object":' + b'{"metadata":' * 100_000,
            b'{"type":"ADDED","object":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b'{"type":"ADDED","object":7}',
        ):
            mesa.script(Lines((line,), then="go on"), verb="watch", kind="Pod")
            mesa.end_watches("Pod")
            await asyncio.sleep(60)
            assert (told.news(), mesh.state("mesa")) == (set(), "synced")
        mesa.apply(order(2))
        mesa.delete("Service", "shop/negative")
        await asyncio.sleep(1)
        assert [*told.pods()] == ["orders-0", "orders-1", "orders-2"]
        assert mesh.metrics.invalid.values["mesa", "Service"] == 0


async def test_row_32_a_name_that_is_not_found_and_a_new_authority_are_overcome_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quay, mesa = cluster("quay"), cluster("mesa", 2)
    quick = Pace(first_wait=0.02, longest_wait=0.1)
    async with KubeApi(quay, mesa, tls=True) as api, KubeMesh(quay, mesa, pace=quick, sockets=True) as mesh:
        loop, find = asyncio.get_running_loop(), asyncio.get_running_loop().getaddrinfo

        async def unknown(host: str, port: int, **how: Any) -> Any:
            if port == URL(mesa.url).port:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return await find(host, port, **how)

        with monkeypatch.context() as names:
            names.setattr(loop, "getaddrinfo", unknown)
            mesh.register("far", {"mesa": mesa})
            await eventually(lambda: mesh.state("mesa") == "connecting" and "not known" in mesh.reason("mesa"))
            assert mesh.state("quay") == "synced"
        await eventually(lambda: mesh.state("mesa") == "synced")
        told = Told(mesh)
        held = told.pods()
        assert [*held] == ["orders-0", "orders-1"]
        await api.stop(mesa)
        api.renew_authority()
        await api.start(mesa)
        await eventually(lambda: mesh.state("mesa") == "stale" and "certificate" in mesh.reason("mesa"))
        mesa.delete("Pod", "shop/orders-1")
        assert told.pods() == held
        mesh.register("far", {"mesa": mesa})
        await eventually(lambda: mesh.state("mesa") == "synced" and mesh.names("mesa") == ["orders-0"])
        assert told.news() == {"mesa//Pod/shop/orders-1"}
        assert mesh.metrics.restarts.values["mesa", "connect"] > 0
