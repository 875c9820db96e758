"""Proxies prove who they are by tokens of their cluster, which its API server reviews."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit import manifests as m
from tests.kit.plane import ZTUNNEL_NODE
from tests.kit.three_servers import SYSTEM, ThreeServers
from watchers.kubernetes import token_reviews
from xds.client import AdsClient, DeltaStream, StreamEnded
from xds.messages.workload import ADDRESS_TYPE

ZTUNNEL = f"{SYSTEM}/ztunnel"


async def first(client: AdsClient) -> set[str]:
    """What the first answer about addresses names."""
    async with client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE)
        response = await asyncio.wait_for(stream.receive(), 20)
        return {one.name for one in response.resources}


async def test_a_ztunnel_with_a_token_of_its_account_is_served(world: ThreeServers) -> None:
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca")
        async with plane.client(token) as client:
            assert "alpha//Pod/shop/cart-1" in await first(client)


async def test_a_token_says_which_pod_it_is_bound_to(world: ThreeServers) -> None:
    pod = m.pod(f"{SYSTEM}/ztunnel-1", "10.10.1.99", account="ztunnel", node="alpha-1")
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        await world.alpha.create_token(ZTUNNEL)
        await world.alpha.apply(pod)
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca", pod="ztunnel-1")
        async with plane.client(token) as client:
            assert await first(client)
        another = ZTUNNEL_NODE.replace("ztunnel-1", "ztunnel-2")
        async with plane.client(token, another) as client:
            with pytest.raises(StreamEnded, match="pod"):
                await first(client)


@pytest.mark.parametrize("kind", ["another audience", "another account", "no token of this cluster"])
async def test_a_token_for_somebody_else_is_not_accepted(world: ThreeServers, kind: str) -> None:
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        if kind == "another audience":
            token = await world.alpha.create_token(ZTUNNEL)
        elif kind == "another account":
            token = await world.alpha.create_token("shop/cart", 3600, "istio-ca")
        else:
            token = await world.beta.create_token(ZTUNNEL, 3600, "istio-ca")
        async with plane.client(token) as client:
            with pytest.raises(StreamEnded):
                await first(client)


async def test_the_stream_of_a_pod_that_is_deleted_ends_as_its_token_is_revoked_with_it(
    world: ThreeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An answer counts for a minute, and for ten seconds more at a real API server.
    monkeypatch.setattr(token_reviews, "FRESH", 0.5)
    pod = m.pod(f"{SYSTEM}/ztunnel-3", "10.10.1.98", account="ztunnel", node="alpha-1")
    async with world.plane(xds_plaintext=None, leader_elect=False, recheck_tokens=1.0) as plane:
        await world.alpha.create_token(ZTUNNEL)
        await world.alpha.apply(pod)
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca", pod="ztunnel-3")
        node_id = ZTUNNEL_NODE.replace("ztunnel-1", "ztunnel-3")
        async with plane.client(token, node_id) as client, client.delta() as stream:
            await stream.subscribe(ADDRESS_TYPE)
            await asyncio.wait_for(stream.receive(), 20)
            await world.alpha.delete("Pod", f"{SYSTEM}/ztunnel-3")
            with pytest.raises(StreamEnded, match="UNAUTHENTICATED"):
                await asyncio.wait_for(exhausted(stream), 30)


async def exhausted(stream: DeltaStream) -> None:
    async for _ in stream:
        pass


async def test_row_03_while_homes_api_server_is_gone_a_ztunnel_that_was_accepted_comes_back(
    world: ThreeServers,
) -> None:
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca")
        async with plane.client(token) as client:
            told = await first(client)
        world.alpha.crash()
        try:
            async with plane.client(token) as client:
                assert await first(client) == told
        finally:
            world.alpha.launch()
            await asyncio.to_thread(world.alpha.await_ready)
