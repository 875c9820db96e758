"""The gRPC servers: 15012 with TLS and tokens, 15013 with TLS and client certificates, 15010 in plaintext on loopback;
which methods each of them has.

In: settings, and the parts that do the work (streams, certificate service, authenticator). Out: bound ports. Messages
pass as bytes. Every call is authenticated before any of it is read, in one place; every refusal becomes a status here.
No method with a unary Fetch is served, and no interceptor is used: those leak on streams.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote

import grpc
import msgspec

from xds.metrics import ServerMetrics
from xds.server import refusals
from xds.server.authentication import Authenticator, Caller, CertificateProof, Proof
from xds.server.certificate_service import CertificateService
from xds.server.client_certificates import client_identity
from xds.server.dialogue import Disconnected, Variant
from xds.server.health import HealthService
from xds.server.rates import Rate, Rates, host_of
from xds.server.refusals import Refusal
from xds.server.server_certificate import ServerCertificateSource, ServerCredentials
from xds.server.streams import Streams

logger = logging.getLogger(__name__)

ADS: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
CERTIFICATES: Final = "istio.v1.auth.IstioCertificateService"
HEALTH: Final = "grpc.health.v1.Health"

# How long the one message of a unary call may take, in seconds.
_PATIENCE: Final = 10.0
# How many health checks are read at once: they need no token, and each may be as long as a request may be.
_HEALTH_CHECKS: Final = 4

# How often one host is written into the log for being refused with the same code: a flood of calls is no flood there.
_LINES: Final = Rate(per_second=0.2, burst=20)

T = TypeVar("T")

Proving: TypeAlias = Callable[[Any], Awaitable[tuple[Caller, Proof | None]]]
"""Who is at the other end of a call, given its context, and the proof of it; raises Refusal."""


class Address(msgspec.Struct, frozen=True):
    """Where to listen: an IP address or host name, and a port, 0 for any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How proxies reach the server: over TLS with a token (`tls`), with a client certificate (`mtls`), in plaintext.

    `request_bytes` is the longest request: a ztunnel that reconnects names all it holds, some 78 bytes per resource.
    `ping_interval` is the least time between two keepalive pings of a peer, in seconds, `handshake` the most a
    connection may take to be set up. With `reuse_port` several processes share the ports.
    """

    tls: Address
    mtls: Address | None = None
    plaintext: Address | None = None
    request_bytes: int = 64 << 20
    streams_per_connection: int = 100
    ping_interval: float = 20.0
    handshake: float = 10.0
    reuse_port: bool = False


class ListenError(Exception):
    """An address the server cannot listen on; the message names address, cause and cure."""

    def __init__(self, address: Address, problem: str, cure: str) -> None:
        super().__init__(f"{address}: {problem}; {cure}")
        self.address = address
        self.problem = problem
        self.cure = cure


class Ports(msgspec.Struct, frozen=True):
    """The ports in use; None where there is none."""

    tls: int
    mtls: int | None
    plaintext: int | None


def server_options(settings: ListenerSettings) -> list[tuple[str, int]]:
    """The options for gRPC, each away from a default that breaks proxies or lets strangers take too much."""
    return [
        # On by default: a second server would bind the same port and steal calls.
        ("grpc.so_reuseport", int(settings.reuse_port)),
        # 4 MiB by default: a ztunnel with 53,000 resources could never reconnect.
        ("grpc.max_receive_message_length", settings.request_bytes),
        ("grpc.max_send_message_length", -1),
        # By default two pings within 5 minutes are too many, and ztunnel sends one every 30 s.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", int(settings.ping_interval * 1000)),
        ("grpc.http2.max_ping_strikes", 0),
        # Finds peers that are gone without a word.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.max_concurrent_streams", settings.streams_per_connection),
        ("grpc.server_handshake_timeout_ms", int(settings.handshake * 1000)),
        # Only "identity": the limit above counts bytes before decompression.
        ("grpc.compression_enabled_algorithms_bitset", 1),
    ]


class Listener:
    """All servers, from binding to the end.

    `certificate` is what they present, `roots` the PEM of the roots that client certificates are judged by,
    `certificates` issues them (None: nobody here), `ready` is asked by health checks.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        *,
        streams: Streams,
        authenticator: Authenticator,
        certificate: ServerCertificateSource,
        roots: Callable[[], str],
        certificates: CertificateService | None,
        ready: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._streams = streams
        self._authenticator = authenticator
        self._certificate = certificate
        self._roots = roots
        self._certificates = certificates
        self._health = HealthService(ready, (ADS, CERTIFICATES) if certificates is not None else (ADS,))
        self._health_checks = asyncio.Semaphore(_HEALTH_CHECKS)
        self._servers: list[Any] = []
        self._told = Rates(_LINES)
        self.metrics = ServerMetrics()

    async def start(self) -> Ports:
        """Binds and serves; returns once all ports are open. Raises ListenError, with nothing left bound."""
        settings = self._settings
        if settings.plaintext is not None and not _is_loopback(settings.plaintext.host):
            raise ListenError(
                settings.plaintext, "plaintext is for proxies of this machine", "give a loopback address or use TLS"
            )
        try:
            tls = await self._serve("tls", settings.tls, self._by_token, ServerCredentials(self._certificate))
            mtls = plaintext = None
            if settings.mtls is not None:
                credentials = ServerCredentials(self._certificate, self._roots)
                mtls = await self._serve("mtls", settings.mtls, self._by_certificate, credentials)
            if settings.plaintext is not None:
                plaintext = await self._serve("plaintext", settings.plaintext, None, None)
        except ListenError:
            await self.stop(0)
            raise
        return Ports(tls, mtls, plaintext)

    async def stop(self, drain_seconds: float) -> None:
        """Ends all streams within `drain_seconds`, then the servers."""
        self._health.draining = True
        await self._streams.drain(drain_seconds)
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(1.0)

    async def _serve(
        self, name: str, address: Address, proving: Proving | None, credentials: ServerCredentials | None
    ) -> int:
        """Starts a server of its own for an address, so that a port has no method that is not its own."""
        _check(address, reuse_port=self._settings.reuse_port)
        server = grpc.aio.server(
            options=server_options(self._settings),
            # A bound on calls that are not streams yet; those have limits with better messages.
            maximum_concurrent_rpcs=self._streams.limits.streams + 1000,
        )
        for service, methods in self._services(name, proving).items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        try:
            port: int = (
                server.add_secure_port(str(address), credentials.credentials())
                if credentials is not None
                else server.add_insecure_port(str(address))
            )
        except RuntimeError as error:
            raise ListenError(address, str(error), "choose another address or port") from None
        # At once: gRPC lets go of a port only when it stops a server that was started.
        await server.start()
        self._servers.append(server)
        return port

    def _services(self, port: str, proving: Proving | None) -> dict[str, dict[str, Any]]:
        """The methods of a port: where callers prove who they are all of them, else no certificates."""
        services = {
            ADS: {
                "DeltaAggregatedResources": self._stream_handler(port, "delta", proving),
                "StreamAggregatedResources": self._stream_handler(port, "sotw", proving),
            },
            # The unary methods are handled as streams that read one message: gRPC reads the message of a unary
            # handler, whoever sends it, before the handler can ask for a token.
            HEALTH: {"Check": self._health_handler(port)},
        }
        if proving is not None and self._certificates is not None:
            services[CERTIFICATES] = {"CreateCertificate": self._certificate_handler(port, self._certificates, proving)}
        return services

    def _stream_handler(self, port: str, variant: Variant, proving: Proving | None) -> Any:
        async def serve(context: Any) -> None:
            caller, proof = await proving(context) if proving is not None else (Caller(_peer(context)), None)
            transport = GrpcTransport(context)
            await transport.open()
            await self._streams.serve(variant, transport, caller, proof)

        async def handle(_: Any, context: Any) -> None:
            await self._answer(port, context, serve(context))

        return grpc.stream_stream_rpc_method_handler(handle)

    def _certificate_handler(self, port: str, certificates: CertificateService, proving: Proving) -> Any:
        async def create(context: Any) -> bytes:
            caller, _ = await proving(context)
            certificates.admit(caller)
            chain = await certificates.create_certificate(await _only_message(context), caller)
            self.metrics.certificates.add(port)
            return chain

        async def handle(_: Any, context: Any) -> bytes:
            return await self._answer(port, context, create(context))

        return grpc.stream_unary_rpc_method_handler(handle)

    async def _by_token(self, context: Any) -> tuple[Caller, Proof]:
        return await self._authenticator.authenticate(_peer(context), context.invocation_metadata() or ())

    async def _by_certificate(self, context: Any) -> tuple[Caller, Proof]:
        # What else a call says of itself counts for nothing here, a token neither.
        identity, ends = client_identity(context.auth_context())
        return Caller(_peer(context), identity), CertificateProof(ends)

    def _health_handler(self, port: str) -> Any:
        async def check(context: Any) -> bytes:
            async with self._health_checks:
                message = await _only_message(context)
            return self._health.check(message)

        async def handle(_: Any, context: Any) -> bytes:
            return await self._answer(port, context, check(context))

        return grpc.stream_unary_rpc_method_handler(handle)

    async def _answer(self, port: str, context: Any, work: Awaitable[T]) -> T:
        """The outcome of `work`; what it is refused with becomes the call's status. Lets cancellation through."""
        peer = _peer(context)
        try:
            return await work
        except Refusal as refusal:
            code, message = refusal.code, refusal.message
        except Disconnected:
            code, message = grpc.StatusCode.CANCELLED, "the peer is gone"
        except Exception:
            logger.exception("call failed", extra={"peer": peer})
            code, message = grpc.StatusCode.INTERNAL, "the server failed; its log says why"
        self.metrics.refused.add(port, code.name)
        if self._told.take((host_of(peer), code)):
            logger.info("call refused", extra={"peer": peer, "code": code.name, "cause": message})
        await context.abort(code, message)
        raise AssertionError("abort returned")


class GrpcTransport:
    """A stream of gRPC as dialogue.Transport."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def open(self) -> None:
        """Sends the headers, before anything can end the stream.

        Left alone they go with the first response. A stream that ends while that is under way would send them once more
        with its status, which gRPC refuses, and the peer would wait for ever.
        """
        try:
            await self._context.send_initial_metadata(())
        except grpc.aio.InternalError:
            raise Disconnected from None

    async def read(self) -> bytes | None:
        """The next message; None after the last one."""
        try:
            message = await self._context.read()
        except grpc.aio.InternalError:
            raise Disconnected from None
        return None if message is grpc.aio.EOF else message

    async def write(self, message: bytes) -> None:
        """Hands a message to HTTP/2, which takes it when the peer's flow control window lets it."""
        try:
            await self._context.write(message)
        except grpc.aio.InternalError:
            raise Disconnected from None


async def _only_message(context: Any) -> bytes:
    """The message of a unary call."""
    try:
        async with asyncio.timeout(_PATIENCE):
            message = await GrpcTransport(context).read()
    except TimeoutError:
        raise refusals.late(f"no request within {_PATIENCE:g} s") from None
    if message is None:
        raise refusals.invalid("a call without a request")
    return message


def _peer(context: Any) -> str:
    return unquote(context.peer())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check(address: Address, *, reuse_port: bool) -> None:
    """Binds and lets go: gRPC tells the reason of a failure to standard error only."""
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if reuse_port:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.bind(where)
    except socket.gaierror as error:
        raise ListenError(address, f"no such host ({error.strerror})", "give an IP address of this machine") from None
    except OSError as error:
        raise ListenError(
            address, error.strerror or str(error), "stop what listens there, or choose another address or port"
        ) from None
