"""A client of HBONE tunnels, one inside the other, as a ztunnel is: TLS, HTTP/2, one CONNECT, and bytes.

`Way` is anything bytes go through; each layer stands on another, so a tunnel within a tunnel is `tunnel` twice. Just
enough of HTTP/2 for one CONNECT on a connection; whatever the peer says that is not understood fails the test.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, Self

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_STREAM: Final = 1
# RFC 7541, appendix B: digits in Huffman's code.
_DIGITS: Final = {
    **{f"{number:05b}": str(number) for number in range(3)},
    **{f"{number + 22:06b}": str(number) for number in range(3, 10)},
}


class Refused(Exception):
    """The peer did not open the tunnel: `status` says how it answered, 0 if it reset the stream."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CONNECT was answered {status}")
        self.status = status


class Way(Protocol):
    """Bytes in both directions."""

    async def read(self) -> bytes:
        """Some bytes; none at the end."""

    async def write(self, data: bytes) -> None:
        """Sends all of it."""

    async def close(self) -> None:
        """Ends it, and what it stands on."""


class Socket:
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(1 << 16)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.transport.abort()


class Secured:
    """TLS on another way; `peer` are the URIs in the certificate of the other side, `serial` is its number."""

    def __init__(self, below: Way, context: ssl.SSLContext) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self.peer: tuple[str, ...] = ()
        self.serial = ""

    async def handshake(self) -> Self:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise ConnectionResetError("the connection ended in the handshake") from None
        await self._flush()
        certificate = self._tls.getpeercert() or {}
        names: tuple[tuple[str, str], ...] = certificate.get("subjectAltName", ())  # type: ignore[assignment]
        self.peer = tuple(value for kind, value in names if kind == "URI")
        self.serial = str(certificate.get("serialNumber", ""))
        return self

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                if not await self._fill():
                    return b""
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def close(self) -> None:
        await self._below.close()

    async def _fill(self) -> bool:
        data = await self._below.read()
        self._incoming.write(data)
        return bool(data)

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._below.write(data)


class Tunnel:
    """An HTTP/2 connection with one CONNECT on it; `below` is what it stands on."""

    def __init__(self, below: Way) -> None:
        self.below = below
        self._buffer = bytearray()

    async def open(self, authority: str, headers: Mapping[str, str]) -> Self:
        """Raises Refused."""
        fields = {":method": "CONNECT", ":authority": authority, **headers}
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
        settings = _frame(_SETTINGS, 0, 0, b"")
        await self.below.write(_PREFACE + settings + _frame(_HEADERS, _END_HEADERS, _STREAM, block))
        while True:
            kind, flags, payload = await self._next()
            if kind == _HEADERS:
                status = _status(payload)
                if status != 200 or flags & _END_STREAM:
                    raise Refused(status)
                return self
            if kind == _RESET:
                raise Refused(0)

    async def read(self) -> bytes:
        while True:
            kind, flags, payload = await self._next()
            if kind == _DATA and payload:
                credit = len(payload).to_bytes(4, "big")
                await self.below.write(_frame(_WINDOW, 0, 0, credit) + _frame(_WINDOW, 0, _STREAM, credit))
                return payload
            if kind == _RESET or flags & _END_STREAM:
                return b""

    async def write(self, data: bytes) -> None:
        await self.below.write(_frame(_DATA, 0, _STREAM, data))

    async def close(self) -> None:
        await self.below.close()

    async def _next(self) -> tuple[int, int, bytes]:
        """The next frame that is about the tunnel: kind, flags, payload."""
        while True:
            head = await self._exactly(9)
            payload = await self._exactly(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                await self.below.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
            elif kind == _GOAWAY:
                raise ConnectionResetError(f"the connection is given up: {payload[8:].decode()}")
            elif stream == _STREAM and kind in (_DATA, _HEADERS, _RESET):
                return kind, flags, payload

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = await self.below.read()
            if not data:
                raise ConnectionResetError("the connection ended")
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def trusting(root: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """A client of the mesh, with a certificate or without one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # names are URIs here; see Secured.peer
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(root)
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


async def dial(host: str, port: int) -> Socket:
    """A connection in plain."""
    return Socket(*await asyncio.open_connection(host, port))


async def tunnel(below: Way, context: ssl.SSLContext, authority: str, **headers: str) -> tuple[Tunnel, Secured]:
    """A tunnel on another way, and the TLS it is in. Raises Refused."""
    secured = await Secured(below, context).handshake()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await Tunnel(secured).open(authority, named), secured


async def ask(way: Way, host: str, path: str = "/") -> bytes:
    """A request over HTTP/1.1 and the whole answer, up to the end of the connection."""
    await way.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    parts = []
    while part := await way.read():
        parts.append(part)
    return b"".join(parts)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _text(text: str) -> bytes:
    """A string literal of HPACK, of at most 126 bytes."""
    data = text.encode()
    assert len(data) < 127
    return bytes((len(data),)) + data


def _status(block: bytes) -> int:
    """The status that a header block begins with."""
    start = 0
    while block[start] & 0xE0 == 0x20:  # a new size for the table of the decoder, which nothing here is put into
        long = block[start] & 0x1F == 0x1F
        start += 1
        while long:
            long = bool(block[start] & 0x80)
            start += 1
    first = block[start]
    indexed = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
    if first in indexed:
        return indexed[first]
    assert first & 0x0F == 8, f"no status in front: {block.hex()}"
    size = block[start + 1]
    value = block[start + 2 : start + 2 + (size & 0x7F)]
    if not size & 0x80:
        return int(value)
    bits = "".join(f"{byte:08b}" for byte in value)
    digits = ""
    while len(digits) < 3:
        width = 5 if bits[:5] in _DIGITS else 6
        digits += _DIGITS[bits[:width]]
        bits = bits[width:]
    return int(digits)
