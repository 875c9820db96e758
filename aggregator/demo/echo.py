"""An application that answers every HTTP/1.1 request with what it saw of it, and who it is.

In: requests on the address of a pod. Out: JSON with the pod's name, the request and when it came in. It is what stands
at the end of the demo's path, so it stays small: no chunked bodies, no pipelining; keep-alive, since gateways pool
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import msgspec

LONGEST_HEAD: Final = 64 * 1024
LONGEST_BODY: Final = 1 << 20


class Echo(msgspec.Struct, frozen=True):
    """One answer. `app` and `cluster` say who answers; `peer` is who connected, `received` when the request's head was
    complete, in seconds since the epoch. Names of headers are in lower case.
    """

    app: str
    cluster: str
    method: str
    path: str
    headers: dict[str, str]
    peer: str
    received: float


class EchoApp:
    """The application of one pod. `answered` counts its answers."""

    def __init__(self, app: str, cluster: str, *, now: Callable[[], float] = time.time) -> None:
        self.app = app
        self.cluster = cluster
        self.answered = 0
        self._now = now
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=LONGEST_HEAD)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Ends at once, as a process that is killed: open connections are closed."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # What cannot be understood, or has gone, gets no answer.
        finally:
            self._connections.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether another may follow on the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        received = self._now()
        request, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, path, version = request.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= LONGEST_BODY:
            raise ValueError(f"a body of {length} bytes")
        await reader.readexactly(length)
        peer = ":".join(map(str, writer.get_extra_info("peername")[:2]))
        body = msgspec.json.encode(Echo(self.app, self.cluster, method, path, headers, peer, received))
        more = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: %s\r\n\r\n" % (len(body), b"keep-alive" if more else b"close")
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()
        self.answered += 1
        return more
