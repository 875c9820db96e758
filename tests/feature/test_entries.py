"""ServiceEntries and WorkloadEntries of remote clusters behind API servers: read if that is asked for, and allowed."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit import manifests as m
from tests.kit.clock import virtual_time
from tests.kit.kube_api import KubeCluster
from tests.kit.kube_mesh import KubeMesh
from tests.kit.world import World

API = "shop/api.example"
REACH = f"net-b/SplitHorizonWorkload/istio-system/edge/203.0.113.9/{API}"


def clusters() -> tuple[KubeCluster, KubeCluster]:
    home, remote = KubeCluster("alpha"), KubeCluster("beta")
    home.apply(m.namespace("istio-system", network="net-a"), m.namespace("shop"))
    remote.apply(
        m.namespace("istio-system", network="net-b"),
        m.namespace("shop"),
        m.east_west_gateway("istio-system/edge", "203.0.113.9", network="net-b"),
        m.service_entry("shop/api", "api.example", selector={"app": "api"}, is_global=True),
        m.workload_entry("shop/vm", "10.9.9.9", labels={"app": "api"}, account="api", weight=3),
    )
    return home, remote


async def told(remote_entries: bool, *, forbidden: bool = False) -> World:
    home, remote = clusters()
    if forbidden:
        remote.forbidden = {"ServiceEntry", "WorkloadEntry"}
    async with KubeMesh(home, remote, remote_entries=remote_entries) as mesh:
        mesh.register("remotes", {"beta": remote})
        await asyncio.sleep(1)
        assert mesh.state("beta") == "synced"
        world = World("alpha", facts=mesh.table, remote_entries=remote_entries)
        world.step()
    return world


@virtual_time
async def test_they_are_read_if_asked_for() -> None:
    world = await told(remote_entries=True)
    assert len([one for one in world.address(API)["addresses"] if one["network"] == "net-a"]) == 2
    assert world.address(API)["subject_alt_names"] == ["spiffe://cluster.local/ns/shop/sa/api"]
    assert world.address(REACH)["capacity"] == 3


@pytest.mark.parametrize(("remote_entries", "forbidden"), [(False, False), (True, True)])
@virtual_time
async def test_where_they_are_not_read_or_may_not_be_the_cluster_is_of_use_without_them(
    remote_entries: bool, forbidden: bool
) -> None:
    world = await told(remote_entries, forbidden=forbidden)
    assert API not in world.addresses()
    assert "NetworkGateway/net-b/203.0.113.9/0" in world.addresses()
