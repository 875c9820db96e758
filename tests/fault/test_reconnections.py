"""A hundred proxies that come back at once, as they do when their control plane restarts, naming what they hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.kit.plane import Plane
from tests.kit.two_clusters import CART_1, CART_3, CLIENT, TOKEN, TwoClusters
from xds.client import AdsClient, Response
from xds.messages.workload import ADDRESS_TYPE

PROXIES = 100


async def answer(client: AdsClient, held: dict[str, str] | None = None) -> Response:
    """What a ztunnel is told first on a new stream."""
    async with client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE, held=held)
        response = await asyncio.wait_for(stream.receive(), 30)
        await stream.ack(response)
        return response


async def answers(plane: Plane, held: dict[str, str] | None = None) -> list[Response]:
    """What a hundred are told at once, each over a connection of its own."""

    async def one() -> Response:
        async with plane.client(TOKEN) as client:
            return await answer(client, held)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one()) for _ in range(PROXIES)]
    return [each.result() for each in running]


async def test_a_hundred_proxies_that_come_back_at_once_are_told_only_what_has_changed_meanwhile(
    tmp_path: Path,
) -> None:
    world = TwoClusters(tmp_path)
    async with world.plane() as plane, plane.client(TOKEN) as client:
        held = {one.name: one.version for one in (await answer(client)).resources}
    assert {CART_1, CLIENT} <= held.keys()
    assert CART_3 not in held
    world.cart_pod(world.alpha, 3)
    (world.alpha / "client.yaml").unlink()
    async with world.plane() as plane:
        told = await answers(plane, held)
    for response in told:
        assert [one.name for one in response.resources] == [CART_3]
        assert response.removed == (CLIENT,)


async def test_a_hundred_proxies_that_come_back_at_once_with_nothing_changed_are_sent_no_resource(
    tmp_path: Path,
) -> None:
    world = TwoClusters(tmp_path)
    async with world.plane() as plane:
        async with plane.client(TOKEN) as client:
            held = {one.name: one.version for one in (await answer(client)).resources}
        told = await answers(plane, held)
    assert not any(response.resources or response.removed for response in told)


async def test_a_hundred_proxies_that_come_at_once_holding_nothing_are_all_told_everything(tmp_path: Path) -> None:
    async with TwoClusters(tmp_path).plane() as plane:
        told = await answers(plane)
    first = {one.name: one.version for one in told[0].resources}
    assert first
    assert all({one.name: one.version for one in response.resources} == first for response in told)
