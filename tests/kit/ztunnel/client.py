"""Drives a `ZtunnelMachine` over a transport: one stream after another, with ztunnel's pauses between them.

The transport moves whole messages: `await read()` gives the next response or None at a clean end and raises
`StreamLost` for any other, `await write(data)` sends a request. The in-memory transport of the kit and
`GrpcTransport` are such. Tests wait on `until`, which is woken by every response and every end of a stream, never by
a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from tests.kit.ztunnel.machine import UnreadableResponse, ZtunnelMachine
from tests.kit.ztunnel.reconnect import Backoff, StreamEnd


class Transport(Protocol):
    """One stream to a control plane."""

    async def read(self) -> bytes | None:
        """The next response; None at a clean end."""

    async def write(self, data: bytes) -> None:
        """Sends a request."""


class StreamLost(Exception):
    """The stream ended otherwise than cleanly."""

    def __init__(self, end: StreamEnd) -> None:
        super().__init__(f"{end.code}: {end.details}")
        self.end = end


class ZtunnelClient:
    """A ztunnel that talks to a control plane.

    `ends` lists how its streams ended, `client.machine` has everything it learned.
    """

    def __init__(self, machine: ZtunnelMachine, transport: Transport | None = None) -> None:
        self.machine = machine
        self.ends: list[StreamEnd] = []
        self._transport = transport
        self._changed = asyncio.Condition()

    async def run(self, transport: Transport | None = None) -> StreamEnd:
        """Serves one stream, on the transport given here or at construction, until it ends; returns how."""
        transport = transport or self._transport
        if transport is None:
            raise ValueError("no transport to run on")
        self._transport = transport
        end = await self._serve(transport)
        self.ends.append(end)
        await self._wake()
        return end

    async def keep_running(
        self,
        open_transport: Callable[[], Awaitable[Transport]],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Connects again and again, pausing as ztunnel does; runs until cancelled.

        `open_transport` raises StreamLost if there is no connection to be had.
        """
        backoff = Backoff()
        while True:
            try:
                transport = await open_transport()
            except StreamLost as lost:
                self.ends.append(lost.end)
                await self._wake()
                end = lost.end
            else:
                end = await self.run(transport)
            await sleep(backoff.after(end))

    async def demand(self, name: str) -> None:
        """Asks for one more name on the stream that runs; returns when the request is sent, not when it is answered."""
        if self._transport is None:
            raise ValueError("no stream to ask on")
        await self._transport.write(self.machine.demand(name))

    async def until(self, holds: Callable[[ZtunnelMachine], bool], deadline: float = 5.0) -> None:
        """Waits until `holds` is true of the machine.

        Raises TimeoutError after `deadline` seconds, naming the responses that did come.
        """
        try:
            async with asyncio.timeout(deadline), self._changed:
                await self._changed.wait_for(lambda: holds(self.machine))
        except TimeoutError:
            answers = [
                f"{received.type_url.rpartition('.')[2]} {len(received.resources)}+{len(received.removed)}-"
                f"{' rejected: ' + received.error if received.error else ''}"
                for received in self.machine.received
            ]
            raise TimeoutError(f"not within {deadline} s; responses: {answers}, ends: {self.ends}") from None

    async def _serve(self, transport: Transport) -> StreamEnd:
        try:
            for request in self.machine.open_stream():
                await transport.write(request)
            while (data := await transport.read()) is not None:
                answer = self.machine.receive(data)
                await self._wake()
                await transport.write(answer)
        except StreamLost as lost:
            return lost.end
        except UnreadableResponse as error:
            return StreamEnd("INTERNAL", str(error))
        return StreamEnd("OK")

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()
