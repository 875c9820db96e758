"""The driver: over queues in memory, and over real gRPC on loopback, plaintext and TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from grpc import aio

from tests.kit.ztunnel import (
    ADDRESS_TYPE,
    AUTHORIZATION_TYPE,
    StreamEnd,
    StreamLost,
    ZtunnelClient,
    ZtunnelMachine,
)
from tests.kit.ztunnel.grpc_transport import METHOD, GrpcDialer
from tests.kit.ztunnel.messages import request, response, workload

POD = workload("c//Pod/demo/a", addresses=["10.0.0.1"])
NO_AUTHORIZATIONS = response(type_url=AUTHORIZATION_TYPE, nonce="n2")


class Queues:
    """A transport whose other end is the test: it puts responses, None for a clean end, or how the stream is lost."""

    def __init__(self, *to_read: bytes | StreamEnd | None) -> None:
        self.to_read: asyncio.Queue[bytes | StreamEnd | None] = asyncio.Queue()
        self.written: list[bytes] = []
        self.first_write = asyncio.Event()
        for item in to_read:
            self.to_read.put_nowait(item)

    async def read(self) -> bytes | None:
        item = await self.to_read.get()
        if isinstance(item, StreamEnd):
            raise StreamLost(item)
        return item

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        self.first_write.set()

    @property
    def nonces(self) -> list[str]:
        return [request(data).response_nonce for data in self.written]


class TestInMemory:
    async def test_both_first_requests_are_sent_before_anything_is_read(self) -> None:
        transport = Queues()
        running = asyncio.create_task(ZtunnelClient(ZtunnelMachine(), transport).run())
        await asyncio.sleep(0)

        assert [request(data).type_url for data in transport.written] == [ADDRESS_TYPE, AUTHORIZATION_TYPE]

        transport.to_read.put_nowait(None)
        await running

    async def test_every_response_is_acknowledged_until_the_stream_ends(self) -> None:
        transport = Queues(response(POD, nonce="n1"), NO_AUTHORIZATIONS, None)
        client = ZtunnelClient(ZtunnelMachine(), transport)

        end = await client.run()

        assert transport.nonces == ["", "", "n1", "n2"]
        assert (end, client.ends) == (StreamEnd("OK"), [StreamEnd("OK")])
        assert client.machine.ready

    async def test_lost_stream_says_how(self) -> None:
        lost = StreamEnd("UNAVAILABLE", "shutting down")

        assert await ZtunnelClient(ZtunnelMachine(), Queues(lost)).run() == lost

    async def test_unreadable_response_ends_the_stream(self) -> None:
        assert (await ZtunnelClient(ZtunnelMachine(), Queues(b"\xff")).run()).code == "INTERNAL"

    async def test_until_returns_with_the_response_that_makes_it_true(self) -> None:
        transport = Queues()
        client = ZtunnelClient(ZtunnelMachine(), transport)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.run())
            waiting = tasks.create_task(client.until(lambda machine: machine.ready))
            transport.to_read.put_nowait(response(POD, nonce="n1"))
            transport.to_read.put_nowait(NO_AUTHORIZATIONS)
            await waiting
            transport.to_read.put_nowait(None)

        assert client.machine.ready

    async def test_until_that_never_holds_names_what_came(self) -> None:
        client = ZtunnelClient(ZtunnelMachine(), Queues(response(workload("x", status=7)), None))
        await client.run()

        with pytest.raises(TimeoutError, match="Address 1\\+0- rejected: x: decode error"):
            await client.until(lambda machine: machine.ready, deadline=0.01)

    async def test_demand_is_sent_on_the_running_stream(self) -> None:
        transport = Queues(None)
        client = ZtunnelClient(ZtunnelMachine(on_demand=True), transport)

        await client.demand("n/10.0.0.1")

        assert list(request(transport.written[-1]).resource_names_subscribe) == ["n/10.0.0.1"]

    @pytest.mark.parametrize("action", [lambda client: client.run(), lambda client: client.demand("x")])
    async def test_without_a_transport_nothing_can_be_done(self, action: Callable[[ZtunnelClient], Any]) -> None:
        with pytest.raises(ValueError, match="no "):
            await action(ZtunnelClient(ZtunnelMachine()))

    async def test_connects_again_with_ztunnels_pauses_and_claims_what_it_holds(self) -> None:
        refused = StreamEnd("UNAVAILABLE", "refused", connected=False)
        streams: list[Queues | StreamEnd] = [
            Queues(response(POD), None),
            refused,
            refused,
            Queues(StreamEnd("CANCELLED")),
            last := Queues(),
        ]
        pauses: list[float] = []

        async def open_transport() -> Queues:
            stream = streams.pop(0)
            if isinstance(stream, StreamEnd):
                raise StreamLost(stream)
            return stream

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        client = ZtunnelClient(ZtunnelMachine())
        running = asyncio.create_task(client.keep_running(open_transport, pause))
        await client.until(lambda _: len(client.ends) == 4)
        await last.first_write.wait()
        running.cancel()

        assert pauses == [0.0, 0.02, 0.04, 0.01]
        assert [end.code for end in client.ends] == ["OK", "UNAVAILABLE", "UNAVAILABLE", "CANCELLED"]
        assert dict(request(last.written[0]).initial_resource_versions) == dict(client.machine.held(ADDRESS_TYPE))


class Script:
    """A server that plays one behaviour to every stream and keeps what it was sent."""

    def __init__(self, behaviour: Callable[[Any], Any]) -> None:
        self.requests: list[bytes] = []
        self.metadata: list[dict[str, str]] = []
        self._behaviour = behaviour

    async def _serve(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.metadata.append({str(key): str(value) for key, value in context.invocation_metadata()})
        yield response(POD, nonce="n1")
        yield NO_AUTHORIZATIONS
        async for data in requests:
            self.requests.append(data)
            if len(self.requests) == 4:
                break
        await self._behaviour(context)

    @asynccontextmanager
    async def serving(self, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[str]:
        service, _, method = METHOD[1:].partition("/")
        handler = grpc.method_handlers_generic_handler(
            service, {method: grpc.stream_stream_rpc_method_handler(self._serve)}
        )
        server = aio.server()
        server.add_generic_rpc_handlers((handler,))
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)


async def end_cleanly(context: Any) -> None:
    pass


async def end_unavailable(context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")


async def stay(context: Any) -> None:
    await asyncio.Event().wait()


def server_certificate(name: str) -> tuple[bytes, bytes]:
    """Key and self-signed certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, certificate.public_bytes(Encoding.PEM)


class TestGrpc:
    async def run(self, target: str, **options: Any) -> ZtunnelClient:
        dialer = GrpcDialer(target, **options)
        client = ZtunnelClient(ZtunnelMachine())
        try:
            await client.run(await dialer.open())
        finally:
            await dialer.close()
        return client

    async def test_stream_over_plaintext_ends_cleanly(self) -> None:
        script = Script(end_cleanly)
        async with script.serving() as target:
            client = await self.run(target)

        assert client.machine.ready
        assert client.ends == [StreamEnd("OK")]
        assert [request(data).response_nonce for data in script.requests] == ["", "", "n1", "n2"]

    async def test_status_of_the_server_is_reported(self) -> None:
        async with Script(end_unavailable).serving() as target:
            client = await self.run(target)

        assert client.ends == [StreamEnd("UNAVAILABLE", "shutting down")]

    async def test_no_server_is_no_connection(self) -> None:
        async with Script(end_cleanly).serving() as target:
            pass

        client = await self.run(target)

        assert [(end.code, end.connected) for end in client.ends] == [("UNAVAILABLE", False)]

    async def test_tls_carries_token_and_cluster(self) -> None:
        key, certificate = server_certificate("control-plane.test")
        script = Script(end_cleanly)
        async with script.serving(grpc.ssl_server_credentials([(key, certificate)])) as target:
            client = await self.run(
                target, root=certificate, token="secret", cluster="alpha", hostname="control-plane.test"
            )

        assert client.machine.ready
        assert script.metadata[0]["authorization"] == "Bearer secret"
        assert script.metadata[0]["clusterid"] == "alpha"

    async def test_server_of_another_root_is_no_connection(self) -> None:
        key, certificate = server_certificate("control-plane.test")
        _, other = server_certificate("control-plane.test")
        async with Script(end_cleanly).serving(grpc.ssl_server_credentials([(key, certificate)])) as target:
            client = await self.run(target, root=other, hostname="control-plane.test")

        assert [(end.code, end.connected) for end in client.ends] == [("UNAVAILABLE", False)]

    async def test_stream_cancelled_here_ends_as_cancelled(self) -> None:
        async with Script(stay).serving() as target:
            dialer = GrpcDialer(target)
            transport = await dialer.open()
            client = ZtunnelClient(ZtunnelMachine())
            running = asyncio.create_task(client.run(transport))
            await client.until(lambda machine: machine.ready)

            transport.cancel()

            assert (await running).code == "CANCELLED"
            await dialer.close()

    async def test_cancelled_task_stays_cancelled(self) -> None:
        async with Script(stay).serving() as target:
            dialer = GrpcDialer(target)
            client = ZtunnelClient(ZtunnelMachine())
            running = asyncio.create_task(client.run(await dialer.open()))
            await client.until(lambda machine: machine.ready)

            running.cancel()

            with pytest.raises(asyncio.CancelledError):
                await running
            assert client.ends == []
            await dialer.close()

    async def test_reconnects_to_a_server_that_ends_streams(self) -> None:
        script = Script(end_unavailable)
        async with script.serving() as target:
            dialer = GrpcDialer(target)
            client = ZtunnelClient(ZtunnelMachine())

            async def no_pause(seconds: float) -> None:
                script.requests.clear()

            running = asyncio.create_task(client.keep_running(dialer.open, no_pause))
            await client.until(lambda _: len(client.ends) == 2)
            running.cancel()
            await dialer.close()

        assert list(client.machine.held(ADDRESS_TYPE)) == [POD[0]]
