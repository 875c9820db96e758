"""Streams when something is at fault: the server itself, its surroundings, or the connection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import weakref
from collections.abc import Callable, Iterator

import grpc
import pytest

from tests.kit.accounts import NODE_ID, Accounts
from tests.kit.eventually import eventually
from tests.kit.grpc_server import Server
from tests.kit.transport import Content, Peer, turns
from xds import protos
from xds.client import AdsClient
from xds.encoded import Encoded, encode, wrap
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


class Wire:
    """A connection to a server that can be stalled and cut: forwards bytes between one client and `port`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.server: asyncio.Server | None = None

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def __aexit__(self, *error: object) -> None:
        assert self.server is not None
        self.cut()
        self.server.close()
        await self.server.wait_closed()
        await asyncio.gather(*self._tasks)

    def stall(self) -> None:
        """Passes nothing on any more."""
        self._flowing.clear()

    def cut(self) -> None:
        """Resets the connection, in the middle of whatever is under way."""
        for writer in self._writers:
            writer.transport.abort()
        self._flowing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        self._tasks += [
            asyncio.create_task(self._forward(reader, back)),
            asyncio.create_task(self._forward(there, writer)),
        ]

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()


async def test_a_connection_cut_in_the_middle_of_a_large_write_ends_its_stream_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Server() as server:
        for _ in range(5):
            wire = Wire(server.ports.plaintext or 0)
            async with wire as address, AdsClient(address, node_id=NODE_ID) as client, client.delta() as stream:
                await stream.subscribe(AUTHORIZATION_TYPE)
                await stream.ack(await stream.receive())
                wire.stall()
                server.content.apply(
                    AUTHORIZATION_TYPE,
                    *(wrap(AUTHORIZATION_TYPE, f"p{n}", workload_bytes(300_000)) for n in range(100)),
                )
                await eventually(lambda: not server.content.readings[0].pending)
                wire.cut()
                await eventually(lambda: len(server.streams) == 0)
    assert server.content.readings == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_hundred_hostile_connections_leave_an_honest_stream_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server, server.client() as client, client.delta() as honest:
        await honest.subscribe(AUTHORIZATION_TYPE)
        await honest.ack(await honest.receive())
        for number in range(100):
            port = server.ports.tls if number % 2 else server.ports.plaintext
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((b"\x16\x03\x01" if number % 3 else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + b"\xff" * 4000)
            await writer.drain()
            writer.transport.abort()
        server.content.apply(AUTHORIZATION_TYPE, wrap(AUTHORIZATION_TYPE, "p", workload_bytes(10)))
        assert [resource.name for resource in (await honest.receive()).resources] == ["p"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def workload_bytes(size: int) -> Encoded:
    address = protos.istio.workload.Address()
    address.workload.hostname = "x" * size
    return encode(address)
