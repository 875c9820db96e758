"""Many ztunnels that connect at once over TLS, each with a token, and strangers who connect for nothing.

`Crowd` is ztunnels in a few processes of their own. They arrive all at once: cold, or naming what they hold, as after a
restart of their control plane; each is told when it has the first answer of both its types. One that is refused tries
again after half a second to a second. They speak gRPC as tests.bench.stream does. `flood` is connections that say
nothing, in part before and in part after the TLS handshake, or garbage, or have no valid token; each that is ended is
opened again a second later.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import msgspec

from tests.bench.fleet import Heard, Receipt, acknowledgement, receipt_of
from tests.bench.plane import Questions, process, received
from tests.bench.stream import Stream
from tests.kit.ztunnel.grpc_transport import METHOD
from tests.kit.ztunnel.machine import Node, ZtunnelMachine
from tests.kit.ztunnel.validation import ADDRESS_TYPE, AUTHORIZATION_TYPE
from xds import protos

TYPES = (ADDRESS_TYPE, AUTHORIZATION_TYPE)
PROCESSES = 2
_RESOURCES = 0x12
"""The tag of a response's resources."""


class Arrival(msgspec.Struct, frozen=True):
    """How one ztunnel came to be served: when it began to connect and when it had both its first answers (0: never), in
    ns; how often it was refused before; the resources and bytes of what it was sent until then.
    """

    began: int
    told: int
    refused: int
    resources: int
    size: int


def token_of(number: int) -> str:
    """The token of a ztunnel, as the API servers of tests.bench.api_servers take them."""
    return f"sa:istio-system:ztunnel:ztunnel-{number}"


def tls() -> ssl.SSLContext:
    """Of a client that believes whatever certificate it is shown: that costs both sides the same."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def resources_in(data: bytes) -> int:
    """How many resources a response brings, without reading them."""
    at = count = 0
    while at < len(data):
        tag = data[at]
        size, at = _varint(data, at + 1)
        at += size
        count += tag == _RESOURCES
    return count


class Member:
    """One ztunnel of the crowd."""

    def __init__(self, number: int, cluster: str, network: str, context: ssl.SSLContext) -> None:
        self._number = number
        self._context = context
        node = Node(
            instance_ip=f"10.251.{number // 250}.{number % 250 + 1}",
            pod_name=f"ztunnel-{number}",
            namespace="istio-system",
            node_name="node-0",
            metadata={"CLUSTER_ID": cluster, "NETWORK": network},
        )
        self._opening = dict(zip(TYPES, ZtunnelMachine(node).open_stream(), strict=True))
        self._stream: Stream | None = None
        self._begin()

    def _begin(self) -> None:
        self.began = time.monotonic_ns()
        self.told = self.refused = self.size = self.resources = 0
        self.first: dict[str, list[bytes]] = {kind: [] for kind in TYPES}
        """What it was told first, of each type."""
        self.later: list[tuple[int, bytes]] = []
        self._served = asyncio.Event()

    async def arrive(self, port: int, claims: dict[str, bytes]) -> None:
        """Connect, and again if that is refused, until it is told."""
        self._begin()
        while not self._served.is_set():
            stream = self._stream = Stream(METHOD, self._hear, token=token_of(self._number))
            loop = asyncio.get_running_loop()
            try:
                await loop.create_connection(lambda: stream, "127.0.0.1", port, ssl=self._context)  # noqa: B023
            except OSError:
                await self._refused()
                continue
            for kind in TYPES:
                stream.send(self._opening[kind] + claims.get(kind, b""))
            await self._served_or(stream.ended)
            if not self._served.is_set():
                stream.close()
                await self._refused()

    async def _served_or(self, ended: asyncio.Event) -> None:
        either = {asyncio.create_task(self._served.wait()), asyncio.create_task(ended.wait())}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()

    async def _refused(self) -> None:
        self.refused += 1
        await asyncio.sleep(0.5 + self._number % 10 / 20)

    def leave(self) -> None:
        """End its connection."""
        if self._stream is not None:
            self._stream.close()

    def arrival(self) -> Arrival:
        """How it came to be served."""
        return Arrival(self.began, self.told, self.refused, self.resources, self.size)

    def receipts(self) -> list[Receipt]:
        """What it was told later, since last time."""
        later, self.later = self.later, []
        return [receipt_of(now, data) for now, data in later]

    def _hear(self, data: bytes) -> None:
        now = time.monotonic_ns()
        kind, answer = acknowledgement(data)
        assert self._stream is not None
        self._stream.send(answer)
        if self.told:
            self.later.append((now, data))
            return
        self.size += len(data)
        self.resources += resources_in(data)
        self.first[kind].append(data if self._number < PROCESSES else b"")
        if all(self.first.values()):
            self.told = now
            self._served.set()


def _claims(first: dict[str, list[bytes]]) -> dict[str, bytes]:
    """What names the resources of these responses in a request, of each type."""
    claims = {}
    for kind, some in first.items():
        request = protos.envoy.service.discovery.v3.DeltaDiscoveryRequest()
        for data in some:
            response = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(data)
            for resource in response.resources:
                request.initial_resource_versions[resource.name] = resource.version
        claims[kind] = bytes(request.SerializeToString())
    return claims


class _Process(Questions):
    """What a process of the crowd does for each command."""

    def __init__(self, pipe: Connection, port: int, members: Sequence[Member]) -> None:
        super().__init__(pipe)
        self._port = port
        self._members = members
        self._claims: dict[str, bytes] = {}

    async def arrive(self, naming: bool, seconds: float) -> list[Arrival]:
        """All at once, those that are connected anew; how it went once all are served, or time is up."""
        claims = self._claims if naming else {}
        for one in self._members:
            one.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                for one in self._members:
                    tasks.create_task(one.arrive(self._port, claims))
        if not naming and self._members[0].told:
            self._claims = _claims(self._members[0].first)
        return [one.arrival() for one in self._members]

    async def leave(self) -> None:
        """All end their connections."""
        for one in self._members:
            one.leave()

    async def heard(self) -> Heard:
        """The receipts of each since last time."""
        return [one.receipts() for one in self._members]


def ztunnels(pipe: Connection, port: int, numbers: Sequence[int], home: tuple[str, str]) -> None:
    """A process of the crowd."""

    async def serve() -> None:
        context = tls()
        members = [Member(number, *home, context) for number in numbers]
        gc.freeze()
        gc.set_threshold(50_000, 20, 1000)
        await _Process(pipe, port, members).serve()

    asyncio.run(serve())


class Crowd:
    """So many ztunnels of a cluster on a network while the context is open, at a port with TLS."""

    def __init__(self, port: int, count: int, home: tuple[str, str]) -> None:
        self._port = port
        self._shares = [range(first, count, PROCESSES) for first in range(min(PROCESSES, count))]
        self._home = home
        self._stack = ExitStack()
        self._pipes: list[Connection] = []

    def __enter__(self) -> Crowd:
        self._pipes = [
            self._stack.enter_context(process(ztunnels, self._port, share, self._home)) for share in self._shares
        ]
        self._asked("heard")  # Once they have started.
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        self._stack.__exit__(kind, error, traceback)

    def arrive(self, *, naming: bool = False, seconds: float = 90.0) -> list[Arrival]:
        """All connect at once, naming what they hold or as if they held nothing; returns when all are served."""
        return [one for some in self._asked("arrive", naming, seconds) for one in some]

    def leave(self) -> None:
        """All end their connections."""
        self._asked("leave")

    def heard(self) -> Heard:
        """What each was told since it was served or since last time."""
        return [one for some in self._asked("heard") for one in some]

    def _asked(self, *command: object) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(command)
        return [received(pipe) for pipe in self._pipes]


# -- strangers


class _Stranger(asyncio.Protocol):
    """A connection that says something once, or nothing."""

    def __init__(self, says: bytes) -> None:
        self.ended = asyncio.Event()
        self._says = says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._says)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def _habits(context: ssl.SSLContext, garbage: bytes) -> list[tuple[ssl.SSLContext | None, Callable[[], Any]]]:
    """What strangers do: with TLS or without, and how they speak."""

    def untrusted() -> Stream:
        stream = Stream(METHOD, lambda _: None, token="not-a-token")
        stream.send(garbage)
        return stream

    return [
        (None, lambda: _Stranger(b"")),
        (None, lambda: _Stranger(garbage)),
        (context, lambda: _Stranger(b"")),
        (context, lambda: _Stranger(garbage)),
        (context, untrusted),
    ]


def strangers(pipe: Connection, port: int, count: int) -> None:
    """A process of them."""
    garbage = random.Random(5).randbytes(512)
    opened = 0

    async def bother(number: int) -> None:
        nonlocal opened
        loop = asyncio.get_running_loop()
        context, made = _habits(shared, garbage)[number % 5]
        while True:
            stranger = made()
            with contextlib.suppress(OSError):
                await loop.create_connection(lambda: stranger, "127.0.0.1", port, ssl=context)  # noqa: B023
                opened += 1
                await stranger.ended.wait()
            await asyncio.sleep(1)

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(bother(number)) for number in range(count)]
            while await asyncio.to_thread(pipe.recv) is not None:
                pipe.send(opened)
            for each in running:
                each.cancel()

    shared = tls()
    asyncio.run(serve())


@contextlib.contextmanager
def flood(port: int, count: int) -> Iterator[Callable[[], int]]:
    """So many strangers for as long as the context is open; what it gives tells how often they connected."""
    with process(strangers, port, count) as pipe:

        def opened() -> int:
            pipe.send("opened")
            answer: int = received(pipe)
            return answer

        try:
            opened()
            yield opened
        finally:
            pipe.send(None)
