"""ServiceExports behind API servers: read where their kind is served and may be read, missed where not."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit import manifests as m
from tests.kit.clock import virtual_time
from tests.kit.kube_api import KubeCluster
from tests.kit.kube_mesh import KubeMesh
from tests.kit.world import World
from watchers.facts.cluster import Answered

CART = "shop/cart.shop.svc.clusterset.local"
API = {"ServiceExport", "ServiceImport"}


async def grown(home: KubeCluster, remote: KubeCluster) -> World:
    """The world after all has been read of home alpha and of beta, which exports a service."""
    for number, cluster in enumerate((home, remote), start=1):
        cluster.apply(m.namespace("istio-system", network=f"net{number}"), m.namespace("shop"))
    remote.apply(m.service("shop/cart", "10.2.0.1", selector={"app": "cart"}), m.service_export("shop/cart"))
    async with KubeMesh(home, remote) as mesh:
        mesh.register("beta", {"beta": remote})
        await asyncio.sleep(5)
        assert (mesh.state("alpha"), mesh.state("beta")) == ("synced", "synced")
        assert ("ServiceExport" in mesh.reason("beta")) == ("ServiceExport" in remote.forbidden)
        world = World("alpha", facts=mesh.table)
        world.step()
        return world


def imports(world: World) -> bool:
    return any(key[1] == "ServiceImport" for key in world.published.get("writes", {}))


@virtual_time
async def test_a_service_that_a_remote_exports_is_told_and_imported() -> None:
    world = await grown(KubeCluster("alpha"), KubeCluster("beta"))
    assert world.address(CART)["hostname"] == "cart.shop.svc.clusterset.local"
    assert imports(world)


@pytest.mark.parametrize("way", ["forbidden", "absent"])
def test_a_remote_whose_exports_cannot_be_read_goes_on_without_them(way: str) -> None:
    @virtual_time
    async def run() -> None:
        remote = KubeCluster("beta")
        setattr(remote, way, API)
        world = await grown(KubeCluster("alpha"), remote)
        assert world.address(CART) == {}
        assert not imports(world)

    run()


@pytest.mark.parametrize("way", ["forbidden", "absent"])
def test_a_home_whose_imports_cannot_be_read_is_given_none_and_told_of_the_service(way: str) -> None:
    @virtual_time
    async def run() -> None:
        home = KubeCluster("alpha")
        setattr(home, way, {"ServiceImport"})
        world = await grown(home, KubeCluster("beta"))
        assert world.address(CART)
        assert not imports(world)

    run()


@virtual_time
async def test_what_home_serves_is_known_when_all_is() -> None:
    world = await grown(KubeCluster("alpha"), KubeCluster("beta"))
    known = world.facts.get(("alpha", "Answered", "", "alpha"))
    assert isinstance(known, Answered)
    assert known.read == ("ServiceImport",)
