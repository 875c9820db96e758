"""A load of requests on domains by TLS, in a process of its own: visitors who are judged, and others who are not.

`Load` starts the process and asks it. At a steady rate somebody asks one of the judged domains, in turn on a connection
that is kept and on a new one; in between somebody comes to one of the others with a new connection and takes what
comes. A connection that is kept is opened again when it fails, and the failure counts. The application behind the
gateway is in this process, too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec

from tests.bench.callers import Caller, application, trusting
from tests.bench.plane import Questioned, Questions

RATE: Final = 80
"""Requests a second at judged domains, half of them on new connections."""
OTHERS: Final = 4
"""So many requests at judged domains come to each at another one."""
KEPT: Final = 20
"""Connections that are kept."""


class Target(msgspec.Struct, frozen=True):
    """Where visitors go, whom they trust, and the application's ports."""

    gateway: tuple[str, int]
    trusted: bytes
    application: tuple[int, int]


class Answered(msgspec.Struct, frozen=True):
    """A request at a judged domain: when it was due (time.monotonic), and seconds until it was answered."""

    at: float
    seconds: float


class Report(msgspec.Struct):
    """Requests at judged domains by whether their connection was `kept` or `new`, and what went wrong, in words."""

    kept: list[Answered] = []
    new: list[Answered] = []
    failures: list[str] = []
    others: int = 0


class Loading(Questions):
    """What the process can be asked."""

    def __init__(self, pipe: Connection, target: Target) -> None:
        super().__init__(pipe)
        self._target = target
        self._trust = trusting(target.trusted)
        self._report = Report()
        self._running: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._visits: set[asyncio.Task[None]] = set()
        self._kept: dict[int, Caller] = {}

    async def begin(self, judged: Sequence[str], others: Sequence[str]) -> None:
        """The load begins."""
        self._running = asyncio.create_task(self._run(judged, others))

    async def end(self) -> Report:
        """It ends; what became of it."""
        assert self._running is not None, "it has begun"
        self._ended.set()
        await self._running
        for caller in self._kept.values():
            caller.close()
        return self._report

    async def visit(self, hosts: Sequence[str], within: float) -> list[str]:
        """Visits each until it answers, for that long altogether; which of them do not."""
        clock = asyncio.get_running_loop().time
        end = clock() + within
        missing = list(hosts)
        while missing and clock() < end:
            missing = [host for host in missing if await self._status(host) != 200]
            if missing:
                await asyncio.sleep(0.1)
        return missing

    async def _run(self, judged: Sequence[str], others: Sequence[str]) -> None:
        clock, chance = asyncio.get_running_loop().time, random.Random(3)
        due, number = clock(), 0
        while not self._ended.is_set():
            host = judged[number % len(judged)]
            self._start(self._ask_kept(number, judged, due) if number % 2 else self._ask_new(host, due))
            if number % OTHERS == 0:
                self._report.others += 1
                self._start(self._pass_by(chance.choice(others)))
            number += 1
            due += 1 / RATE
            await asyncio.sleep(max(0.0, due - clock()))
        await asyncio.gather(*self._visits)

    def _start(self, visit: Any) -> None:
        task = asyncio.create_task(visit)
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _ask_new(self, host: str, due: float) -> None:
        clock = asyncio.get_running_loop().time
        try:
            caller = await Caller.connect(host, self._target.gateway, self._trust)
            try:
                status, _ = await caller.ask()
            finally:
                caller.close()
        except (OSError, EOFError) as error:
            self._fail(f"a new connection to {host}: {error!r}")
        else:
            self._judge(self._report.new, host, status, Answered(due, clock() - due))

    async def _ask_kept(self, number: int, judged: Sequence[str], due: float) -> None:
        """On the connection whose turn it is; each is to a host of its own."""
        clock = asyncio.get_running_loop().time
        place = number // 2 % KEPT
        host = judged[place * len(judged) // KEPT]
        caller = self._kept.pop(place, None)
        try:
            caller = caller or await Caller.connect(host, self._target.gateway, self._trust)
            status, _ = await caller.ask()
        except (OSError, EOFError) as error:
            self._fail(f"a kept connection to {host}: {error!r}")
            if caller is not None:
                caller.close()
        else:
            self._judge(self._report.kept, host, status, Answered(due, clock() - due))
            if (other := self._kept.get(place)) is not None:  # Another was opened while this one was in use.
                other.close()
            self._kept[place] = caller

    def _judge(self, those: list[Answered], host: str, status: int, answered: Answered) -> None:
        if status == 200:
            those.append(answered)
        else:
            self._fail(f"{host} answered {status}")

    def _fail(self, text: str) -> None:
        self._report.failures.append(text)

    async def _pass_by(self, host: str) -> None:
        await self._status(host)

    async def _status(self, host: str) -> int:
        """What a new visitor is answered, 0 if it is not."""
        try:
            caller = await Caller.connect(host, self._target.gateway, self._trust)
        except (OSError, EOFError):
            return 0
        try:
            status, _ = await caller.ask()
        except (OSError, EOFError):
            return 0
        finally:
            caller.close()
        return status


def loading(pipe: Connection, target: Target) -> None:
    """The life of the process."""

    async def live() -> None:
        async with application(*target.application):
            pipe.send("ready")
            await Loading(pipe, target).serve()

    asyncio.run(live())


class Load(Questioned):
    """The process, while the context is open."""

    def __init__(self, target: Target) -> None:
        super().__init__(loading, target)

    def begin(self, judged: Sequence[str], others: Sequence[str]) -> None:
        """Requests come from now on."""
        self._ask("begin", judged, others)

    def end(self) -> Report:
        """No more; what became of them."""
        report: Report = self._ask("end")
        return report

    def visit(self, hosts: Sequence[str], within: float) -> list[str]:
        """Visits each until it answers; which of them did not within so many seconds."""
        missing: list[str] = self._ask("visit", hosts, within)
        return missing
