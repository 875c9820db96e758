"""Asks for a page of an HTTP listener on loopback, in the loop of the test, which may be that of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


class Page(Struct, frozen=True):
    """An answer; `content_type` is "" where the header is missing. Names of headers are in lower case."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}

    def json(self) -> Any:
        """The body as JSON; raises ValueError if it is none."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


async def page(
    port: int,
    path: str,
    *,
    method: str = "GET",
    accept: str = "*/*",
    headers: Sequence[tuple[str, str]] = (("host", "localhost"),),
    source: str = "127.0.0.1",
    deadline: float = 10.0,
) -> Page:
    """Asks 127.0.0.1:`port` for `path`, from the address `source`; raises OSError if nobody listens, TimeoutError after
    `deadline` seconds.
    """
    async with asyncio.timeout(deadline):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        try:
            more = "".join(f"{name}: {value}\r\n" for name, value in headers)
            request = f"{method} {path} HTTP/1.1\r\naccept: {accept}\r\nconnection: close\r\n{more}\r\n"
            writer.write(request.encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        await writer.wait_closed()
    status, *lines = head.decode().split("\r\n")
    said = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Page(int(status.split()[1]), said.get("content-type", ""), body, said)
