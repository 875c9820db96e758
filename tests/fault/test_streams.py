"""Streams when something is at fault: the server itself, its surroundings, or the connection."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import grpc
import pytest

from tests.kit.accounts import Accounts
from tests.kit.transport import Content, Peer, turns
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.records import Record
from xds.server.access import Access
from xds.server.proxies import Proxy
from xds.server.refusals import Refusal
from xds.server.streams import Streams
from xds.session.content import Subscription, Views


def streams_of(views_for: Callable[[Proxy, Callable[[], None]], Views]) -> Streams:
    records: list[Record] = []
    return Streams(Access(Accounts(), patience=0.01), views_for, records)


class Failing:
    """Views that fail where they are told to."""

    def __init__(self, content: Content, proxy: Proxy, bell: Callable[[], None]) -> None:
        self._views = content.views_for(proxy, bell)

    def open(self, type_url: str) -> Subscription | None:
        if type_url == ADDRESS_TYPE:
            raise RuntimeError("no such table: s3cret")
        return self._views.open(type_url)


@pytest.mark.parametrize("first", [True, False])
async def test_a_fault_of_the_server_ends_that_stream_alone_and_is_logged(
    first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    content = Content()
    streams = streams_of(lambda proxy, bell: Failing(content, proxy, bell))
    async with Peer(streams) as other, Peer(streams) as peer:
        other.ask(AUTHORIZATION_TYPE)
        other.ack(await other.response())
        if not first:
            peer.ask(AUTHORIZATION_TYPE)
            await peer.response()
        peer.ask(ADDRESS_TYPE)
        with pytest.raises(Refusal) as caught:
            await asyncio.wait_for(peer.served, 5)
        await turns()
        assert not other.served.done()
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert "s3cret" not in caught.value.message
    (logged,) = caplog.records
    assert logged.exc_info is not None
    assert "no such table" in str(logged.exc_info[1])


async def test_a_fault_while_writing_ends_that_stream_alone_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    content = Content()
    streams = streams_of(content.views_for)
    async with Peer(streams) as peer:
        peer.transport.fail = RuntimeError("broken")
        peer.ask(AUTHORIZATION_TYPE)
        with pytest.raises(Refusal) as caught:
            await asyncio.wait_for(peer.served, 5)
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert len(caplog.records) == 1
    assert content.readings == []


async def test_a_connection_that_breaks_ends_its_stream_quietly(caplog: pytest.LogCaptureFixture) -> None:
    content = Content()
    streams = streams_of(content.views_for)
    async with Peer(streams) as peer:
        peer.ask(AUTHORIZATION_TYPE)
        await peer.response()
        peer.disconnect()
        await asyncio.wait_for(peer.served, 5)
    assert caplog.records == []
    assert content.readings == []


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nothing is collected: what refers to itself in a circle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("end", ["half-close", "cancel", "disconnect", "refuse", "garbage", "drain"])
async def test_an_ended_stream_leaves_no_object_even_without_the_collector(end: str, no_collector: None) -> None:
    streams = streams_of(Content().views_for)
    left: list[weakref.ref[object]] = []
    async with Peer(streams) as peer:
        peer.ask(AUTHORIZATION_TYPE)
        peer.ack(await peer.response())
        (stream,) = streams
        assert stream.dialogue is not None
        left += [weakref.ref(stream), weakref.ref(stream.dialogue), weakref.ref(peer.served)]
        del stream
        match end:
            case "half-close":
                peer.half_close()
            case "disconnect":
                peer.disconnect()
            case "refuse":
                peer.ask("")
            case "garbage":
                peer.send(b"\xff")
            case "drain":
                await streams.drain(0)
            case "cancel":
                peer.served.cancel()
        await asyncio.wait((peer.served,))
    del peer
    await turns()
    assert [reference() for reference in left if reference() is not None] == []
