from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from aggregator.admin.server import HttpListener, ListenError
from tests.kit.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


def listener(port: int = 0, host: str = "127.0.0.1", app: object = hello) -> HttpListener:
    return HttpListener(app, flag="--admin", host=host, port=port)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def serving(one: HttpListener) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(one.serve())
    await eventually(lambda: one.open)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def get(one: HttpListener, path: str = "/") -> bytes:
    reader, writer = await asyncio.open_connection(one.host, one.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_port_0_picks_a_free_port_and_tells_it() -> None:
    one = listener()
    held = one.bind()
    assert one.port == held.getsockname()[1] != 0
    held.close()


@pytest.mark.parametrize("taken_by", ["an HTTP listener", "another process's socket"])
def test_a_port_that_is_taken_is_told_with_flag_and_cure(taken_by: str) -> None:
    if taken_by == "an HTTP listener":
        holder = listener().bind()
    else:
        holder = socket.create_server(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    with holder, pytest.raises(ListenError) as refused:
        listener(port).bind()
    assert str(refused.value) == (
        f"--admin: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "another process listens there: stop it, or choose another port (0 picks a free one)"
    )


def test_an_address_of_another_machine_is_told_with_its_cure() -> None:
    with pytest.raises(ListenError, match="this machine does not have that address"):
        listener(host="192.0.2.1").bind()


async def test_serves_on_ipv6() -> None:
    one = listener(host="::1")
    async with serving(one):
        assert (await get(one)).endswith(b"hello")


async def test_answers_until_it_is_cancelled_and_then_frees_the_port() -> None:
    one = listener()
    async with serving(one) as task:
        assert (await get(one)).startswith(b"HTTP/1.1 200 OK\r\n")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not one.open
        listener(one.port).bind().close()


async def test_a_request_that_is_running_when_it_is_told_to_stop_is_answered() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await release.wait()
        await hello(scope, receive, send)

    one = listener(app=slow)
    async with serving(one) as task:
        answer = asyncio.create_task(get(one))
        await entered.wait()
        task.cancel()
        await eventually(lambda: not one.open)
        release.set()
        assert (await answer).endswith(b"hello")


async def test_signal_handlers_of_the_process_are_left_alone() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    async with serving(listener()):
        assert {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)} == before


async def test_nothing_is_left_running_after_many_starts_and_stops() -> None:
    before = asyncio.all_tasks()
    for _ in range(5):
        one = listener()
        async with serving(one):
            await get(one)
    assert asyncio.all_tasks() == before


async def test_an_idle_listener_wakes_nobody() -> None:
    """Uvicorn's own loop ticks ten times a second; a process with nothing to do should do nothing."""
    loop = asyncio.get_running_loop()
    async with serving(listener()):
        timers = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert timers == []
