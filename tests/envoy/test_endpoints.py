"""Endpoints that go: requests go elsewhere from then on, and where it was announced none fails."""

from __future__ import annotations

import pytest

from aggregator.demo import changes
from aggregator.demo.stage import HOST
from tests.kit.eventually import eventually
from tests.kit.load import Load
from tests.kit.mesh import Mesh
from xds.messages.hbone import LONGEST_CONNECTION


async def test_when_the_last_pod_at_home_is_no_longer_ready_another_cluster_answers(mesh: Mesh) -> None:
    async with Load(mesh.traveller, HOST, "/orders") as load:
        changes.set_ready(mesh.stage.west, "orders-1", ready=False)
        moved = await mesh.answered(HOST, "/orders", lambda journey: journey.echo.cluster == "east")
        # It has been told, so it may go.
        await mesh.plane.apps["west-orders-1"].stop()
        await load.answered(20)
    assert load.failures == []
    assert {one.cluster for one in load.since(moved)} == {"east"}


async def test_when_it_is_ready_again_home_answers_again(mesh: Mesh) -> None:
    changes.set_ready(mesh.stage.west, "orders-1", ready=False)
    await mesh.answered(HOST, "/orders", lambda journey: journey.echo.cluster == "east")
    async with Load(mesh.traveller, HOST, "/orders") as load:
        changes.set_ready(mesh.stage.west, "orders-1", ready=True)
        moved = await mesh.answered(HOST, "/orders", lambda journey: journey.echo.cluster == "west")
        await load.answered(20)
    assert load.failures == []
    assert {one.cluster for one in load.since(moved)} == {"west"}


@pytest.mark.slow
async def test_of_pods_behind_a_gateway_those_that_are_no_longer_ready_get_nothing_more_when_connections_have_aged(
    mesh: Mesh,
) -> None:
    """A connection through a gateway stays with its pod, whoever is ready; so it is not used for long."""
    async with Load(mesh.traveller, HOST) as load:
        told = max(changes.set_ready(mesh.stage.east, pod, ready=False) for pod in ("catalog-1", "catalog-2"))
        await load.until(lambda one: one.asked > told + LONGEST_CONNECTION + 1.0)
        for pod in ("catalog-1", "catalog-2"):
            await mesh.plane.apps[f"east-{pod}"].stop()
        await load.answered(20)
    assert load.failures == []
    assert {one.app for one in load.since(told + LONGEST_CONNECTION + 1.0)} == {"catalog-3"}


async def test_pods_behind_a_gateway_share_the_requests(mesh: Mesh) -> None:
    async with Load(mesh.traveller, HOST, visitors=6) as load:
        # The gateway chooses a pod for each connection, by lot among the least busy: six of them may miss one, but not
        # those that follow as they are renewed.
        apps = {"catalog-1", "catalog-2", "catalog-3"}
        await eventually(lambda: {one.app for one in load.answers} == apps, 6 * LONGEST_CONNECTION)
    assert load.failures == []


async def test_a_service_without_ready_pods_is_unavailable_at_once_and_back_with_its_first(mesh: Mesh) -> None:
    for pod in ("catalog-1", "catalog-2", "catalog-3"):
        changes.set_ready(mesh.stage.east, pod, ready=False)
    await mesh.status(HOST, "/", 503)
    answer = await mesh.traveller.get(HOST, "/")
    assert answer.seconds < 1.0
    changes.set_ready(mesh.stage.east, "catalog-2", ready=True)
    await mesh.answered(HOST, "/", lambda journey: journey.echo.app == "catalog-2")
