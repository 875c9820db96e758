from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aggregator.demo.client import Unanswered, get
from aggregator.demo.credentials import Credentials


@asynccontextmanager
async def answering(answer: bytes, context: ssl.SSLContext | None = None, *, close: bool = True) -> AsyncIterator[int]:
    """A server that answers every connection with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not close:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def server_context(credentials: Credentials, host: str, directory: Path) -> ssl.SSLContext:
    pair = credentials.certify(host)
    file = directory / f"{host}.pem"
    file.write_bytes(pair.chain + pair.private_key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    return context


@pytest.mark.parametrize(
    "framed",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
    ],
)
async def test_a_body_is_read_however_it_is_framed(framed: bytes) -> None:
    async with answering(framed) as port:
        answer = await get("x", "/", at=("127.0.0.1", port))
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.asked <= answer.connected <= answer.secured <= answer.answered


async def test_over_tls_the_host_is_verified_and_its_names_are_told(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    context = server_context(credentials, "shop.example", tmp_path)
    async with answering(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", context) as port:
        answer = await get("shop.example", "/", at=("127.0.0.1", port), trust=credentials.trust())
        assert (answer.status, answer.certificate) == (204, ("shop.example",))
        with pytest.raises(Unanswered, match="handshake: CERTIFICATE_VERIFY_FAILED"):
            await get("other.example", "/", at=("127.0.0.1", port), trust=credentials.trust())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "answer: the connection was closed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", "answer: the connection was closed"),
        (b"HTTP/1.1 what\r\n\r\n", "answer: invalid literal"),
    ],
)
async def test_half_an_answer_is_none(answer: bytes, reason: str) -> None:
    async with answering(answer) as port:
        with pytest.raises(Unanswered, match=reason):
            await get("x", "/", at=("127.0.0.1", port))


async def test_silence_ends_with_the_time_that_was_given() -> None:
    async with answering(b"", close=False) as port:
        with pytest.raises(Unanswered, match=r"answer: nothing within 0\.05 s"):
            await get("x", "/", at=("127.0.0.1", port), timeout=0.05)
