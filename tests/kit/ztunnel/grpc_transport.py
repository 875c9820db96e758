"""ztunnel's connection to a control plane over real gRPC, with its limits, keepalive and headers.

`GrpcDialer.open` makes a new connection, plaintext or TLS with a root and a token, and opens a delta ADS stream on it
as a `Transport`; like ztunnel it never uses a connection again. The bytes pass through untouched: no message class is
bound to the channel.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

import grpc
from grpc import aio

from tests.kit.ztunnel.client import StreamLost
from tests.kit.ztunnel.reconnect import StreamEnd

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

_OPTIONS = (
    ("grpc.max_receive_message_length", 200 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcTransport:
    """One delta ADS stream."""

    def __init__(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        self._call = call
        self._cancelled = False
        self._answered = False
        # gRPC breaks a call off that is written to twice at a time.
        self._writing = asyncio.Lock()

    async def read(self) -> bytes | None:
        try:
            data = await self._call.read()
        except aio.AioRpcError as error:
            raise StreamLost(self._end(error.code(), error.details())) from None
        except asyncio.CancelledError:
            self._raise_if_cancelled_here()
            raise
        if not isinstance(data, bytes):
            return None
        self._answered = True
        return data

    async def write(self, data: bytes) -> None:
        try:
            async with self._writing:
                await self._call.write(data)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            await self._raise_end()
        except asyncio.CancelledError:
            self._raise_if_cancelled_here()
            raise

    def cancel(self) -> None:
        """Ends the stream from this side: whoever reads or writes gets StreamLost with CANCELLED."""
        self._cancelled = True
        self._call.cancel()

    def _raise_if_cancelled_here(self) -> None:
        # gRPC reports a call that was cancelled in the way a cancelled task looks.
        if self._cancelled:
            raise StreamLost(StreamEnd("CANCELLED")) from None

    async def _raise_end(self) -> NoReturn:
        """The server ended the stream before it could be written to."""
        raise StreamLost(self._end(await self._call.code(), await self._call.details()))

    def _end(self, code: grpc.StatusCode, details: str | None) -> StreamEnd:
        return StreamEnd(code.name, details or "", connected=self._answered)


class GrpcDialer:
    """Connections to `target`, host and port.

    Without `root` they are plaintext. `root` holds PEM certificates, `token` goes into the authorization header
    together with the cluster id, `hostname` is the name expected in the server's certificate if it is not that of
    `target`.
    """

    def __init__(
        self,
        target: str,
        *,
        root: bytes | None = None,
        token: str = "",
        cluster: str = "Kubernetes",
        hostname: str = "",
    ) -> None:
        self._target = target
        self._root = root
        self._options = [*_OPTIONS, *([("grpc.ssl_target_name_override", hostname)] if hostname else [])]
        self._metadata = (("authorization", f"Bearer {token}"), ("clusterid", cluster)) if token else ()
        self._channel: aio.Channel | None = None

    async def open(self) -> GrpcTransport:
        """Closes the connection before and opens another; one that cannot be had shows at its first use."""
        await self.close()
        if self._root is None:
            self._channel = aio.insecure_channel(self._target, self._options)
        else:
            self._channel = aio.secure_channel(self._target, grpc.ssl_channel_credentials(self._root), self._options)
        return GrpcTransport(self._channel.stream_stream(METHOD)(metadata=self._metadata))

    async def close(self) -> None:
        """Ends the stream and the connection."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
