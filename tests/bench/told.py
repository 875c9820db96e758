"""A control plane in a process of its own that tells what it has used, at once or when it has come so far.

`Told` is what it can be told there, `asked` how the measuring process asks.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.bench.memory import resident
from tests.bench.plane import Commands, received, serve
from watchers.facts.core import Pod
from watchers.facts.keys import ObjectKey

if TYPE_CHECKING:
    from aggregator.app.main import ControlPlane


class Usage(msgspec.Struct):
    """What the control plane's process has used: seconds of CPU time and of the clock, and those its main thread waited
    for a core that others had; bytes of memory now and at most; tasks and open files; the newest revision of ztunnels'
    addresses.
    """

    cpu: float
    clock: float
    waited: float
    resident: int
    peak: int
    tasks: int
    files: int
    revision: int
    passes: int


class Told(Commands):
    """Tells what the process has used, at once or when it has come so far."""

    def __init__(self, plane: ControlPlane, pipe: Connection) -> None:
        from aggregator.views import ztunnel

        super().__init__(plane, pipe)
        self._revision = 0
        self._taken = self._passed = 0
        self._records = plane.records.reader(self._hear_records)
        self._addresses = plane.tables.resources.cursor(ztunnel.ADDRESSES.name, self._note, from_start=False)

    def _note(self) -> None:
        self._revision = self._addresses.take().revision

    def ready(self) -> tuple[object, Usage]:
        """The port, and what it took to come so far."""
        return super().ready(), self._usage()

    def use(self, trimmed: bool) -> None:
        """What it has used; `trimmed`: after garbage was collected and free memory given back."""
        self.pipe.send(self._usage(trimmed=trimmed))

    def synced(self, clusters: list[str]) -> None:
        """Once these clusters, and no others, are read and published."""
        wanted = dict.fromkeys(clusters, "synced")

        def there() -> bool:
            states = {cluster: fact.state for cluster, fact in self.plane.clusters.states()}
            return states == wanted and all(state == "settled" for _, state in self.plane.tables.settled.scan())

        self._when(there)

    def reached(self, pods: list[tuple[ObjectKey, bool]]) -> None:
        """Once these pods are as ready as told, and that is published."""
        left = deque(pods)
        facts = self.plane.tables.facts

        def there() -> bool:
            while left and isinstance(pod := facts.get(left[0][0]), Pod) and pod.ready == left[0][1]:
                left.popleft()
            return not left

        self._when(there)

    def written(self) -> None:
        """Once home's objects have been told everything."""
        self._when(lambda: not len(self.plane.tables.writes))

    def _when(self, there: Callable[[], bool]) -> None:
        self.tasks.create_task(self._tell_when(there))

    async def _tell_when(self, there: Callable[[], bool]) -> None:
        while not (there() and self._caught_up()):  # noqa: ASYNC110 - asked from outside, nothing tells of it
            await asyncio.sleep(0.02)
        self.pipe.send(self._usage())

    def _caught_up(self) -> bool:
        """Whether all facts that came have been through a pass."""
        self._hear_records()
        return self._passed >= self.plane.tables.facts.revision

    def _hear_records(self) -> None:
        from aggregator.app.records import Batch, Pass

        for record in self._records.take():
            if isinstance(record, Batch):
                self._taken = record.revision
            elif isinstance(record, Pass):
                self._passed = self._taken

    def _usage(self, *, trimmed: bool = False) -> Usage:
        memory = resident(trimmed=trimmed)
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
        return Usage(
            cpu=time.process_time(),
            clock=time.monotonic(),
            waited=int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9,
            resident=memory,
            peak=peak,
            tasks=len(asyncio.all_tasks()),
            files=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names alone
            revision=self._revision,
            passes=self.plane.pipeline.graph.passes,
        )


def control_plane(pipe: Connection, sources: list[tuple[str, Path]], remotes: Path | None) -> None:
    """The process of the control plane; the first source is home."""
    serve(pipe, sources, Told, remotes)


def asked(plane: Connection, *command: object) -> Usage:
    """What the control plane answers."""
    plane.send(command)
    usage: Usage = received(plane)
    return usage
