"""From a change at an API server to ten ztunnels: in each rhythm, beside a relist storm, in bursts.

A change counts from the moment the API server has it, and has arrived with the first response that names what changes
with it. The servers write down that moment, the clients the other, by one clock.
"""

from __future__ import annotations

import random
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

from tests.bench import mesh
from tests.bench.latency import BURSTS, QUIET, RATE, Receipt, ztunnels
from tests.bench.plane import process, received
from tests.bench.results import Results, quantile
from tests.bench.told import asked, control_plane
from tests.bench.watched import Change, Mesh, happen

Ran: TypeAlias = tuple[list[int], list[list[Receipt]], float, float]
"""When each change happened, in ns; each client's receipts until it had them all; meanwhile, seconds of CPU, and the
share of the time that the control plane waited for a core.
"""


class Ztunnels:
    """The clients, and what they were sent."""

    def __init__(self, some: Mesh, plane: Connection, clients: Connection) -> None:
        self.some = some
        self._plane = plane
        self._clients = clients
        received(clients)

    def run(self, changes: Sequence[Change], gaps: Sequence[float] = ()) -> Ran:
        """Changes happen."""
        time.sleep(QUIET)
        before = asked(self._plane, "use", False)
        at = happen(self.some.servers, changes, gaps)
        last = {change.key: change.ready for change in changes}
        after = asked(self._plane, "reached", list(last.items()))
        self._clients.send(after.revision)
        waited = (after.waited - before.waited) / (after.clock - before.clock)
        return at, received(self._clients), after.cpu - before.cpu, waited

    def rhythm(self, gaps: Sequence[float], clusters: Sequence[int]) -> dict[str, float]:
        """Latencies of one change after each gap, and CPU."""
        changes = self.some.some(len(gaps), clusters)
        at, receipts, cpu, waited = self.run(changes, gaps)
        latencies = sorted(joined(at, changes, receipts))
        return {
            "p50": quantile(latencies, 0.5),
            "p99": quantile(latencies, 0.99),
            "longest": latencies[-1],
            "cpu": 100 * cpu / sum(gaps),
            "waited": 100 * waited,
        }

    def burst(self, clusters: Sequence[int]) -> tuple[float, float, float]:
        """Ms from the first of many single changes to the last receipt, and to the last change; microseconds of CPU
        each.
        """
        changes = self.some.burst(clusters)
        at, receipts, cpu, _ = self.run(changes)
        done = max(each[-1][0] for each in receipts)
        return (done - at[0]) / 1e6, (at[-1] - at[0]) / 1e6, 1e6 * cpu / len(changes)


def joined(at: Sequence[int], changes: Sequence[Change], receipts: Sequence[Sequence[Receipt]]) -> Iterator[float]:
    """Milliseconds of every change at every client."""
    for each in receipts:
        heard: dict[str, list[int]] = {}
        for now, _, _, names in each:
            for name in names:
                heard.setdefault(name, []).append(now)
        for moment, change in zip(at, changes, strict=True):
            times = heard.get(change.told, [])
            place = bisect_left(times, moment)
            assert place < len(times), f"a client was not sent {change.told}"
            yield (times[place] - moment) / 1e6


def served(some: Mesh, results: Results) -> None:
    """A control plane that starts with all clusters, and how soon ten ztunnels have their changes."""
    names = some.names()
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as directory:
        some.register(Path(directory), names)
        started = time.monotonic()
        with process(control_plane, [(name, Path(directory, name)) for name in names], None) as plane:
            port, usage = received(plane)
            results.add("watchers.ready", usage.clock - started, "s")
            results.add("watchers.ready.cpu", usage.cpu, "s")
            with process(ztunnels, port) as clients:
                changing(Ztunnels(some, plane, clients), results)
                usage = asked(plane, "use", False)
                results.add("watchers.served.process.memory", usage.resident / 1e6, "MB", goal=200)
                clients.send(None)
                plane.send(("stop",))


def changing(proxies: Ztunnels, results: Results) -> None:
    """Changes in each rhythm, in a relist storm, then bursts."""
    some, chance = proxies.some, random.Random(11)
    count = int(RATE * some.size.seconds)
    even, by_chance = [1 / RATE] * count, [chance.expovariate(RATE) for _ in range(count)]
    everywhere = list(some.clusters)
    proxies.rhythm(even[: 2 * RATE], everywhere)
    for name, gaps in (("even", even), ("random", by_chance)):
        add_rhythm(results, name, proxies.rhythm(gaps, everywhere))
    stormy = mesh.cluster_name(1)
    lists = some.servers.stats()[stormy]["lists"]
    some.servers.storm(stormy, on=True)
    began = time.monotonic()
    time.sleep(2)
    add_rhythm(results, "storm", proxies.rhythm(by_chance, [one for one in everywhere if one != 1]))
    lists = some.servers.stats()[stormy]["lists"] - lists
    results.add("watchers.storm.lists", lists / (time.monotonic() - began), "lists/s")
    some.servers.storm(stormy, on=False)
    proxies.run([some.turn(1, 0)])
    for where, within in (("home", [0]), ("remote", [2]), ("mesh", everywhere)):
        bursts = [proxies.burst(within) for _ in range(BURSTS)]
        received_ms, written_ms, cpu_us = (quantile(list(one), 0.5) for one in zip(*bursts, strict=True))
        results.add(f"watchers.burst.{where}", received_ms, "ms", goal=250)
        results.add(f"watchers.burst.{where}.written", written_ms, "ms")
        results.add(f"watchers.burst.{where}.cpu_per_change", cpu_us, "us")


def add_rhythm(results: Results, name: str, figures: dict[str, float]) -> None:
    """Of changes at 100 a second, at ten ztunnels."""
    results.add(f"watchers.latency.{name}.p50", figures["p50"], "ms", goal=2)
    results.add(f"watchers.latency.{name}.p99", figures["p99"], "ms", goal=15)
    results.add(f"watchers.latency.{name}.longest", figures["longest"], "ms")
    results.add(f"watchers.latency.{name}.cpu", figures["cpu"], "% of a core")
    results.add(f"watchers.latency.{name}.waited", figures["waited"], "% of the time")
