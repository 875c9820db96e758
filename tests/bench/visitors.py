"""Visitors of domains, in a process of their own: they write to an API server and see when a gateway answers by it.

`Visitors` starts the process and asks it. Times are seconds from just before the first write to the end of the first
answer that shows it, by the clock of that one process. A new visitor makes a connection and a full handshake for every
attempt; a returning one asks again on the connection it has, or comes back with a second handshake. The application
behind the gateway is in this process, too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection

import msgspec

from tests.bench.callers import Caller, Seen, application, trusting
from tests.bench.hosting import Request
from tests.bench.plane import Questioned, Questions

TRY_EVERY = 0.003
"""Seconds between two attempts of a visitor who is not answered yet. Later ones are a fiftieth of the wait apart: who
waits long is to take little of the machine from whom it waits for.
"""
PATIENCE = 90.0
"""Seconds after which a visitor gives up."""

Wanted = Callable[[Seen], bool]


class Activation(msgspec.Struct, frozen=True):
    """Seconds to the first answer for a new domain; then those of a returning visitor, by the same connection and by a
    second handshake.
    """

    first: float
    kept: float
    again: float


class Place(msgspec.Struct, frozen=True):
    """Where visitors go: the gateway, the API server by its kubeconfig; whom they trust; the application's ports."""

    gateway: tuple[str, int]
    kubeconfig: bytes
    trusted: bytes
    application: tuple[int, int]


# -- what may be waited for, by name; the word that is given is a port, or what was seen before the change


def _answered(_: str) -> Wanted:
    return lambda seen: seen.status == 200


def _from_port(port: str) -> Wanted:
    return lambda seen: seen.port == int(port)


def _other_certificate(serial: str) -> Wanted:
    return lambda seen: seen.status == 200 and seen.serial != serial


def _gone(_: str) -> Wanted:
    return lambda seen: seen.status != 200


WANTED = {"answer": _answered, "port": _from_port, "certificate": _other_certificate, "gone": _gone}


# -- the process


class Api:
    """Writes to an API server, on one connection."""

    def __init__(self, kubeconfig: bytes) -> None:
        document = json.loads(kubeconfig)
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._host, _, self._port = cluster["server"].rpartition("/")[2].partition(":")
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._trust = ssl.create_default_context(cadata=ca)
        self._headers = f"authorization: Bearer {user['token']}\r\ncontent-type: application/json\r\n"
        self._caller: Caller | None = None

    async def write(self, requests: Sequence[Request]) -> None:
        """One request after the other. Raises RuntimeError if one is refused."""
        if self._caller is None:
            self._caller = await Caller.connect(self._host, (self._host, int(self._port)), self._trust)
        for method, path, body in requests:
            status, said = await self._caller.ask(path, method, body, self._headers)
            if status >= 300:
                raise RuntimeError(f"{method} {path}: {status} {said[:300]!r}")


class Visiting(Questions):
    """What the process can be asked."""

    def __init__(self, pipe: Connection, place: Place) -> None:
        super().__init__(pipe)
        self._place = place
        self._api = Api(place.kubeconfig)
        self._trust = trusting(place.trusted)

    async def write(self, requests: Sequence[Request]) -> None:
        """The API server is asked to write."""
        await self._api.write(requests)

    async def activate(self, host: str, requests: Sequence[Request]) -> Activation:
        """A new domain: how long until it answers, and how long a returning visitor waits."""
        clock = asyncio.get_running_loop().time
        with ExitStack() as connections:
            began = clock()
            await self._api.write(requests)
            caller = await self._until(host, WANTED["answer"](""), began, connections)
            first = clock()
            assert caller is not None, "it has answered"
            await caller.ask()
            kept = clock()
            await (await self._connect(host, connections)).ask()
            return Activation(first - began, kept - first, clock() - kept)

    async def change(self, host: str, requests: Sequence[Request], wanted: str, word: str = "") -> float:
        """A change of a domain: how long until a new visitor sees it. Without a word, what was seen before is it."""
        clock = asyncio.get_running_loop().time
        with ExitStack() as connections:
            before = await self._connect(host, connections)
            wants = WANTED[wanted](word or before.serial)
            began = clock()
            await self._api.write(requests)
            await self._until(host, wants, began, connections)
            return clock() - began

    async def status(self, host: str) -> int:
        """What a new visitor is answered, 0 if it is not."""
        with ExitStack() as connections:
            _, seen = await self._visit(host, connections)
            return seen.status

    async def served(self, host: str) -> float:
        """Waits until the domain is; when it was, by the clock that all processes share (time.monotonic)."""
        clock = asyncio.get_running_loop().time
        with ExitStack() as connections:
            await self._until(host, WANTED["answer"](""), clock(), connections)
            return clock()

    async def _until(self, host: str, wanted: Wanted, began: float, connections: ExitStack) -> Caller | None:
        """The last of the connections that it took; a failed one is closed at once."""
        clock = asyncio.get_running_loop().time
        while True:
            with ExitStack() as attempt:
                caller, seen = await self._visit(host, attempt)
                if wanted(seen):
                    connections.enter_context(attempt.pop_all())
                    return caller
            waited = clock() - began
            if waited > PATIENCE:
                raise TimeoutError(f"{host}: after {waited:.0f} s still {seen}")
            await asyncio.sleep(max(TRY_EVERY, waited / 50))

    async def _visit(self, host: str, connections: ExitStack) -> tuple[Caller | None, Seen]:
        """A new connection and one request on it."""
        try:
            caller = await self._connect(host, connections)
        except (OSError, EOFError):
            return None, Seen()
        try:
            return caller, await caller.see()
        except (OSError, EOFError):
            return caller, Seen(serial=caller.serial)

    async def _connect(self, host: str, connections: ExitStack) -> Caller:
        caller = await Caller.connect(host, self._place.gateway, self._trust)
        connections.callback(caller.close)
        return caller


def visiting(pipe: Connection, place: Place) -> None:
    """The life of the process."""

    async def live() -> None:
        async with application(*place.application):
            pipe.send("ready")
            await Visiting(pipe, place).serve()

    asyncio.run(live())


# -- who asks it


class Visitors(Questioned):
    """The process, while the context is open."""

    def __init__(self, place: Place) -> None:
        super().__init__(visiting, place)

    def write(self, requests: Sequence[Request]) -> None:
        """Writes to the API server."""
        self._ask("write", requests)

    def activate(self, host: str, requests: Sequence[Request]) -> Activation:
        """A new domain."""
        activation: Activation = self._ask("activate", host, requests)
        return activation

    def change(self, host: str, requests: Sequence[Request], wanted: str, word: str = "") -> float:
        """A change of one: seconds until `wanted`, one of WANTED, is seen."""
        seconds: float = self._ask("change", host, requests, wanted, word)
        return seconds

    def status(self, host: str) -> int:
        """What a new visitor is answered, 0 if it is not."""
        status: int = self._ask("status", host)
        return status

    def served(self, host: str) -> float:
        """Waits until a host is; when, by time.monotonic."""
        at: float = self._ask("served", host)
        return at
