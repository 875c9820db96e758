"""Services that clusters export, between real API servers, by the role of home and that of a reader alone."""

from __future__ import annotations

from typing import Any

from tests.kit import manifests as m
from tests.kit.eventually import eventually_awaited
from tests.kit.plane import Plane
from tests.kit.three_servers import ThreeServers
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel, ZtunnelMachine

API = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/shop"
CART = "shop/cart.shop.svc.clusterset.local"


async def found(world: ThreeServers, path: str) -> dict[str, Any] | None:
    status, document = await world.alpha.ask("GET", f"{API}/{path}")
    assert status in (200, 404), document
    return dict(document) if status == 200 else None


async def conditions(world: ThreeServers) -> dict[str, str]:
    export = await found(world, "serviceexports/cart") or {}
    return {one["type"]: f"{one['status']} {one['reason']}" for one in export.get("status", {}).get("conditions", ())}


async def clusters(world: ThreeServers) -> list[str]:
    imported = await found(world, "serviceimports/cart") or {}
    return [one["cluster"] for one in imported.get("status", {}).get("clusters", ())]


async def at_rest(plane: Plane) -> bool:
    return len(plane.control.tables.writes) == 0


def done(plane: Plane) -> float:
    assert plane.control.writing is not None
    metrics = {metric.name: metric.values for metric in plane.control.writing.metrics()}
    return metrics["isthmus.writes"].get(("done",), 0)


async def test_a_service_that_two_clusters_export_is_imported_at_home_and_told_to_a_ztunnel(
    world: ThreeServers,
) -> None:
    await world.register(world.beta)
    export = m.service_export("shop/cart")
    for server in (world.alpha, world.beta):
        await server.apply(export)

    async def exported_by(*expected: str) -> bool:
        return await clusters(world) == list(expected)

    async def told() -> bool:
        return (await conditions(world)).get("Valid") == "True Valid"

    async with world.plane(leader_elect=False) as plane, plane.connect(Ztunnel("net1")) as client:
        await eventually_awaited(lambda: exported_by("alpha", "beta"), 20.0, interval=0.05)
        await eventually_awaited(told, 20.0, interval=0.05)
        imported = await found(world, "serviceimports/cart")
        assert imported is not None
        (address,) = imported["spec"]["ips"]

        def reaches_it(machine: ZtunnelMachine) -> bool:
            return CART in machine.held(ADDRESS_TYPE)

        await client.until(reaches_it, 20.0)
        assert address.startswith("240.240.")
        await eventually_awaited(lambda: at_rest(plane), 20.0, interval=0.05)

    # A process that starts anew finds everything said.
    async with world.plane(leader_elect=False) as plane:
        await eventually_awaited(lambda: at_rest(plane), 20.0, interval=0.05)
        assert done(plane) == 0
        again = await found(world, "serviceimports/cart")
        assert again is not None
        assert again["spec"]["ips"] == [address]
        await world.beta.delete("ServiceExport", "shop/cart", api_version="multicluster.x-k8s.io/v1alpha1")
        await eventually_awaited(lambda: exported_by("alpha"), 20.0, interval=0.05)
        await world.alpha.delete("ServiceExport", "shop/cart", api_version="multicluster.x-k8s.io/v1alpha1")

        async def gone() -> bool:
            return await found(world, "serviceimports/cart") is None

        await eventually_awaited(gone, 20.0, interval=0.05)
