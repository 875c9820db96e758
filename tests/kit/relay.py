"""A TCP relay on loopback that counts: how a test knows how far a server has come whose client does not read."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self


class Relay:
    """Relays connections to `target`, host and port; an async context manager.

    `address` is where it listens, `sent` counts the server's bytes.
    """

    def __init__(self, target: str) -> None:
        self.address = ""
        self.sent = 0
        self._target = target
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._relay(reader, writer), name=f"relay to {self._target}")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _relay(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(*self._target.rsplit(":", 1))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(from_client, to_server))
                tasks.create_task(self._pass_on(from_server, to_client, of_server=True))
        except* (OSError, EOFError):
            pass  # One side is gone, and with it the connection.
        finally:
            for writer in (to_client, to_server):
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, of_server: bool = False
    ) -> None:
        while data := await reader.read(1 << 16):
            self.sent += len(data) if of_server else 0
            writer.write(data)
            await writer.drain()
        raise EOFError
