"""Services behind an ingress gateway that say who they are: each pod is a server of its own on loopback.

Every answer is a JSON document with the service, the pod and what was asked, as a gateway's user can tell from it who
has served a request and what of the request came through.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from tests.kit import manifests as m
from tests.kit.ports import free_port

PORT = 8080
"""The port of every service, called `http`."""


class NamedServices:
    """Use it as an async context manager, within which `serve` starts services."""

    def __init__(self, namespace: str, network: str = "127.9.2") -> None:
        self._namespace = namespace
        self._network = network
        self._port = free_port(f"{network}.1")
        self._pods = 0
        self._ending = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ending.aclose()

    async def serve(self, name: str, pods: int = 1) -> list[m.Manifest]:
        """Start a service with so many pods; returns the objects it is made of."""
        labels = {"app": name}
        ports = {"http": (PORT, self._port)}
        objects = [m.service(f"{self._namespace}/{name}", ports=ports, selector=labels)]
        for number in range(pods):
            self._pods += 1
            pod, address = f"{name}-{number}", f"{self._network}.{self._pods}"
            server = await asyncio.start_server(_Answering(name, pod), address, self._port)
            self._ending.callback(server.close)
            objects.append(m.pod(f"{self._namespace}/{pod}", address, labels=labels, ambient=False))
        return objects


class _Answering:
    def __init__(self, service: str, pod: str) -> None:
        self._who = {"service": service, "pod": pod}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, proto = head[0].split(" ")
                lines = [line.partition(": ") for line in head[1:] if line]
                headers = {name.lower(): value for name, _, value in lines}
                asked: dict[str, Any] = {"method": method, "path": path, "proto": proto, "headers": headers}
                body = json.dumps({**self._who, **asked}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # Also cancelled it just ends, as nobody else would look at what became of a server's connections.
            writer.close()
