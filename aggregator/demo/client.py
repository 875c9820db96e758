"""A client that asks a gateway for a host, as a browser would, and keeps the times.

In: where the gateway is, which host to ask for, and whom to trust. Out: an Answer, or Unanswered with the step that
failed. A connection is made for each request, so that every request shows all that a new visitor waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from typing import Final

import msgspec

LONGEST: Final = 1 << 20


class Answer(msgspec.Struct, frozen=True):
    """One answer. Times are in seconds since the epoch: when it was `asked` for (before connecting), `connected`,
    `secured` (the handshake was done; equal to `connected` without TLS), and `answered` in full.

    `certificate` is the subject alternative names of the gateway's certificate, `serial` its serial number.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    asked: float
    connected: float
    secured: float
    answered: float
    certificate: tuple[str, ...] = ()
    serial: str = ""

    @property
    def seconds(self) -> float:
        """How long a visitor waited."""
        return self.answered - self.asked


class Unanswered(Exception):
    """A request without an answer; the text says at which step and why."""


async def get(
    host: str,
    path: str,
    *,
    at: tuple[str, int],
    trust: ssl.SSLContext | None = None,
    headers: dict[str, str] | None = None,
    timeout: float = 10.0,
) -> Answer:
    """Asks the gateway `at` (address, port) for `path` of `host`: over TLS, with the host as SNI, if `trust` is given.

    Raises Unanswered.
    """
    step = "connect"
    try:
        async with asyncio.timeout(timeout):
            asked = time.time()
            reader, writer = await asyncio.open_connection(*at, limit=LONGEST)
            try:
                connected = time.time()
                certificate: tuple[str, ...] = ()
                serial = ""
                if trust is not None:
                    step = "handshake"
                    await writer.start_tls(trust, server_hostname=host)
                    shown = writer.get_extra_info("peercert")
                    certificate = tuple(value for _, value in shown.get("subjectAltName", ()))
                    serial = shown["serialNumber"]
                secured = time.time()
                step = "request"
                given = {"host": host, "connection": "close", **(headers or {})}
                lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
                writer.write("\r\n".join(lines).encode("latin-1"))
                await writer.drain()
                step = "answer"
                status, answered_headers, body = await _read(reader)
                now = time.time()
                return Answer(status, answered_headers, body, asked, connected, secured, now, certificate, serial)
            finally:
                # Not in order, in which either end may wait for the other: there is nothing more to say.
                writer.transport.abort()
                if step != "handshake":  # of one that was given up asyncio never says that it is closed
                    with contextlib.suppress(OSError, ssl.SSLError):
                        await writer.wait_closed()
    except TimeoutError:
        raise Unanswered(f"{step}: nothing within {timeout:g} s") from None
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        raise Unanswered(f"{step}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """What a person would call it; asyncio and OpenSSL put their own words into the texts of errors."""
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection was closed"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)


async def _read(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one response: by length, in chunks, or to the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    status = int(first.split(" ")[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        return status, headers, body
    if "content-length" in headers:
        return status, headers, await reader.readexactly(int(headers["content-length"]))
    return status, headers, await reader.read(LONGEST)
