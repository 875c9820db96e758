"""Reads single objects of home by their names, for as long as somebody wants them.

In: a Table of wanted objects, each with the namespaces that ask for it. Out: under NAMED, the fact of each that is
there, and how it is being read. Secrets are read so because no process should list those of a whole cluster for the
sake of a few: a role can grant one by its name. Each has a watch of its own, so there are bounds: what exceeds them is
said to be unreadable, and comes to its turn when others go.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, Protocol

import msgspec

from watchers.facts import Fact, ObjectKey, SourceFault
from watchers.facts.kinds import NAMED_SECRET, ROOTS_CONFIG_MAP
from watchers.facts.named import Reading, WantedKey, object_key, reading_key
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.flow import Flow, Rounds
from watchers.kubernetes.listwatch import USUAL, Pace, State
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.reflector import Reflector
from watchers.kubernetes.resources import single
from watchers.kubernetes.session import Requests
from watchers.metrics import WatchMetrics
from watchers.sink import Cause, Facts

MOST = 256
"""Objects that are read at a time."""
MOST_OF_NAMESPACE = 64
"""Of those, for one namespace that asks: none takes the places of all others."""
LINGER = 30.0
"""Seconds for which an object is read on that nobody wants any more: who wants others all the time is not to make us
ask home all the time.
"""

_KINDS = {kind.fact: kind for kind in (NAMED_SECRET, ROOTS_CONFIG_MAP)}


class Taken(Protocol):
    """What a cursor gives: who asks for an object, None where nobody does any more."""

    @property
    def changes(self) -> Mapping[WantedKey, tuple[str, ...] | None]:
        """The objects for which that changed."""


class WantedCursor(Protocol):
    """A place in the Table of wanted objects."""

    def take(self) -> Taken:
        """What has changed since the last time."""

    def close(self) -> None:
        """It is not read any more."""


class Wanted(Protocol):
    """The Table of wanted objects: (kind of the fact, namespace, name) -> the namespaces that ask, sorted."""

    def cursor(self, *, bell: Callable[[], None]) -> WantedCursor:
        """Rings the bell once there is something to take; at first that is all there is."""


class _Reader(msgspec.Struct):
    """An object that is being read: its task, and the namespace in whose place."""

    task: asyncio.Task[None]
    charged: str


class NamedObjects:
    """Follows the objects of a Table over `requests`, in the cluster of that name.

    `chance`, `clock`, `wall` and `pace` are as of a Reflector.
    """

    def __init__(
        self,
        wanted: Wanted,
        facts: Facts,
        requests: Requests,
        *,
        cluster: str,
        metrics: WatchMetrics,
        limits: Limits | None = None,
        most: int = MOST,
        most_of_namespace: int = MOST_OF_NAMESPACE,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pace: Pace = USUAL,
    ) -> None:
        self._table = wanted
        self._facts = facts
        self._requests = requests
        self._cluster = cluster
        self._metrics = metrics
        self._flow = Flow(cluster, limits or Limits(), Rounds(), metrics, clock)
        self._most = most
        self._most_of_namespace = most_of_namespace
        self._chance = chance
        self._clock = clock
        self._wall = wall
        self._pace = pace
        self._wanted: dict[WantedKey, tuple[str, ...]] = {}
        self._readers: dict[WantedKey, _Reader] = {}
        self._charged: Counter[str] = Counter()
        self._leaving: dict[WantedKey, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        """Reads until cancelled."""
        bell = asyncio.Event()
        cursor = self._table.cursor(bell=bell.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    bell.clear()
                    for key, askers in cursor.take().changes.items():
                        if askers is None:
                            self._leave(key, bell.set)
                        else:
                            self._stay(key, askers)
                    self._begin(tasks)
                    await bell.wait()
        finally:
            cursor.close()
            for timer in self._leaving.values():
                timer.cancel()
            self._wanted.clear()
            self._readers.clear()

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        """Reads those that are not read yet, as far as there are places."""
        for key, askers in self._wanted.items():
            if key in self._readers:
                continue
            charged = next((one for one in askers if self._charged[one] < self._most_of_namespace), None)
            if charged is None or len(self._readers) >= self._most:
                most = self._most_of_namespace if charged is None else self._most
                reason = f"{most} objects are read by name already, which is the limit; those of TLS Secrets"
                reason += " that this process may list do not count"
                self._facts.apply([(reading_key(key), Reading("denied", reason))])
                continue
            self._charged[charged] += 1
            task = tasks.create_task(self._read(key), name=f"read {' '.join(key)}")
            self._readers[key] = _Reader(task, charged)

    def _stay(self, key: WantedKey, askers: tuple[str, ...]) -> None:
        timer = self._leaving.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._wanted[key] = askers

    def _leave(self, key: WantedKey, gone: Callable[[], None]) -> None:
        """Nobody wants it any more; `gone` is called once it is not read any more either."""

        def leave() -> None:
            self._leaving.pop(key, None)
            self._forget(key)
            gone()

        self._wanted.pop(key, None)
        if key in self._readers:
            self._leaving[key] = asyncio.get_running_loop().call_later(LINGER, leave)
        else:
            self._forget(key)

    def _forget(self, key: WantedKey) -> None:
        reader = self._readers.pop(key, None)
        if reader is not None:
            reader.task.cancel()
            self._charged[reader.charged] -= 1
        self._facts.apply([(object_key(key), None), (reading_key(key), None)])

    async def _read(self, key: WantedKey) -> None:
        kind, namespace, name = key
        one = _One(self._cluster, key, self._facts, lambda: key in self._readers)
        reflector = Reflector(
            single(_KINDS[kind], namespace, name),
            self._cluster,
            self._requests,
            one,
            system_namespace="",
            report=one.report,
            metrics=self._metrics,
            flow=self._flow,
            holdings=Holdings(1),
            chance=self._chance,
            pace=self._pace,
            now=self._clock,
            wall=self._wall,
        )
        await reflector.run()


class _One:
    """Where a reflector of one object writes: it holds that object, and passes on what becomes of it."""

    def __init__(self, cluster: str, wanted: WantedKey, facts: Facts, heard: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._key: ObjectKey = (cluster, *wanted)
        self._facts = facts
        self._heard = heard
        self._fact: Fact | None = None
        self._fault = ""
        self._state: Literal["", "read", "denied"] = ""
        self._reason = ""

    def apply(self, changes: Iterable[tuple[ObjectKey, Fact | None]], cause: object = None) -> int:
        """As Facts.apply."""
        for key, fact in changes:
            if key == self._key:
                self._fact = fact
            elif key[1] == "SourceFault":
                self._fault = f"{fact.cause}; {fact.cure}" if isinstance(fact, SourceFault) else ""
        self._write(cause)
        return 0

    def replace(self, prefix: tuple[str, ...], items: Iterable[tuple[ObjectKey, Fact]], cause: object = None) -> int:
        """As Facts.replace."""
        self._fact = dict(items).get(self._key)
        self._write(cause)
        return 0

    def get(self, key: ObjectKey) -> Fact | None:
        """The object, if it is there."""
        return self._fact if key == self._key else None

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[ObjectKey, Fact]]:
        """The object, if it is there."""
        return iter([(self._key, self._fact)] if self._fact is not None else [])

    def report(self, state: State, reason: str) -> None:
        """How far the reading has come. What was read stands while it cannot be read."""
        if state in ("synced", "absent"):
            self._state, self._reason = "read", ""
        elif state == "denied":
            self._state, self._reason = "denied", reason
        self._write(Cause(time.time_ns(), "", 0))

    def _write(self, cause: object) -> None:
        if not self._heard():
            return
        reading: Reading | None = None
        if self._fault:
            reading = Reading("invalid", self._fault)
        elif self._state:
            reading = Reading(self._state, self._reason)
        self._facts.apply([(object_key(self._wanted), self._fact), (reading_key(self._wanted), reading)], cause)
