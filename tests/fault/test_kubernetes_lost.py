"""Clusters that cannot be read any more, or not yet: what proxies are told of them, and what people are.

Rows of the list of faults are named in the tests. What is asserted is what a ztunnel at home is told (`Told`), the
metric of the cluster's state, and its status. In virtual time, without sockets.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from aggregator.app.metrics import ClusterStates
from aggregator.pipeline import SETTLED
from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hang, KubeCluster, Refuse
from tests.kit.kube_mesh import KubeMesh
from tests.kit.manifests import east_west_gateway, namespace, pod, service
from tests.kit.world import World, changed_names
from watchers.status import ClusterStatus

ORDERS = {"app": "orders"}
GATEWAY = "NetworkGateway/net-mesa/198.51.100.20/0"
ORDERS_SERVICE = "shop/orders.shop.svc.cluster.local"
REACH = f"net-mesa/SplitHorizonWorkload/istio-system/edge/198.51.100.20/{ORDERS_SERVICE}"
REACH_FJORD = f"net-fjord/SplitHorizonWorkload/istio-system/edge/198.51.100.30/{ORDERS_SERVICE}"
SOON = 5.0
"""Seconds within which a change of state is to be known."""


def quay() -> KubeCluster:
    cluster = KubeCluster("quay")
    cluster.apply(namespace("istio-system", network="net-quay"), namespace("shop"))
    cluster.apply(service("shop/orders", "10.10.0.11", selector=ORDERS, is_global=True))
    cluster.apply(pod("shop/orders-0", "10.1.0.5", labels=ORDERS))
    return cluster


def far(name: str = "mesa", pods: int = 2) -> KubeCluster:
    cluster, number = KubeCluster(name), {"mesa": 2, "fjord": 3}[name]
    cluster.apply(namespace("istio-system", network=f"net-{name}"), namespace("shop"))
    cluster.apply(service("shop/orders", f"10.{number}0.0.11", selector=ORDERS, is_global=True))
    cluster.apply(*(pod(f"shop/orders-{each}", f"10.{number}.0.{each + 5}", labels=ORDERS) for each in range(pods)))
    cluster.apply(east_west_gateway("istio-system/edge", f"198.51.100.{number}0", network=f"net-{name}"))
    return cluster


def now() -> float:
    return asyncio.get_running_loop().time()


class Told:
    """What a ztunnel at home is told: the graph over the table that the mesh writes, at the time of the loop."""

    def __init__(self, mesh: KubeMesh, **settings: Any) -> None:
        self.mesh = mesh
        self.world = World(mesh.home.name, facts=mesh.table, **settings)
        self.news()

    def news(self) -> set[str]:
        """The names of the resources that change by now."""
        self.world.now = now()
        return changed_names(self.world.step())

    async def pass_time(self, seconds: float) -> dict[float, set[str]]:
        """Lets time pass, with a pass every half a second; what changed, by the time it took until then."""
        began, changed = now(), {}
        for _ in range(round(seconds * 2)):
            await asyncio.sleep(0.5)
            if news := self.news():
                changed[now() - began] = news
        return changed

    @property
    def reach(self) -> int:
        """How many endpoints of orders in mesa a ztunnel reaches through its gateway."""
        return int(self.world.address(REACH).get("capacity", 0))

    @property
    def settled(self) -> bool:
        """Whether absence from what is told means anything."""
        return set(self.world.published[SETTLED].values()) == {"settled"}


def status(mesh: KubeMesh, cluster: str = "mesa") -> ClusterStatus:
    return next(one for one in mesh.clusters.statuses() if one.cluster == cluster)


def metric(mesh: KubeMesh, name: str = "state", cluster: str = "mesa") -> dict[str, float]:
    """The values of a cluster's metric by its other label that are not zero; of the state the one it is in."""
    found = {one.name: one for one in ClusterStates(mesh.clusters.statuses)()}[f"isthmus.cluster.{name}"]
    return {"".join(labels[1:]): value for labels, value in found.values.items() if labels[0] == cluster and value}


@pytest.mark.parametrize("phase", [0.0, 0.7, 1.4])
def test_row_01_a_remote_api_server_that_is_killed_is_stale_in_time_and_nobody_is_told_anything(phase: float) -> None:
    @virtual_time
    async def check() -> None:
        home, mesa = quay(), far()
        async with KubeMesh(home, mesa) as mesh:
            mesh.register("far", {"mesa": mesa})
            await asyncio.sleep(65 + phase)
            told = Told(mesh)
            asked = mesa.count("list") + mesh.metrics.lists.values["mesa", "Pod"]
            mesa.refuse_connections = True
            mesa.end_watches()
            await asyncio.sleep(SOON)
            assert metric(mesh) == {"stale": 1}
            assert await told.pass_time(300) == {}
            assert told.reach == 2
            mesa.refuse_connections = False
            assert await told.pass_time(60) == {}
            assert metric(mesh) == {"synced": 1}
            # It went on where it had been, from the last version that it was told.
            assert mesa.count("list") + mesh.metrics.lists.values["mesa", "Pod"] == asked

    check()


@virtual_time
async def test_row_01_what_happened_while_an_api_server_was_gone_is_told_when_it_is_back() -> None:
    home, mesa = quay(), far()
    async with KubeMesh(home, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(60)
        told = Told(mesh)
        mesa.refuse_connections = True
        mesa.end_watches()
        await asyncio.sleep(30)
        mesa.delete("Pod", "shop/orders-1")
        mesa.refuse_connections = False
        assert list((await told.pass_time(60)).values()) == [{REACH}]
        assert told.reach == 1


@virtual_time
async def test_row_02_a_remote_that_is_down_at_the_start_is_waited_for_so_long_and_merged_at_once_when_it_is_back() -> (
    None
):
    home, mesa, fjord = quay(), far(), far("fjord", 1)
    mesa.refuse_connections = True
    async with KubeMesh(home, mesa, fjord) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await asyncio.sleep(2)
        told = Told(mesh)
        settled = [told.settled]
        assert (told.reach, told.world.address(REACH_FJORD)["capacity"]) == (0, 1)
        for seconds in (27, 3):
            await told.pass_time(seconds)
            settled.append(told.settled)
        assert settled == [False, False, True]
        assert (metric(mesh), status(mesh).reason) == ({"connecting": 1}, "Connection refused")
        mesa.refuse_connections = False
        back = await told.pass_time(31)
        assert list(back.values()) == [{REACH, GATEWAY, ORDERS_SERVICE}]
        assert (metric(mesh), told.reach) == ({"synced": 1}, 2)


@pytest.mark.parametrize("later", [0.0, 3.0])
def test_a_blip_while_a_cluster_is_added_ends_within_one_delay_on_every_replica(later: float) -> None:
    @virtual_time
    async def check() -> None:
        home, mesa, fjord = quay(), far(), far("fjord", 1)
        mesa.script(Refuse(503, "ServiceUnavailable"), times=40)
        await asyncio.sleep(later)
        async with KubeMesh(home, mesa, fjord) as mesh:
            mesh.register("far", {"mesa": mesa, "fjord": fjord})
            await asyncio.sleep(2)
            told = Told(mesh)
            assert metric(mesh) == {"connecting": 1}
            assert told.world.address(REACH_FJORD)["capacity"] == 1
            while mesa.count(status=503) < 40:
                await told.pass_time(10)
            await told.pass_time(30)
            assert (metric(mesh), told.reach) == ({"synced": 1}, 2)

    check()


@pytest.mark.parametrize("phase", [0.0, 0.7, 1.4])
def test_row_09_a_revoked_token_is_denied_in_time_and_recovers_with_the_next_secret(phase: float) -> None:
    @virtual_time
    async def check() -> None:
        home, mesa = quay(), far()
        mesa.tokens = {"t1"}
        async with KubeMesh(home, mesa) as mesh:
            mesh.register("far", {"mesa": mesa}, "t1")
            await asyncio.sleep(65 + phase)
            told = Told(mesh, stale_after=60.0, stale_ttl=120.0)
            mesa.tokens = {"t2"}
            await asyncio.sleep(SOON)
            assert metric(mesh) == {"denied": 1}
            assert "401" in status(mesh).reason
            # What was read is kept as long as that of a cluster that cannot be reached.
            assert await told.pass_time(45) == {}
            mesh.register("far", {"mesa": mesa}, "t2")
            assert await told.pass_time(5) == {}
            assert (metric(mesh), told.reach) == ({"synced": 1}, 2)

    check()


@virtual_time
async def test_row_09_a_token_that_stays_revoked_loses_its_cluster_after_the_limit_alone() -> None:
    home, mesa, fjord = quay(), far(), far("fjord", 1)
    mesa.tokens = {"t1"}
    async with KubeMesh(home, mesa, fjord) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord}, "t1")
        await asyncio.sleep(60)
        told = Told(mesh, stale_after=60.0, stale_ttl=120.0)
        mesa.tokens = set()
        changed = await told.pass_time(130)
        assert [names & {REACH, REACH_FJORD} for names in changed.values()] == [{REACH}, {REACH}]
        assert (told.reach, told.world.address(REACH_FJORD)["capacity"]) == (0, 1)
        mesa.tokens = {"t1"}
        await told.pass_time(SOON)
        assert (metric(mesh), told.reach) == ({"synced": 1}, 2)


@virtual_time
async def test_off_a_black_holed_cluster_is_unchanged_for_an_hour_and_its_lag_grows() -> None:
    home, mesa = quay(), far()
    async with KubeMesh(home, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(60)
        told = Told(mesh)
        mesa.script(Hang(), times=None)
        mesa.freeze()
        lost, lags = now(), []
        for _ in range(6):
            assert await told.pass_time(600) == {}
            lags.append(metric(mesh, "lag")[""])
        assert (told.reach, metric(mesh)) == (2, {"stale": 1})
        assert lags == pytest.approx([600.0 * number for number in range(1, 7)], abs=1.0)
        assert now() - lost == 3600
        assert status(mesh).state == "Stale"


@pytest.mark.parametrize("phase", [0.0, 0.7, 1.4])
def test_with_a_limit_a_black_holed_cluster_is_withdrawn_then_and_back_within_one_resync(phase: float) -> None:
    @virtual_time
    async def check() -> None:
        home, mesa = quay(), far()
        async with KubeMesh(home, mesa) as mesh:
            mesh.register("far", {"mesa": mesa})
            await asyncio.sleep(65 + phase)
            told = Told(mesh, stale_ttl=60.0)
            silence = mesa.script(Hang(), times=None)
            mesa.freeze()
            changed = await told.pass_time(90)
            (moment,) = (moment for moment, names in changed.items() if REACH in names)
            assert 60.0 <= moment <= 62.5
            assert told.reach == 0
            assert [found.code for found in told.world.findings()] == ["ClusterWithdrawn"]
            silence.withdraw()
            # The watches that fell silent are given up later, by their own limit; what they held counts again at once.
            assert [REACH in names for names in (await told.pass_time(SOON)).values()] == [True]
            assert (told.reach, metric(mesh), told.world.findings()) == (2, {"synced": 1}, [])

    check()


@virtual_time
async def test_with_a_limit_a_cluster_that_is_lost_for_ten_seconds_changes_nothing() -> None:
    home, mesa = quay(), far()
    async with KubeMesh(home, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(60)
        told = Told(mesh, stale_ttl=60.0)
        silence = mesa.script(Hang(), times=None)
        assert await told.pass_time(10) == {}
        assert metric(mesh) == {"stale": 1}
        silence.withdraw()
        assert await told.pass_time(200) == {}
        assert metric(mesh) == {"synced": 1}


@pytest.mark.parametrize("phase", [0.0, 0.7, 1.4])
@pytest.mark.parametrize("stalled", [0.0, 30.0, 90.0])
def test_who_asks_is_told_the_truth_of_a_stall_within_a_second(phase: float, stalled: float) -> None:
    @virtual_time
    async def check() -> None:
        home, mesa = quay(), far()
        async with KubeMesh(home, mesa) as mesh:
            mesh.register("far", {"mesa": mesa})
            await asyncio.sleep(65 + phase)
            mesa.script(Hang(), times=None)
            mesa.freeze()
            lost = now()
            await asyncio.sleep(stalled)
            asked = now()
            await mesh.clusters.confirm("mesa", 1.0)
            assert now() - asked <= 1.0
            found = status(mesh)
            assert found.state == "Stale"
            assert found.lag == pytest.approx(now() - lost, abs=1.0)

    check()


@virtual_time
async def test_who_asks_of_a_cluster_that_is_well_is_told_that_it_is_current() -> None:
    home, mesa = quay(), far()
    async with KubeMesh(home, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(61)
        await mesh.clusters.confirm(None, 1.0)
        found = status(mesh)
        assert (found.state, found.reason) == ("Synced", "")
        assert found.lag == pytest.approx(0.0, abs=0.01)
        assert (found.registered_by, found.uid) == ("Secret istio-system/far", "uid-of-mesa")
        assert {kind.kind: kind.objects for kind in found.kinds if kind.objects} == metric(mesh, "objects")


@virtual_time
async def test_a_cluster_that_was_removed_is_shown_for_ten_minutes() -> None:
    home, mesa = quay(), far()
    async with KubeMesh(home, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(5)
        mesh.unregister("far")
        await asyncio.sleep(1)
        found = status(mesh)
        assert (found.state, found.registered_by, found.since) == ("Removed", "Secret istio-system/far", now() - 1)
        assert metric(mesh) == {"removed": 1}
        await asyncio.sleep(600)
        assert mesh.clusters.statuses() == []


@virtual_time
async def test_a_cluster_that_comes_back_is_removed_no_more() -> None:
    home, mesa = quay(), far()
    async with KubeMesh(home, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(5)
        mesh.unregister("far")
        await asyncio.sleep(1)
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        assert [one.state for one in mesh.clusters.statuses()] == ["Synced"]


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_a_cluster_and_its_gateways_address_end_alike_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    @virtual_time
    async def check() -> None:
        home, mesa = quay(), KubeCluster("mesa")
        mesa.apply(namespace("istio-system", network="net-mesa"), namespace("shop"))
        edge = east_west_gateway("istio-system/edge", "198.51.100.20", network="net-mesa")
        nowhere = east_west_gateway("istio-system/edge", network="net-mesa")
        mesa.apply(nowhere)
        async with KubeMesh(home, mesa) as mesh:
            await asyncio.sleep(1)
            told = Told(mesh)
            parts = (
                lambda: mesh.register("far", {"mesa": mesa}),
                lambda: mesa.apply(service("shop/orders", "10.20.0.11", selector=ORDERS, is_global=True)),
                lambda: mesa.apply(*(pod(f"shop/orders-{n}", f"10.2.0.{n + 5}", labels=ORDERS) for n in range(2))),
                lambda: mesa.apply(edge),
            )
            for part in order:
                parts[part]()
                await asyncio.sleep(2)
                told.news()
                assert not any(name.startswith("mesa/") for name in told.world.addresses())
            assert told.reach == 2
            final = told.world.versions()
            mesa.apply(nowhere)
            await asyncio.sleep(1)
            told.news()
            assert told.reach == 0
            mesa.apply(edge)
            await asyncio.sleep(1)
            told.news()
            assert told.world.versions() == final

    check()
