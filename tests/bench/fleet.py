"""ztunnels that are served by whichever control plane, in a process of their own, and what they write down.

`Fleet` starts the process and asks it. Each client subscribes to all addresses and policies by delta xDS, acknowledges
what it is sent, and writes down when it came (`time.monotonic_ns`); the first also keeps the names of what it holds.
They speak gRPC as tests.bench.stream does, which costs so little that the control plane is what is measured. A client
whose stream ends opens another after half a second, claiming nothing, at the next of the control plane's replicas.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from tests.bench.plane import Questions, process, received
from tests.bench.stream import Stream
from tests.kit.ztunnel.grpc_transport import METHOD
from tests.kit.ztunnel.machine import Node, ZtunnelMachine
from tests.kit.ztunnel.validation import ADDRESS_TYPE, AUTHORIZATION_TYPE
from xds import protos

AGAIN = 0.5
"""Seconds after which a stream that ended is opened again."""


class Receipt(msgspec.Struct, frozen=True):
    """A response with addresses: when, in ns, how long, what it brings and what it takes away."""

    at: int
    size: int
    names: tuple[str, ...]
    removed: tuple[str, ...]


class Streams(msgspec.Struct, frozen=True):
    """How a client's streams went: when the first was opened, how many were, when each ended, in ns, and how many did
    with their connection, without a word before (a status, or GOAWAY).
    """

    began: int
    opened: int
    ended: tuple[int, ...]
    cut: int


Heard: TypeAlias = list[list[Receipt]]
"""Of each client its receipts."""


class Client:
    """One ztunnel."""

    def __init__(self, number: int, cluster: str, network: str, *, keeps: bool, narrow: bool) -> None:
        self.held: set[str] = set()
        """Names of the addresses it has, if it `keeps` them."""
        self.counts: Counter[str] = Counter()
        """How many of them begin with which network or cluster."""
        self.first = 0
        """When its first addresses came, in ns."""
        self.began = 0
        self.opened = 0
        self.ended: list[int] = []
        self.cut = 0
        self._keeps = keeps
        self._narrow = narrow
        self._heard: list[tuple[int, bytes]] = []
        self._stream: Stream | None = None
        self._node = Node(
            instance_ip=f"10.251.{number // 250}.{number % 250 + 1}",
            pod_name=f"ztunnel-{number}",
            namespace="istio-system",
            node_name=f"node-{number % 20}",
            metadata={"CLUSTER_ID": cluster, "NETWORK": network},
        )

    async def run(self, ports: Sequence[int]) -> None:
        """Talk, again and again, each time to the next."""
        self.began = time.monotonic_ns()
        for port in itertools.cycle(ports):
            stream = self._stream = Stream(METHOD, self._hear, narrow=self._narrow)
            try:
                await asyncio.get_running_loop().create_connection(lambda: stream, "127.0.0.1", port)  # noqa: B023
            except OSError:
                await asyncio.sleep(AGAIN)
                continue
            self.opened += 1
            self.held.clear()
            self.counts.clear()
            for request in ZtunnelMachine(self._node).open_stream():
                stream.send(request)
            await stream.ended.wait()
            self.ended.append(time.monotonic_ns())
            self.cut += not (stream.finished or stream.away)
            stream.close()
            await asyncio.sleep(AGAIN)

    def hold(self, *, on: bool) -> None:
        """Take no more, or go on."""
        if self._stream is not None:
            self._stream.hold(on=on)

    def receipts(self) -> list[Receipt]:
        """Since last time."""
        heard, self._heard = self._heard, []
        return [receipt_of(now, data) for now, data in heard]

    def _hear(self, data: bytes) -> None:
        now = time.monotonic_ns()
        kind, answer = acknowledgement(data)
        assert self._stream is not None
        self._stream.send(answer)
        if kind != ADDRESS_TYPE:
            return
        self.first = self.first or now
        self._heard.append((now, data))
        if self._keeps:
            self._keep(receipt_of(now, data))

    def _keep(self, receipt: Receipt) -> None:
        for name in receipt.removed:
            if name in self.held:
                self.held.remove(name)
                self.counts[name.partition("/")[0]] -= 1
        for name in receipt.names:
            if name not in self.held:
                self.held.add(name)
                self.counts[name.partition("/")[0]] += 1


def _type_field(type_url: str) -> bytes:
    """The field of a DeltaDiscoveryResponse before its nonce (another one than in the resources, which hold it too)."""
    return b"\x22" + bytes((len(type_url),)) + type_url.encode()


_ADDRESSES, _AUTHORIZATIONS = _type_field(ADDRESS_TYPE), _type_field(AUTHORIZATION_TYPE)


def acknowledgement(data: bytes) -> tuple[str, bytes]:
    """The type of a response and the request that accepts it.

    Nobody reads the rest of it before that is out: a long response would delay the other clients'.
    """
    kind = ADDRESS_TYPE if (place := data.rfind(_ADDRESSES)) >= 0 else AUTHORIZATION_TYPE
    place = place + len(_ADDRESSES) if place >= 0 else data.rfind(_AUTHORIZATIONS) + len(_AUTHORIZATIONS)
    answer = protos.envoy.service.discovery.v3.DeltaDiscoveryRequest()
    answer.type_url, answer.response_nonce = kind, data[place + 2 : place + 2 + data[place + 1]].decode()
    return kind, answer.SerializeToString()


def receipt_of(now: int, data: bytes) -> Receipt:
    """What a response that came at a time says."""
    response = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(data)
    names = tuple(resource.name for resource in response.resources)
    return Receipt(now, len(data), names, tuple(response.removed_resources))


class _Process(Questions):
    """What the process does for each command of a Fleet."""

    def __init__(self, pipe: Connection, clients: Sequence[Client]) -> None:
        super().__init__(pipe)
        self._clients = clients

    async def joined(self, seconds: float) -> list[int]:
        """When each client had its first answer, once all have."""
        end = time.monotonic() + seconds
        while not all(one.first for one in self._clients) and time.monotonic() < end:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)
        return [client.first for client in self._clients]

    async def counted(self, which: Sequence[str], least: int, most: int, seconds: float) -> int:
        """When the first client held between so many names of each of these networks; 0 if not in time."""
        end = time.monotonic() + seconds
        counts = self._clients[0].counts
        while not all(least <= counts[one] <= most for one in which):
            if time.monotonic() > end:
                return 0
            await asyncio.sleep(0.002)
        return time.monotonic_ns()

    async def counts(self) -> dict[str, int]:
        """How many names the first client holds, by what they begin with."""
        return dict(self._clients[0].counts)

    async def heard(self) -> Heard:
        """The receipts of each client since last time."""
        return [client.receipts() for client in self._clients]

    async def streams(self) -> list[Streams]:
        """Of each client."""
        return [Streams(one.began, one.opened, tuple(one.ended), one.cut) for one in self._clients]

    async def hold(self, on: bool) -> None:
        """All clients but the first take no more, or go on."""
        for client in self._clients[1:]:
            client.hold(on=on)


def ztunnels(pipe: Connection, ports: Sequence[int], count: int, home: tuple[str, str], narrow: bool) -> None:
    """The process of the clients."""

    async def serve() -> None:
        clients = [Client(one, *home, keeps=one == 0, narrow=narrow and one > 0) for one in range(count)]
        gc.freeze()
        gc.set_threshold(50_000, 20, 1000)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(client.run(ports)) for client in clients]
            await _Process(pipe, clients).serve()
            for each in running:
                each.cancel()

    asyncio.run(serve())


class Fleet:
    """So many ztunnels of a cluster on a network while the context is open; `narrow`: all but the first have HTTP/2's
    windows as they are by default, and can be told to take no more.
    """

    def __init__(self, ports: int | Sequence[int], count: int, home: tuple[str, str], *, narrow: bool = False) -> None:
        ports = [ports] if isinstance(ports, int) else list(ports)
        self._child = process(ztunnels, ports, count, home, narrow)

    def __enter__(self) -> Fleet:
        self._pipe = self._child.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pipe.send(None)
        self._child.__exit__(kind, error, traceback)

    def joined(self, seconds: float = 60.0) -> list[int]:
        """When each has its first answer, in ns, once all have; 0 for those that do not in time."""
        answer: list[int] = self._asked("joined", seconds)
        return answer

    def holds(self, which: Sequence[str], number: int, seconds: float = 60.0) -> int:
        """When the first client holds at least so many names of each of these networks, in ns; 0 if not in time."""
        answer: int = self._asked("counted", list(which), number, 1 << 30, seconds)
        return answer

    def misses(self, which: Sequence[str], seconds: float = 60.0) -> int:
        """When it holds none of these networks; 0 if not in time."""
        answer: int = self._asked("counted", list(which), 0, 0, seconds)
        return answer

    def counts(self) -> dict[str, int]:
        """How many names the first client holds, by what they begin with."""
        answer: dict[str, int] = self._asked("counts")
        return answer

    def heard(self) -> Heard:
        """The receipts of each since last time."""
        answer: Heard = self._asked("heard")
        return answer

    def streams(self) -> list[Streams]:
        """How the streams of each went."""
        answer: list[Streams] = self._asked("streams")
        return answer

    def hold(self, *, on: bool) -> None:
        """All but the first take no more, or go on."""
        self._asked("hold", on)

    def _asked(self, *command: object) -> Any:
        self._pipe.send(command)
        return received(self._pipe)
