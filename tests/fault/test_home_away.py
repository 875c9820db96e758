"""Row 3: home's API server is gone, and what goes on without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.kube_api import Refuse
from tests.kit.plane import ZTUNNEL_NODE, Plane
from tests.kit.two_api_servers import TwoApiServers
from tests.kit.two_clusters import WAY
from watchers.kubernetes import token_reviews
from xds.client import AdsStream, StreamEnded
from xds.messages.workload import ADDRESS_TYPE


@pytest.fixture
def servers(tmp_path: Path) -> TwoApiServers:
    servers = TwoApiServers(tmp_path)
    servers.alpha.apply(
        m.pod("istio-system/ztunnel-1", "10.10.1.200", account="ztunnel", node="alpha-1", ambient=False)
    )
    return servers


def token(servers: TwoApiServers, pod: str = "ztunnel-1") -> str:
    return servers.alpha.accounts.token("istio-system/ztunnel", pod=pod, node="alpha-1")


def go_away(servers: TwoApiServers) -> None:
    servers.alpha.script(Refuse(503), times=None)
    servers.alpha.end_watches()


async def capacity(stream: AdsStream) -> int:
    """How many endpoints of beta are told next."""
    while True:
        response = await asyncio.wait_for(stream.receive(), 20)
        await stream.ack(response)
        for resource in response.resources:
            if resource.name == WAY:
                return int(resource.message().workload.capacity.value)


async def test_row_03_connected_proxies_stay_and_go_on_to_hear_of_remotes(
    servers: TwoApiServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Open streams are asked about all the time, and no answer is believed for longer than a moment.
    monkeypatch.setattr(token_reviews, "FRESH", 0.01)
    async with servers.served():
        servers.register()
        async with (
            servers.plane(recheck_tokens=0.2, xds_plaintext=None) as plane,
            plane.client(token(servers), ZTUNNEL_NODE) as client,
            client.delta() as stream,
        ):
            await stream.subscribe(ADDRESS_TYPE)
            assert await capacity(stream) == 3
            go_away(servers)
            before = servers.alpha.count("create", "TokenReview")
            await eventually(lambda: servers.alpha.count("create", "TokenReview") > before + 3)
            servers.beta.delete("Pod", "shop/cart-3")
            assert await capacity(stream) == 2


async def test_row_03_who_was_accepted_comes_back_and_who_was_not_is_told_to_try_again(
    servers: TwoApiServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_reviews, "FRESH", 0.01)
    async with servers.served():
        servers.register()
        async with servers.plane(xds_plaintext=None) as plane:
            known, unknown = token(servers), token(servers, "ztunnel-2")
            assert await answered(plane, known) == 3
            go_away(servers)
            assert await answered(plane, known) == 3
            with pytest.raises(StreamEnded) as caught:
                await answered(plane, unknown)
            assert caught.value.code is grpc.StatusCode.UNAVAILABLE


async def answered(plane: Plane, token: str) -> int:
    """A new stream with this token, up to its first answer; raises StreamEnded."""
    async with plane.client(token, ZTUNNEL_NODE) as client, client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE)
        return await capacity(stream)
