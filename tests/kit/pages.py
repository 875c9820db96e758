"""Asks for a page of an HTTP listener on loopback, in the loop of the test, which may be that of the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from msgspec import Struct


class Page(Struct, frozen=True):
    """An answer; `content_type` is "" where the header is missing."""

    status: int
    content_type: str
    body: bytes

    def json(self) -> Any:
        """The body as JSON; raises ValueError if it is none."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


async def page(port: int, path: str, *, method: str = "GET", accept: str = "*/*", deadline: float = 10.0) -> Page:
    """Asks 127.0.0.1:`port` for `path`; raises OSError if nobody listens, TimeoutError after `deadline` seconds."""
    async with asyncio.timeout(deadline):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            request = f"{method} {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
            writer.write(request.encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        await writer.wait_closed()
    status, *headers = head.decode().split("\r\n")
    types = [value for name, _, value in (line.partition(": ") for line in headers) if name.lower() == "content-type"]
    return Page(int(status.split()[1]), types[0] if types else "", body)
