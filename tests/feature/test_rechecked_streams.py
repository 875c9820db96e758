"""Streams that are open when their caller's word does not hold any more: they end within a bound, the others stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from tests.kit import manifests as m
from tests.kit.callers import EAST_WEST, INGRESS, ZTUNNEL, Caller, Callers
from tests.kit.manifests import write_manifests
from xds.client import AdsStream, StreamEnded
from xds.messages.listener import LISTENER_TYPE
from xds.messages.workload import ADDRESS_TYPE

SOON = 0.3


@pytest.fixture
def callers(tmp_path: Path) -> Callers:
    return Callers(tmp_path, recheck_tokens=SOON)


async def end_of(stream: AdsStream) -> StreamEnded:
    """How the server ends a stream that was answered."""
    with pytest.raises(StreamEnded) as caught:
        await asyncio.wait_for(exhausted(stream), 10)
    return caught.value


async def exhausted(stream: AdsStream) -> None:
    async for _ in stream:
        pass


def rewrite(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document))
    draft.replace(path)


async def test_the_stream_of_a_revoked_token_ends_and_no_other(callers: Callers) -> None:
    async with (
        callers,
        callers.client("15012", ZTUNNEL) as client,
        callers.client("15012", EAST_WEST) as other,
        client.delta() as stream,
        other.delta() as stays,
    ):
        await stream.subscribe(ADDRESS_TYPE)
        await stream.receive()
        await stays.subscribe(LISTENER_TYPE)
        await stays.receive()
        rewrite(callers.identities, lambda known: known.pop(callers.token(ZTUNNEL)))
        end = await end_of(stream)
        assert end.code is grpc.StatusCode.UNAUTHENTICATED
        # More than once asked about by now, and still there.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * SOON):
                await stays.receive()


async def test_the_stream_of_a_token_that_is_somebody_elses_by_now_ends(callers: Callers) -> None:
    async with callers, callers.client("15012", ZTUNNEL) as client, client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE)
        await stream.receive()

        def give_away(known: dict[str, object]) -> None:
            known[callers.token(ZTUNNEL)] = known[callers.token(INGRESS)]

        rewrite(callers.identities, give_away)
        assert (await end_of(stream)).code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_proxy_whose_pod_has_another_role_by_now_has_to_connect_again(callers: Callers) -> None:
    async with callers, callers.client("15012", INGRESS) as client, client.delta() as stream:
        await stream.subscribe(LISTENER_TYPE)
        await stream.receive()
        write_manifests(callers.home, *callers.manifests(without="ingress-1"), plain_pod(INGRESS))
        end = await end_of(stream)
        assert end.code is grpc.StatusCode.PERMISSION_DENIED
        assert "plain workloads" in end.details


async def test_a_proxy_whose_pod_has_moved_has_to_connect_again(callers: Callers) -> None:
    async with callers, callers.client("15012", ZTUNNEL) as client, client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE)
        await stream.receive()
        moved = m.pod("istio-system/ztunnel-1", "10.0.0.1", account="ztunnel", node="n2", ambient=False)
        write_manifests(callers.home, *callers.manifests(without="ztunnel-1"), moved)
        end = await end_of(stream)
        assert (end.code, end.details) == (
            grpc.StatusCode.UNAVAILABLE,
            "what is known of the proxy's pod has changed: connect again",
        )


async def test_a_stream_ends_with_the_client_certificate_it_was_opened_with(tmp_path: Path) -> None:
    callers = Callers(tmp_path)
    callers.lifetime = timedelta(seconds=3)
    async with callers, callers.client("15013", ZTUNNEL) as client, client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE)
        await stream.receive()
        end = await end_of(stream)
        assert end.code is grpc.StatusCode.UNAUTHENTICATED
        assert "expired" in end.details


def plain_pod(caller: Caller) -> m.Manifest:
    account = caller.identity.service_account
    return m.pod("istio-system/ingress-1", "10.0.0.3", account=account, node="n1", ambient=False)
