"""An ADS client, for the command line and for tests: connects as a proxy does, shows what a proxy would be told.

In: an address, a node id, and for TLS a root certificate and a token or a client certificate. Out: responses as plain
records, whose resources hold the bytes of their messages. It acknowledges nothing by itself: the caller does.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc
import msgspec

from xds import protos

_ADS: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
_CREATE_CERTIFICATE: Final = "/istio.v1.auth.IstioCertificateService/CreateCertificate"
# As a ztunnel's: it takes 200 MiB, pings every 30 s and waits 10 s for the answer.
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 200 << 20),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A client that is started anew is not to share the connection, and the backoff, of the one before.
    ("grpc.use_local_subchannel_pool", 1),
)

discovery = protos.envoy.service.discovery.v3


class StreamEnded(Exception):
    """The server has ended the call: `code` is a grpc.StatusCode, `details` the server's words."""

    def __init__(self, code: Any, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code: Final = code
        self.details: Final = details


class ReceivedResource(msgspec.Struct, frozen=True):
    """A resource of a response. `body` are the bytes of the message that `type_url` names.

    In the state-of-the-world variant a resource has neither name nor version of its own: both are "".
    """

    type_url: str
    body: bytes
    name: str = ""
    version: str = ""
    aliases: tuple[str, ...] = ()

    def message(self) -> Any:
        """The message, decoded; raises KeyError for a type that is not known here."""
        return protos.message_class(self.type_url.rpartition("/")[2]).FromString(self.body)


class Response(msgspec.Struct, frozen=True):
    """A response of either variant; `version` is that of the whole, `removed` is empty in state of the world."""

    type_url: str
    nonce: str
    version: str
    resources: tuple[ReceivedResource, ...]
    removed: tuple[str, ...] = ()


class AdsClient:
    """A connection to a control plane, to be used as an async context manager.

    `root_certificates` is PEM and makes the connection TLS; without it the connection is plaintext. `cluster` is the
    cluster whose API server is to judge the token. `token` may be a text or a file, which is then read for each call.
    `certificate` is a private key and a chain to show, both PEM.
    """

    def __init__(
        self,
        address: str,
        *,
        node_id: str,
        metadata: Mapping[str, str] | None = None,
        root_certificates: bytes | None = None,
        token: str | Path | None = None,
        cluster: str = "",
        server_name: str = "",
        certificate: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        self.node: Final = protos.envoy.config.core.v3.Node(id=node_id)
        self.node.metadata.update(dict(metadata or {}))
        self._token = token
        self._cluster = cluster
        options = list(_OPTIONS)
        if server_name:
            options.append(("grpc.ssl_target_name_override", server_name))  # type: ignore[arg-type]
        if root_certificates is None:
            self._channel: Any = grpc.aio.insecure_channel(address, options=options)
        else:
            key, chain = (part or None for part in certificate)
            credentials = grpc.ssl_channel_credentials(root_certificates, key, chain)
            self._channel = grpc.aio.secure_channel(address, credentials, options=options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and all calls."""
        await self._channel.close()

    def delta(self) -> DeltaStream:
        """Opens a DeltaAggregatedResources stream."""
        return DeltaStream(self._open("DeltaAggregatedResources"), self.node)

    def sotw(self) -> SotwStream:
        """Opens a StreamAggregatedResources stream."""
        return SotwStream(self._open("StreamAggregatedResources"), self.node)

    async def create_certificate(self, csr: str, *, seconds: int = 0, impersonate: str = "") -> tuple[str, ...]:
        """A certificate chain for a signing request, PEM; raises StreamEnded."""
        request = protos.istio.v1.auth.IstioCertificateRequest(csr=csr, validity_duration=seconds)
        if impersonate:
            request.metadata["ImpersonatedIdentity"] = impersonate
        call = self._channel.unary_unary(_CREATE_CERTIFICATE)
        try:
            answer = await call(request.SerializeToString(), metadata=self._headers())
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(error.code(), error.details() or "") from None
        return tuple(protos.istio.v1.auth.IstioCertificateResponse.FromString(answer).cert_chain)

    def _open(self, method: str) -> Any:
        return self._channel.stream_stream(_ADS + method)(metadata=self._headers())

    def _headers(self) -> tuple[tuple[str, str], ...]:
        token = self._token.read_text().strip() if isinstance(self._token, Path) else self._token
        authorization = (("authorization", f"Bearer {token}"),) if token else ()
        cluster = (("clusterid", self._cluster),) if self._cluster else ()
        return authorization + cluster


class AdsStream(ABC):
    """What both variants of a stream share; the first request carries the node.

    An async context manager: at its end the stream is cancelled, since gRPC keeps a call that is merely dropped.
    Several tasks may send at a time.
    """

    def __init__(self, call: Any, node: protos.envoy.config.core.v3.Node) -> None:
        self._call = call
        self._node: protos.envoy.config.core.v3.Node | None = node
        # gRPC breaks a call off that is written to twice at a time.
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    async def __aiter__(self) -> AsyncIterator[Response]:
        """The responses until the server ends the stream, which raises StreamEnded."""
        while True:
            yield await self.receive()

    def cancel(self) -> None:
        """Ends the stream without a word."""
        self._call.cancel()

    async def half_close(self) -> None:
        """Says that no more requests will come."""
        await self._call.done_writing()

    async def receive(self) -> Response:
        """The next response; raises StreamEnded when the server has ended the stream, be it with OK."""
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(error.code(), error.details() or "") from None
        if data is grpc.aio.EOF:
            raise StreamEnded(await self._call.code(), await self._call.details() or "")
        return self._decode(data)

    @abstractmethod
    async def ack(self, response: Response) -> None:
        """Accepts a response; raises StreamEnded."""

    @abstractmethod
    async def nack(self, response: Response, message: str) -> None:
        """Rejects a response with a reason; raises StreamEnded."""

    @abstractmethod
    def _decode(self, data: bytes) -> Response:
        """A response of this variant."""

    async def _send(self, request: Any) -> None:
        if self._node is not None:
            request.node.CopyFrom(self._node)
            self._node = None
        try:
            async with self._writing:
                await self._call.write(request.SerializeToString())
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            # Which of them it is depends on whether the end of the stream has been noticed already.
            raise StreamEnded(await self._call.code(), await self._call.details() or "") from None


class DeltaStream(AdsStream):
    """A DeltaAggregatedResources stream."""

    async def subscribe(
        self,
        type_url: str,
        names: Iterable[str] = (),
        *,
        unsubscribe: Iterable[str] = (),
        held: Mapping[str, str] | None = None,
    ) -> None:
        """Asks for names of a type, the first time without names for all. `held` are names and versions that an
        earlier stream has given, for the first request of a type. Raises StreamEnded.
        """
        request = discovery.DeltaDiscoveryRequest(
            type_url=type_url,
            resource_names_subscribe=names,
            resource_names_unsubscribe=unsubscribe,
            initial_resource_versions=held or {},
        )
        await self._send(request)

    async def ack(self, response: Response) -> None:
        """Accepts a response."""
        await self._send(discovery.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce))

    async def nack(self, response: Response, message: str) -> None:
        """Rejects a response."""
        request = discovery.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        request.error_detail.message = message
        await self._send(request)

    def _decode(self, data: bytes) -> Response:
        message = discovery.DeltaDiscoveryResponse.FromString(data)
        return Response(
            type_url=message.type_url,
            nonce=message.nonce,
            version=message.system_version_info,
            resources=tuple(
                ReceivedResource(
                    type_url=resource.resource.type_url,
                    body=resource.resource.value,
                    name=resource.name,
                    version=resource.version,
                    aliases=tuple(resource.aliases),
                )
                for resource in message.resources
            ),
            removed=tuple(message.removed_resources),
        )


class SotwStream(AdsStream):
    """A StreamAggregatedResources stream. Remembers, by type, what it asks for and the version it accepted last, since
    every request repeats them.
    """

    def __init__(self, call: Any, node: protos.envoy.config.core.v3.Node) -> None:
        super().__init__(call, node)
        self._names: dict[str, tuple[str, ...]] = {}
        self._accepted: dict[str, tuple[str, str]] = {}

    async def subscribe(self, type_url: str, names: Iterable[str] = ()) -> None:
        """Asks for exactly these names of a type, the first time without names for all; raises StreamEnded."""
        self._names[type_url] = tuple(names)
        version, nonce = self._accepted.get(type_url, ("", ""))
        await self._request(type_url, version, nonce)

    async def ack(self, response: Response) -> None:
        """Accepts a response."""
        self._accepted[response.type_url] = (response.version, response.nonce)
        await self._request(response.type_url, response.version, response.nonce)

    async def nack(self, response: Response, message: str) -> None:
        """Rejects a response."""
        version, _ = self._accepted.get(response.type_url, ("", ""))
        await self._request(response.type_url, version, response.nonce, message)

    async def _request(self, type_url: str, version: str, nonce: str, error: str | None = None) -> None:
        request = discovery.DiscoveryRequest(
            type_url=type_url,
            version_info=version,
            response_nonce=nonce,
            resource_names=self._names.get(type_url, ()),
        )
        if error is not None:
            request.error_detail.message = error
        await self._send(request)

    def _decode(self, data: bytes) -> Response:
        message = discovery.DiscoveryResponse.FromString(data)
        return Response(
            type_url=message.type_url,
            nonce=message.nonce,
            version=message.version_info,
            resources=tuple(ReceivedResource(resource.type_url, resource.value) for resource in message.resources),
        )
