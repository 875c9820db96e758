"""The client's end of a stream in memory: a ztunnel against the real stream handler, in one loop and without sockets.

`MemoryStream.open` starts the handler on a `tests.kit.transport.MemoryTransport` and is itself a `Transport` for
`ZtunnelClient`. It ends as the handler does: cleanly when that returns, with the status of the Refusal it raises.
"""

from __future__ import annotations

import asyncio

from tests.kit.transport import MemoryTransport
from tests.kit.ztunnel.client import StreamLost
from tests.kit.ztunnel.reconnect import StreamEnd
from xds.server.authentication import Caller, Identity
from xds.server.refusals import Refusal
from xds.server.streams import Streams


class MemoryStream:
    """One delta ADS stream; use `open`. `served` is the handler's task."""

    def __init__(self, transport: MemoryTransport, served: asyncio.Future[None]) -> None:
        self.served = served
        self._transport = transport

    @classmethod
    def open(
        cls,
        streams: Streams,
        identity: Identity | None,
        *,
        cluster: str = "",
        room: int = 1,
        peer: str = "10.0.0.1:1000",
    ) -> MemoryStream:
        """Begins a stream to `streams` as `identity`, with room for `room` responses that were not read."""
        transport = MemoryTransport(room)
        served = asyncio.ensure_future(streams.serve("delta", transport, Caller(peer, identity, cluster)))
        return cls(transport, served)

    async def read(self) -> bytes | None:
        reading = asyncio.ensure_future(self._transport.responses.get())
        try:
            await asyncio.wait((reading, self.served), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.sleep(0)  # The handler ended first; what it sent before is still to be read.
            if reading.done():
                return reading.result()
        finally:
            reading.cancel()
        self._raise_if_refused()
        return None

    async def write(self, data: bytes) -> None:
        if self.served.done():
            self._raise_if_refused()
        self._transport.requests.put_nowait(data)

    async def close(self) -> None:
        """Is gone, as a client that loses its connection."""
        self.served.cancel()
        await asyncio.wait((self.served,))

    def _raise_if_refused(self) -> None:
        if self.served.cancelled():
            raise StreamLost(StreamEnd("CANCELLED"))
        match self.served.exception():
            case None:
                return
            case Refusal(code=code, message=message):
                raise StreamLost(StreamEnd(code.name, message))
            case fault:
                raise fault
