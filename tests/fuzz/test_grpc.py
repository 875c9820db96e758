"""The real TLS port under hostile calls and connections: statuses as documented, and an honest stream that goes on."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from hypothesis import strategies as st

from tests.fuzz.requests import hostile_requests
from tests.fuzz.signed import KEYS
from tests.kit.certificates import ORDERS, signing_request
from tests.kit.fuzzing import fuzz
from tests.kit.grpc_server import Server, workload
from tests.kit.hostile import damaged, damaged_message
from xds import protos
from xds.client import AdsClient, DeltaStream
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.server.streams import Limits

pytestmark = pytest.mark.slow

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
METHODS = {
    ADS + "DeltaAggregatedResources": hostile_requests("delta", first=True),
    ADS + "StreamAggregatedResources": hostile_requests("sotw", first=True),
    "/istio.v1.auth.IstioCertificateService/CreateCertificate": damaged_message(
        st.just(
            protos.istio.v1.auth.IstioCertificateRequest(
                csr=signing_request(ORDERS, key=KEYS[0]), validity_duration=60
            ).SerializeToString(deterministic=True)
        )
    ),
    "/grpc.health.v1.Health/Check": st.binary(max_size=40),
    "/nobody.Serves/This": st.binary(max_size=40),
}
DOCUMENTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.NOT_FOUND,
}
# gRPC itself refuses headers that are too long.
UNPROVEN = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED}

visible = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60)
authorizations = (
    st.sampled_from(
        ["", "Bearer", "Bearer ", "bearer  x", "Basic eDp5", "Bearer a.b.c", "Bearer " + "x" * 5000, "Bearer ztunnel"]
    )
    | visible
    | visible.map("Bearer {}".format)
)
values = st.sampled_from(["", "west", "x" * 300, "../..", "%00"])
strange = st.lists(
    st.tuples(st.just("authorization"), authorizations)
    | st.tuples(st.sampled_from(["clusterid", "x-forwarded-client-cert", "te", "user-agent"]), visible | values)
    | st.tuples(st.just("authorization-bin"), st.binary(max_size=20)),
    max_size=4,
).map(tuple)
known = st.sampled_from(["ztunnel-token", "orders-token"]).map(
    lambda token: (("authorization", f"Bearer {token}"), ("clusterid", "west"))
)


class Attacked:
    """A server, an honest ztunnel's stream, and a channel of somebody else."""

    def __init__(self, runner: asyncio.Runner, log: pytest.LogCaptureFixture) -> None:
        self.runner = runner
        self.log = log
        self.faults: list[dict[str, Any]] = []
        runner.get_loop().set_exception_handler(self._take_fault)
        self.changes = 0
        self._life = self._lived()
        runner.run(self._begin())

    def _take_fault(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # gRPC has one queue for all loops of a process: what is left of the loop of an earlier test arrives here.
        stale = "PollerCompletionQueue" in context["message"] and "loop is closed" in str(context.get("exception"))
        if not stale:
            self.faults.append(context)

    async def _begin(self) -> None:
        await anext(self._life)

    async def _lived(self) -> AsyncGenerator[None, None]:
        async with Server(limits=Limits(first_request=0.5)) as self.server, self._honest(), self._channel():
            yield

    @asynccontextmanager
    async def _honest(self) -> AsyncIterator[None]:
        client: AdsClient
        async with self.server.client() as client, client.delta() as self.stream:
            await self.stream.subscribe(AUTHORIZATION_TYPE)
            await self.stream.ack(await self.stream.receive())
            await self.stream.subscribe(ADDRESS_TYPE)
            await self.stream.ack(await self.stream.receive())
            yield

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[None]:
        credentials = grpc.ssl_channel_credentials(self.server.authority.root_certificates.encode())
        async with grpc.aio.secure_channel(f"127.0.0.1:{self.server.ports.tls}", credentials) as self.channel:
            yield

    async def called(self, method: str, metadata: Any, messages: list[bytes]) -> Any:
        """The status a call ends with."""
        call = self.channel.stream_stream(method)(metadata=metadata, timeout=5)
        try:
            for message in messages:
                await call.write(message)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        code, details = await call.code(), await call.details()
        await self._unharmed()
        told = [record.__dict__["code"] for record in self.log.records if record.getMessage() == "call refused"]
        assert {code.name for code in DOCUMENTED}.issuperset(told)
        assert [record for record in self.log.records if record.levelname == "ERROR"] == []
        self.log.clear()
        # A client that is not done writing when its call ends makes up a status of its own.
        return None if details == "Internal error from Core" else code

    async def connected(self, data: bytes, *, tls: bool) -> None:
        """Somebody who speaks neither TLS, nor HTTP/2 as it should be."""
        context: ssl.SSLContext | None = None
        if tls:
            context = ssl.create_default_context(cadata=self.server.authority.root_certificates)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.ports.tls, ssl=context, server_hostname="localhost" if tls else None
        )
        try:
            writer.write(data)
            if writer.can_write_eof():
                writer.write_eof()
            async with asyncio.timeout(0.02):
                await reader.read()
        except (ConnectionError, TimeoutError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()
        await self._unharmed()

    async def _unharmed(self) -> None:
        stream: DeltaStream = self.stream
        self.changes += 1
        self.server.content.apply(ADDRESS_TYPE, workload("a", self.changes % 1000))
        change = await asyncio.wait_for(stream.receive(), 5)
        assert [resource.name for resource in change.resources] == ["a"]
        await stream.ack(change)
        self.server.records.clear()
        self.server.content.proxies.clear()

    async def end(self) -> None:
        await self._life.aclose()


@pytest.fixture
def attacked(caplog: pytest.LogCaptureFixture) -> Iterator[Attacked]:
    with asyncio.Runner() as runner:
        caplog.set_level("INFO", "xds")
        made = Attacked(runner, caplog)
        yield made
        runner.run(made.end())
        gc.collect()
        assert made.faults == []
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelname == "ERROR"] == []


@st.composite
def calls(draw: Any, metadata: st.SearchStrategy[Any]) -> Any:
    method = draw(st.sampled_from(list(METHODS)))
    return method, draw(metadata), draw(st.lists(METHODS[method], max_size=3))


def test_without_a_known_token_nothing_is_answered_whatever_is_said(attacked: Attacked) -> None:
    def one(call: Any) -> None:
        code = attacked.runner.run(attacked.called(*call))
        assert code in UNPROVEN or code is None or call[0].endswith("Check"), code
        assert code in DOCUMENTED or code is None, code

    fuzz(one, calls(strange), share=0.4)


def test_with_a_known_token_any_messages_end_in_a_documented_status(attacked: Attacked) -> None:
    def one(call: Any) -> None:
        code = attacked.runner.run(attacked.called(*call))
        assert code in DOCUMENTED or code is None, code

    fuzz(one, calls(known), share=0.4)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAMES = PREFACE + bytes.fromhex(
    "000006040000000000" "000400001000"  # SETTINGS
    "000004080000000000" "0000ffff"  # WINDOW_UPDATE
    "000001010500000001" "82"  # HEADERS of stream 1
    "000005000100000001" "0000000000"  # DATA
    "000008060000000000" "0102030405060708"  # PING
    "000004030000000001" "00000008"  # RST_STREAM
    "000008070000000000" "0000000000000000"  # GOAWAY
)  # fmt: skip
HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(64)


def test_any_connection_that_speaks_another_protocol_harms_nobody(attacked: Attacked) -> None:
    def one(data: bytes, tls: bool) -> None:
        attacked.runner.run(attacked.connected(data, tls=tls))

    sound = st.sampled_from([FRAMES, HELLO, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", PREFACE + bytes(300)])
    fuzz(one, damaged(sound) | sound | st.binary(max_size=100), st.booleans(), share=0.2)
