from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from aggregator.demo.client import Unanswered, get
from aggregator.demo.echo import Echo, EchoApp


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[EchoApp, int]]:
    app = EchoApp("orders-1", "east", now=lambda: 12.5)
    port = await app.start("127.0.0.1", 0)
    try:
        yield app, port
    finally:
        await app.stop()


async def exchange(port: int, *requests: bytes) -> list[bytes]:
    """Sends requests on one connection, each after the answer to the one before; returns status lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    try:
        for request in requests:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            answers.append(head.split(b"\r\n")[0])
            length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
            if not request.startswith(b"HEAD"):
                await reader.readexactly(length)
    finally:
        writer.close()
        await writer.wait_closed()
    return answers


async def test_an_answer_says_who_gives_it_and_what_was_asked() -> None:
    async with echoing() as (_, port):
        answer = await get("shop.example", "/cart?x=1", at=("127.0.0.1", port), headers={"X-Thing": "a: b"})
    echo = msgspec.json.decode(answer.body, type=Echo)
    assert (echo.app, echo.cluster, echo.method, echo.path, echo.received) == (
        "orders-1",
        "east",
        "GET",
        "/cart?x=1",
        12.5,
    )
    assert echo.headers["host"] == "shop.example"
    assert echo.headers["x-thing"] == "a: b"
    assert echo.peer.startswith("127.0.0.1:")


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with echoing() as (app, port):
        ok = b"HTTP/1.1 200 OK"
        post = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
        assert await exchange(port, post, b"HEAD / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n") == [ok] * 3
        assert app.answered == 3


@pytest.mark.parametrize(
    "request_",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 70000],
)
async def test_what_is_no_request_gets_no_answer_and_the_next_connection_is_served(request_: bytes) -> None:
    async with echoing() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass  # It did not read all of it.
        writer.close()
        assert (await get("x", "/", at=("127.0.0.1", port))).status == 200


async def test_stopping_closes_open_connections() -> None:
    async with echoing() as (app, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await app.stop()
        await reader.read()
        writer.close()
        with pytest.raises(Unanswered, match="connect: Connection refused"):
            await get("x", "/", at=("127.0.0.1", port))
