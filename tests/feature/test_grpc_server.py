"""The real servers on loopback: TLS, tokens, statuses, limits, what a port has and has not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from tests.kit.accounts import NODE_ID
from tests.kit.certificates import ORDERS, signing_request
from tests.kit.eventually import eventually
from tests.kit.grpc_server import ANY, SETTINGS, Server, workload
from tests.kit.ports import free_port
from xds import protos
from xds.client import AdsClient, AdsStream, DeltaStream, SotwStream, StreamEnded
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.dialogue import Dialogue
from xds.server.listener import Address, GrpcTransport, ListenError, ListenerSettings, Ports, server_options
from xds.server.rates import Rate
from xds.server.server_certificate import ServerCredentials, Signed
from xds.server.streams import Limits, Stream

discovery = protos.envoy.service.discovery.v3
HEALTH = "/grpc.health.v1.Health/Check"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
STREAMS = [ADS + "DeltaAggregatedResources", ADS + "StreamAggregatedResources"]
CREATE_CERTIFICATE = "/istio.v1.auth.IstioCertificateService/CreateCertificate"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as running:
        yield running


async def ended(stream: AdsStream) -> StreamEnded:
    with pytest.raises(StreamEnded) as caught:
        await asyncio.wait_for(acknowledge(stream), 5)
    return caught.value


async def acknowledge(stream: AdsStream) -> None:
    async for response in stream:
        await stream.ack(response)


@pytest.mark.parametrize("port", ["tls", "plaintext"])
@pytest.mark.parametrize("variant", ["delta", "sotw"])
async def test_a_ztunnel_is_served_both_of_its_types(server: Server, port: str, variant: str) -> None:
    async with (
        server.client() if port == "tls" else server.plain_client() as client,
        client.delta() if variant == "delta" else client.sotw() as stream,
    ):
        await stream.subscribe(ADDRESS_TYPE)
        await stream.subscribe(AUTHORIZATION_TYPE)
        policies = await stream.receive()
        await stream.ack(policies)
        addresses = await stream.receive()
        await stream.ack(addresses)
        assert (policies.type_url, policies.resources) == (AUTHORIZATION_TYPE, ())
        assert {resource.message().workload.uid for resource in addresses.resources} == {"a", "b"}
        server.content.apply(ADDRESS_TYPE, workload("c"), removed=["a"])
        change = await stream.receive()
        if variant == "delta":
            assert ([resource.name for resource in change.resources], change.removed) == (["c"], ("a",))
        else:
            assert {resource.message().workload.uid for resource in change.resources} == {"b", "c"}


async def test_a_delta_client_that_names_what_it_holds_is_told_the_difference(server: Server) -> None:
    async with server.client() as client, client.delta() as stream:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.ack(await stream.receive())
        await stream.subscribe(ADDRESS_TYPE, held={"a": workload("a").version, "gone": "1"})
        response = await stream.receive()
        assert ([resource.name for resource in response.resources], response.removed) == (["b"], ("gone",))


async def test_the_token_decides_who_a_stream_is_served_as(server: Server) -> None:
    async with server.client() as client, client.delta() as stream:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.receive()
        (proxy,) = server.content.proxies
        assert str(proxy.identity) == "spiffe://cluster.local/ns/istio-system/sa/ztunnel"
        assert proxy.cluster == "west"
        assert proxy.peer.startswith("ipv4:127.0.0.1:")


async def test_a_token_file_is_read_for_each_call(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("expired\n")
    async with server.client(token=file) as client:
        async with client.delta() as stream:
            assert (await ended(stream)).code is grpc.StatusCode.UNAUTHENTICATED
        file.write_text("ztunnel-token\n")
        async with client.delta() as stream:
            await stream.subscribe(AUTHORIZATION_TYPE)
            await stream.receive()


async def test_a_client_that_trusts_another_root_does_not_connect(server: Server) -> None:
    stranger = CertificateAuthority.self_signed("cluster.local").root_certificates.encode()
    address = f"127.0.0.1:{server.ports.tls}"
    async with AdsClient(address, node_id=NODE_ID, root_certificates=stranger) as client, client.delta() as stream:
        assert (await ended(stream)).code is grpc.StatusCode.UNAVAILABLE


async def test_the_plaintext_port_has_no_identities(server: Server) -> None:
    async with server.plain_client() as client, client.delta() as stream:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.receive()
        (proxy,) = server.content.proxies
        assert (proxy.identity, proxy.role) == (None, "ztunnel")


async def test_a_node_of_another_kind_is_refused_in_plaintext(server: Server) -> None:
    async with (
        server.plain_client("router~10.0.0.1~gw.shop~shop.svc.cluster.local") as client,
        client.delta() as stream,
    ):
        await stream.subscribe(AUTHORIZATION_TYPE)
        assert (await ended(stream)).code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", [*STREAMS, CREATE_CERTIFICATE])
@pytest.mark.parametrize("token", [None, "stolen"])
async def test_no_method_is_served_on_tls_without_a_known_token(server: Server, method: str, token: str | None) -> None:
    async with raw_channel(server, "tls") as channel:
        call = channel.stream_stream(method)(metadata=(("authorization", f"Bearer {token}"),) if token else ())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call.read(), 5)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert server.records == []


@contextlib.asynccontextmanager
async def raw_channel(server: Server, port: str, **options: Any) -> AsyncIterator[Any]:
    if port == "tls":
        credentials = grpc.ssl_channel_credentials(server.authority.root_certificates.encode())
        channel = grpc.aio.secure_channel(f"127.0.0.1:{server.ports.tls}", credentials, **options)
    else:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.ports.plaintext}", **options)
    async with channel:
        yield channel


@pytest.mark.parametrize(
    ("port", "method"),
    [
        ("plaintext", CREATE_CERTIFICATE),
        ("tls", ADS + "FetchAggregatedResources"),
        ("tls", "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets"),
        ("tls", "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets"),
        ("tls", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    ],
)
async def test_methods_nobody_serves_are_unimplemented(server: Server, port: str, method: str) -> None:
    async with raw_channel(server, port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(method)(b"", metadata=(("authorization", "Bearer ztunnel-token"),))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_ztunnel_gets_certificates_for_itself_and_for_pods_of_its_node(server: Server) -> None:
    own = "spiffe://cluster.local/ns/istio-system/sa/ztunnel"
    async with server.client() as client:
        for uri, impersonate in ((own, ""), (ORDERS, ORDERS)):
            leaf, root = await client.create_certificate(signing_request(uri), seconds=86_400, impersonate=impersonate)
            names = x509.load_pem_x509_certificate(leaf.encode()).extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            )
            assert names.value.get_values_for_type(x509.UniformResourceIdentifier) == [uri]
            assert root == server.authority.root_certificates


@pytest.mark.parametrize(
    ("csr", "impersonate", "code"),
    [
        (signing_request(ORDERS), "", grpc.StatusCode.PERMISSION_DENIED),
        (
            signing_request("spiffe://cluster.local/ns/shop/sa/ledger"),
            "spiffe://cluster.local/ns/shop/sa/ledger",
            grpc.StatusCode.PERMISSION_DENIED,
        ),
        ("no request", "", grpc.StatusCode.INVALID_ARGUMENT),
        ("x" * 100_000, "", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_certificates_that_are_not_due_are_refused(
    server: Server, csr: str, impersonate: str, code: grpc.StatusCode
) -> None:
    async with server.client() as client:
        with pytest.raises(StreamEnded) as caught:
            await client.create_certificate(csr, impersonate=impersonate)
    assert caught.value.code is code


@pytest.mark.parametrize("port", ["tls", "plaintext"])
async def test_health_needs_no_token_and_tells_readiness(server: Server, port: str) -> None:
    async with raw_channel(server, port) as channel:
        check = channel.unary_unary(HEALTH)
        assert await check(b"") == b"\x08\x01"
        server.ready = False
        assert await check(b"") == b"\x08\x02"


async def test_a_request_of_some_megabytes_is_taken() -> None:
    async with Server() as server, server.client() as client, client.delta() as stream:
        held = {f"{number:060d}": "v" * 32 for number in range(60_000)}
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.ack(await stream.receive())
        await stream.subscribe(ADDRESS_TYPE, held=held)
        removed: set[str] = set()
        while not removed.issuperset(held):
            response = await stream.receive()
            removed |= set(response.removed)
            await stream.ack(response)


async def test_a_request_beyond_the_limit_ends_the_stream() -> None:
    settings = ListenerSettings(tls=ANY, request_bytes=1 << 16)
    async with Server(settings) as server, server.client() as client, client.delta() as stream:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.receive()
        await stream.subscribe(ADDRESS_TYPE, ["x" * (1 << 17)])
        assert (await ended(stream)).code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_compressed_request_is_not_unpacked(server: Server) -> None:
    async with raw_channel(server, "plaintext", compression=grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(HEALTH)(b"\0" * (1 << 20))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_streams_beyond_the_limit_are_told_so() -> None:
    async with Server(limits=Limits(streams_per_pod=1)) as server, server.client() as client, client.delta() as first:
        await first.subscribe(AUTHORIZATION_TYPE)
        await first.receive()
        async with client.delta() as second:
            end = await ended(second)
    assert end.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "pod ztunnel-x" in end.details


async def test_a_stream_that_says_nothing_is_ended() -> None:
    limits = Limits(first_request=0.05)
    async with Server(limits=limits) as server, server.client() as client, client.delta() as stream:
        assert (await ended(stream)).code is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("method", STREAMS)
async def test_a_stream_that_ends_while_its_first_response_goes_out_ends_with_its_status(
    server: Server, method: str
) -> None:
    message = discovery.DeltaDiscoveryRequest if "Delta" in method else discovery.DiscoveryRequest
    addresses = message(type_url=ADDRESS_TYPE, node=protos.envoy.config.core.v3.Node(id=NODE_ID))
    requests = [addresses.SerializeToString(), message(type_url=AUTHORIZATION_TYPE).SerializeToString(), b"\xff"]
    async with raw_channel(server, "tls") as channel:
        for _ in range(20):  # Which of the two is first is a matter of chance.
            call = channel.stream_stream(method)(metadata=(("authorization", "Bearer ztunnel-token"),), timeout=5)
            for data in requests:
                await call.write(data)
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await call.read() is not grpc.aio.EOF:
                    pass
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_client_that_says_no_more_ends_its_stream_with_ok(server: Server) -> None:
    async with server.client() as client, client.delta() as stream:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.receive()
        await stream.half_close()
        assert (await ended(stream)).code is grpc.StatusCode.OK


async def test_a_drained_server_ends_streams_with_unavailable_and_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Server() as server, server.client() as client, server.plain_client() as plain:
        streams: list[DeltaStream | SotwStream] = [client.delta(), client.sotw(), plain.delta()]
        for stream in streams:
            await stream.subscribe(AUTHORIZATION_TYPE)
            await stream.receive()
        stopped = asyncio.ensure_future(server.listener.stop(0.1))
        ends = [await ended(stream) for stream in streams]
        await stopped
    assert {end.code for end in ends} == {grpc.StatusCode.UNAVAILABLE}
    assert all("draining" in end.details for end in ends)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_draining_server_is_not_healthy_and_takes_no_stream(server: Server) -> None:
    async with server.client() as client, client.delta() as stream, raw_channel(server, "tls") as channel:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.receive()
        async with client.delta() as second:
            await second.subscribe(AUTHORIZATION_TYPE)
            await second.receive()
            stopped = asyncio.ensure_future(server.listener.stop(0.4))
            await ended(stream)
            assert await channel.unary_unary(HEALTH)(b"") == b"\x08\x02"
            async with client.delta() as late:
                assert (await ended(late)).code is grpc.StatusCode.UNAVAILABLE
            await stopped


async def test_a_taken_port_is_refused_with_address_cause_and_cure(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plaintext = Address("127.0.0.1", port)
        listener = Server(ListenerSettings(tls=ANY, plaintext=plaintext)).listener
        with pytest.raises(ListenError) as caught:
            await listener.start()
    assert str(caught.value) == (
        f"127.0.0.1:{port}: Address already in use; stop what listens there, or choose another address or port"
    )
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("found", ["before binding", "while binding"])
async def test_nothing_stays_bound_when_one_port_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if found == "while binding":
        monkeypatch.setattr("xds.server.listener._check", lambda *_, **__: None)
    async with Server() as first:
        tls = Address("127.0.0.1", free_port())
        taken = Address("127.0.0.1", first.ports.tls)
        with pytest.raises(ListenError):
            await Server(ListenerSettings(tls=tls, plaintext=taken)).listener.start()
        async with Server(ListenerSettings(tls=tls)) as second:
            assert second.ports == Ports(tls.port, None, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "example.com"])
async def test_plaintext_beyond_loopback_is_refused(host: str) -> None:
    settings = ListenerSettings(tls=ANY, plaintext=Address(host, 0))
    with pytest.raises(ListenError, match="give a loopback address or use TLS"):
        await Server(settings).listener.start()


async def test_an_unknown_host_is_refused_with_its_name() -> None:
    with pytest.raises(ListenError, match=r"no-such-host\.invalid:0: no such host"):
        await Server(ListenerSettings(tls=Address("no-such-host.invalid", 0))).listener.start()


def test_options_keep_ztunnels_connected() -> None:
    options = dict(server_options(SETTINGS))
    assert options["grpc.http2.min_recv_ping_interval_without_data_ms"] == 20_000
    assert options["grpc.http2.max_ping_strikes"] == 0
    assert options["grpc.max_receive_message_length"] == 64 << 20
    assert options["grpc.so_reuseport"] == 0


@pytest.mark.parametrize(
    ("version", "spoken"),
    [(ssl.TLSVersion.TLSv1_1, None), (ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_tls_is_spoken_from_1_2_on(server: Server, version: ssl.TLSVersion, spoken: str | None) -> None:
    context = ssl.create_default_context(cadata=server.authority.root_certificates)
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(["h2"])
    if spoken is None:
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(handshake, server.ports.tls, context)
    else:
        assert (await asyncio.to_thread(handshake, server.ports.tls, context))[0] == spoken


def handshake(port: int, context: ssl.SSLContext) -> tuple[str | None, x509.Certificate]:
    """The version spoken and the certificate presented."""
    with (
        socket.create_connection(("127.0.0.1", port)) as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
    ):
        presented = secured.getpeercert(binary_form=True)
        assert presented is not None
        return secured.version(), x509.load_der_x509_certificate(presented)


async def test_a_renewed_certificate_is_used_by_new_connections_and_old_ones_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Clock:
        time = datetime.now(UTC) - timedelta(hours=12)

    authority = CertificateAuthority.self_signed("cluster.local", now=lambda: Clock.time)
    in_force = AuthorityInForce(authority, now=lambda: Clock.time)
    certificates = ServerCredentials(Signed(in_force, ("127.0.0.1",), now=lambda: Clock.time))
    server = grpc.aio.server(options=server_options(SETTINGS))
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Echo": handler}),))
    port = server.add_secure_port("127.0.0.1:0", certificates.credentials())
    await server.start()
    context = ssl.create_default_context(cadata=authority.root_certificates)
    context.set_alpn_protocols(["h2"])

    async def presented() -> int:
        return (await asyncio.to_thread(handshake, port, context))[1].serial_number

    credentials = grpc.ssl_channel_credentials(authority.root_certificates.encode())
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        assert await channel.unary_unary("/test/Echo")(b"1") == b"1"
        first = await presented()
        assert await presented() == first
        Clock.time += timedelta(hours=11, minutes=58)
        assert await presented() == first
        Clock.time += timedelta(minutes=2)
        second = await presented()
        assert second != first
        assert await presented() == second
        Clock.time = authority.expires
        assert await presented() == second
        assert "server certificate not renewed" in caplog.text
        assert await channel.unary_unary("/test/Echo")(b"2") == b"2"
    await server.stop(0)


async def echo(request: bytes, _: Any) -> bytes:
    return request


async def test_streams_opened_and_cancelled_leave_no_object_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    often = Limits(opened=Rate(per_second=10_000.0, burst=10_000))
    async with Server(limits=often) as server, server.client() as client, server.plain_client() as plain:

        async def open_and_cancel(number: int) -> None:
            async with (client if number % 2 else plain).delta() as stream:
                await stream.subscribe(AUTHORIZATION_TYPE)
                if number % 4 < 2:
                    await stream.receive()

        for start in range(0, 2000, 10):
            await asyncio.gather(*(open_and_cancel(start + number) for number in range(10)))
        await eventually(lambda: len(server.streams) == 0)
    assert server.content.readings == []
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("xds reader")]
    gc.collect()
    assert not [left for left in gc.get_objects() if isinstance(left, Stream | Dialogue | GrpcTransport)]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_large_answer_passes_with_back_pressure(server: Server) -> None:
    server.content.apply(ADDRESS_TYPE, *(workload(f"w{number}", 100_000) for number in range(300)))
    async with server.client() as client, client.delta() as stream:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.receive()
        await stream.subscribe(ADDRESS_TYPE)
        assert len((await stream.receive()).resources) == 302
