"""The stand-in against the real stream handler, in memory."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.accounts import ZTUNNEL, Accounts
from tests.kit.transport import Content, MemoryTransport
from tests.kit.ztunnel import ADDRESS_TYPE, Node, StreamEnd, StreamLost, ZtunnelClient, ZtunnelMachine
from tests.kit.ztunnel.memory import MemoryStream
from tests.kit.ztunnel.messages import workload
from xds.encoded import Resource, encode, wrap
from xds.server.access import Access
from xds.server.refusals import unavailable
from xds.server.streams import Streams


def resource(uid: str, **fields: str) -> Resource:
    return wrap(ADDRESS_TYPE, uid, encode(workload(uid, addresses=[f"10.0.0.{ord(uid)}"], **fields)[1]))


class Server:
    def __init__(self) -> None:
        self.content = Content()
        self.content.apply(ADDRESS_TYPE, resource("a"), resource("b"))
        self.streams = Streams(Access(Accounts(), patience=0.01), self.content.views_for, [])


def client() -> ZtunnelClient:
    return ZtunnelClient(ZtunnelMachine(Node(pod_name="ztunnel-x", namespace="istio-system", instance_ip="10.0.0.1")))


async def test_client_becomes_ready_and_follows_changes() -> None:
    server, ztunnel = Server(), client()
    stream = MemoryStream.open(server.streams, ZTUNNEL)
    running = asyncio.create_task(ztunnel.run(stream))
    await ztunnel.until(lambda machine: machine.ready)

    server.content.apply(ADDRESS_TYPE, resource("a", node="n2"), removed=["b"])
    await ztunnel.until(lambda machine: "b" not in machine.state.workloads.by_uid)

    assert ztunnel.machine.state.workloads.by_uid["a"].node == "n2"
    assert ztunnel.machine.oddities == []
    await stream.close()
    assert (await running).code == "CANCELLED"


async def test_reconnecting_client_is_sent_nothing_it_holds() -> None:
    server, ztunnel = Server(), client()
    for _ in range(2):
        stream = MemoryStream.open(server.streams, ZTUNNEL)
        running = asyncio.create_task(ztunnel.run(stream))
        streams = len(ztunnel.ends) + 1
        await ztunnel.until(lambda machine, streams=streams: len(machine.received) == 2 * streams)  # type: ignore[misc]
        await stream.close()
        await running

    addresses = [received for received in ztunnel.machine.received if received.type_url == ADDRESS_TYPE]
    assert [received.resources for received in addresses] == [("a", "b"), ()]


async def test_status_of_the_handler_is_how_the_stream_ends() -> None:
    server, ztunnel = Server(), client()
    await server.streams.drain(0)

    end = await ztunnel.run(MemoryStream.open(server.streams, ZTUNNEL))

    assert end.code == "UNAVAILABLE"
    assert end.details.startswith("server is draining")


async def served_by(outcome: Exception | None) -> MemoryStream:
    async def serve() -> None:
        if outcome is not None:
            raise outcome

    stream = MemoryStream.open(Server().streams, ZTUNNEL)
    await stream.close()
    stream.served = asyncio.ensure_future(serve())
    await asyncio.wait((stream.served,))
    return stream


async def test_what_was_sent_before_the_end_is_read() -> None:
    async def serve() -> None:
        await transport.write(b"last")

    transport = MemoryTransport()
    stream = MemoryStream(transport, asyncio.ensure_future(serve()))
    await asyncio.wait((stream.served,))

    assert [await stream.read(), await stream.read()] == [b"last", None]


async def test_handler_that_returns_ends_cleanly() -> None:
    assert await (await served_by(None)).read() is None


async def test_stream_that_was_refused_cannot_be_written_to() -> None:
    stream = await served_by(unavailable("enough"))

    with pytest.raises(StreamLost) as lost:
        await stream.write(b"")

    assert lost.value.end == StreamEnd("UNAVAILABLE", "enough")


async def test_fault_of_the_handler_comes_out() -> None:
    stream = await served_by(RuntimeError("fault"))

    with pytest.raises(RuntimeError, match="fault"):
        await stream.read()
