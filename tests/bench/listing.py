"""What a long list costs those who are served meanwhile, and what unused content of objects costs.

A control plane with ztunnels on its streams takes in a cluster of many pods, of which the pages come from memory. The
event loop's pauses are seen by a task that only wants to run every millisecond: by the clock, which counts what else
the machine does, and by the CPU time of the loop's own thread.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from tests.bench.memory import resident
from tests.bench.results import Results
from tests.kit.eventually import eventually
from tests.kit.kube_pages import Made, PagesSession
from tests.kit.plane import learned
from tests.kit.two_clusters import TwoClusters
from tests.kit.ztunnel import Ztunnel
from tests.unit.watchers.kubernetes.test_selection_memory import PADDING, in_a_process, used_pod
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.flow import Flow, Rounds
from watchers.kubernetes.listwatch import USUAL
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.reflector import Reflector
from watchers.kubernetes.resources import resources
from watchers.metrics import WatchMetrics

STREAMS = 50
PODS = {"small": 4_000, "full": 20_000}
_UNUSED = 1_000
"""Bytes of each pod that nobody uses, so that 20,000 of them are a list of 34 MB."""


class Recorded(PagesSession):
    """Its pages are made before anything is measured."""

    def __init__(self, pods: int) -> None:
        super().__init__({"pods": Made(pods, used_pod)}, _UNUSED)
        self._recorded: dict[str, bytes] = {}
        for first in range(0, pods, USUAL.limit):
            query = {"limit": str(USUAL.limit), "continue": str(first)}
            self._recorded[str(first)] = super()._page("pods", query)
        self.size = sum(map(len, self._recorded.values()))

    def _page(self, plural: str, query: Mapping[str, str]) -> bytes:
        return self._recorded[query.get("continue", "0")]


def listing(size: str, results: Results) -> None:
    """The figures of both."""
    asyncio.run(_listing(PODS[size], results))
    plain, padded = in_a_process("growth(0)"), in_a_process(f"growth({PADDING})")
    results.add("listing.remote.memory", plain / 1e6, "MB", goal=20)
    results.add("listing.remote.memory.padded", padded / 1e6, "MB", goal=20)


async def _listing(pods: int, results: Results) -> None:
    session = Recorded(pods)
    async with AsyncExitStack() as stack:
        files = TwoClusters(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-"))))
        plane = await stack.enter_async_context(files.plane())
        for _ in range(STREAMS):
            await learned(await stack.enter_async_context(plane.connect(Ztunnel("net1"))))
        states: list[str] = []
        reflector = Reflector(
            next(one for one in resources("istio-system") if one.kind.name == "Pod"),
            "beta",
            session,
            plane.control.tables.facts,
            system_namespace="istio-system",
            report=lambda state, _reason: states.append(state),
            metrics=WatchMetrics(),
            flow=Flow("beta", Limits(), Rounds(), WatchMetrics(), time.monotonic),
            holdings=Holdings(Limits().objects),
            chance=lambda: 0.5,
        )
        before, cpu, began = resident(trimmed=True), time.process_time(), time.perf_counter()
        _forget_peak()
        pauses: list[tuple[float, float]] = []
        watching = asyncio.create_task(_pauses(pauses))
        reading = asyncio.create_task(reflector.run())
        await eventually(lambda: states[-1:] == ["synced"], deadline=120.0)
        taken = plane.control.pipeline.graph.values(plane.control.pipeline.workloads.collections[0])
        await eventually(lambda: len(taken) >= pods, deadline=120.0)
        cpu, took = time.process_time() - cpu, time.perf_counter() - began
        peak = _peak() - before
        for task in (watching, reading):
            task.cancel()
        await asyncio.gather(watching, reading, return_exceptions=True)
    results.add("listing.pods", pods, "pods")
    results.add("listing.size", session.size / 1e6, "MB")
    results.add("listing.cpu", cpu, "s", goal=4)
    results.add("listing.time", took, "s")
    results.add("listing.longest_pause", 1000 * max(pause for pause, _ in pauses), "ms", goal=100)
    results.add("listing.longest_pause.cpu", 1000 * max(worked for _, worked in pauses), "ms", goal=100)
    results.add("listing.memory.peak", peak / session.size, "x the list", goal=3)


async def _pauses(pauses: list[tuple[float, float]]) -> None:
    last, worked = time.perf_counter(), time.thread_time()
    while True:
        await asyncio.sleep(0.001)
        now, work = time.perf_counter(), time.thread_time()
        pauses.append((now - last, work - worked))
        last, worked = now, work


def _forget_peak() -> None:
    """The peak of memory counts from here, see proc(5)."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("proc(5) has no VmHWM here")
