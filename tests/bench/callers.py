"""One visitor of one host: a connection by TLS, and requests on it, as small as HTTP/1.1 allows; and the application
that answers them behind a gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec

WITHIN = 10.0
"""Seconds in which a connection is made, and each request answered."""


class Seen(msgspec.Struct, frozen=True):
    """What a visitor was answered: status, 0 without an answer; the port of the application that answered, 0 if none
    did; the serial number of the gateway's certificate, "" without a handshake.
    """

    status: int = 0
    port: int = 0
    serial: str = ""


class Caller:
    """A connection to one host. Its methods raise OSError or EOFError when the other end does not go on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        certificate = writer.get_extra_info("peercert") or {}
        self.serial: str = certificate.get("serialNumber", "")

    @classmethod
    async def connect(cls, host: str, at: tuple[str, int], trust: ssl.SSLContext) -> Caller:
        """By TLS, with the host as SNI; the certificate is verified."""
        reader, writer = await asyncio.open_connection(
            *at, ssl=trust, server_hostname=host, ssl_handshake_timeout=WITHIN, limit=1 << 20
        )
        return cls(reader, writer, host)

    async def ask(
        self, path: str = "/", method: str = "GET", body: bytes = b"", headers: str = ""
    ) -> tuple[int, bytes]:
        """Status and body of an answer."""
        lines = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n{headers}content-length: {len(body)}\r\n\r\n"
        self._writer.write(lines.encode("latin-1") + body)
        async with asyncio.timeout(WITHIN):
            head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            return int(head[9:12]), await self._body(head)

    async def see(self, path: str = "/") -> Seen:
        """What the application's answer says."""
        status, body = await self.ask(path)
        return Seen(status, int(body) if status == 200 else 0, self.serial)

    def close(self) -> None:
        """At once: there is nothing more to say."""
        self._writer.transport.abort()

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" in head:
            body = b""
            while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readuntil(b"\r\n")
            return body
        _, found, rest = head.partition(b"content-length: ")
        return await self._reader.readexactly(int(rest.partition(b"\r\n")[0])) if found else b""


def trusting(*texts: bytes) -> ssl.SSLContext:
    """Whom a visitor trusts, who speaks HTTP/1.1."""
    context = ssl.create_default_context(cadata=b"".join(texts).decode())
    context.set_alpn_protocols(["http/1.1"])
    return context


@asynccontextmanager
async def application(*ports: int) -> AsyncIterator[None]:
    """Answers each request with the port it came by, on all addresses of loopback, while the context is open."""
    servers = []
    for port in ports:
        body = str(port).encode()
        said = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        servers.append(await asyncio.start_server(partial(_answer, said), "0.0.0.0", port))
    try:
        yield
    finally:
        for server in servers:
            server.close()


async def _answer(said: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(EOFError, OSError, asyncio.CancelledError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
    # Also cancelled it just ends: a server's connections have nobody else who would look at what became of them.
    writer.close()
