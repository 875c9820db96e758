"""What clusters cost that are read through their API servers, and how soon their changes reach ztunnels.

`python -m tests.bench.watchers --size small|full`. Full is home and 10 remote clusters of 300 global services and 4,000
endpoints each, every one behind an API server of its own, by TLS, in one process (`api_servers`). The control plane is
another process, started as `isthmus run --local c0=KUBECONFIG` would; ten ztunnels (`latency`) are a third. An
endpoint's change is its Pod's readiness; it counts from the moment the API server has it, and has arrived with the
first response that names what changes with it. The servers write down that moment, the clients the other, by one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tests.bench import mesh
from tests.bench.api_servers import ApiServers
from tests.bench.latency import BURST, BURSTS, QUIET, RATE, Receipt, ztunnels
from tests.bench.memory import resident
from tests.bench.plane import Commands, process, received, serve
from tests.bench.results import Results, quantile, reference
from tests.kit.manifests import Manifest
from watchers.facts.core import Pod
from watchers.facts.keys import ObjectKey

if TYPE_CHECKING:
    from aggregator.app.main import ControlPlane


class Size(msgspec.Struct, frozen=True):
    """How much is measured. `seconds` is how long each rhythm of changes lasts, `rest` how long nothing happens before
    memory is at rest.
    """

    remotes: int
    services: int
    pods: int
    seconds: float
    rest: float
    joins: int
    rotations: int


SIZES = {
    "small": Size(remotes=3, services=60, pods=600, seconds=3, rest=1, joins=4, rotations=6),
    "full": Size(remotes=10, services=300, pods=4000, seconds=30, rest=10, joins=50, rotations=300),
}

KINDS = 6
"""Of so many a remote cluster is watched."""
APART = 300
"""Between two changes of one resource lie so many of others, so that each can be told from the one before."""


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


# -- the control plane's process


class Told(Commands):
    """Tells what the process has used, at once or when it has come so far."""

    def __init__(self, plane: ControlPlane, pipe: Connection) -> None:
        from aggregator.views import ztunnel

        super().__init__(plane, pipe)
        self._revision = 0
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

    def _when(self, there: Callable[[], bool]) -> None:
        self.tasks.create_task(self._tell_when(there))

    async def _tell_when(self, there: Callable[[], bool]) -> None:
        while not (there() and self._caught_up()):  # noqa: ASYNC110 - asked from outside, nothing tells of it
            await asyncio.sleep(0.02)
        self.pipe.send(self._usage())

    def _caught_up(self) -> bool:
        """Whether all facts that came have been through a pass."""
        from aggregator.app.records import Batch, Pass

        done = False
        for record in reversed(list(self.plane.records.recent())):
            done = done or isinstance(record, Pass)
            if isinstance(record, Batch):
                return done and record.revision >= self.plane.tables.facts.revision
        return False

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


# -- the mesh


def wire(manifest: Manifest) -> Manifest:
    """A Pod as kubectl applied it and a network plugin annotated it: about 6 KB, most of which nobody here reads."""
    padded = mesh.padded(manifest)
    network = msgspec.json.encode([{"name": "pods", "interface": "eth0", "ips": ["192.0.2.1"], "default": True}])
    annotations = {
        **padded["metadata"]["annotations"],
        "kubectl.kubernetes.io/last-applied-configuration": msgspec.json.encode(manifest).decode(),
        "k8s.v1.cni.cncf.io/network-status": network.decode() * 6,
    }
    return {**padded, "metadata": {**padded["metadata"], "annotations": annotations}}


def objects(cluster: int, size: Size) -> Iterator[Manifest]:
    """All objects of a cluster."""
    for one in mesh.objects(cluster, size.services, 0):
        if one["kind"] != "EndpointSlice":
            yield one
    for number in range(size.services):
        yield mesh.endpoint_slice(cluster, size.services, size.pods, number)
    for number in range(size.pods):
        yield wire(mesh.pod(cluster, size.services, number))


class Change(msgspec.Struct, frozen=True):
    """A pod's readiness turns; `told` is the name of what ztunnels are told."""

    cluster: str
    document: Manifest
    key: ObjectKey
    ready: bool
    told: str


class Mesh:
    """The clusters behind API servers, and changes in them by chance."""

    def __init__(self, servers: ApiServers, size: Size) -> None:
        self.servers = servers
        self.size = size
        self.clusters = range(size.remotes + 1)
        self._chance = random.Random(7)
        self._unready: set[tuple[int, int]] = set()
        self._recent: deque[str] = deque(maxlen=min(APART, size.remotes * size.services // 2))
        for number in self.clusters:
            servers.start(mesh.cluster_name(number), objects(number, size))

    def names(self) -> list[str]:
        """Of all clusters, home first."""
        return [mesh.cluster_name(number) for number in self.clusters]

    def register(self, directory: Path, clusters: Iterable[str], token: str = "token") -> None:
        """Writes kubeconfigs, each whole or not at all."""
        for cluster in clusters:
            staged = directory / f".{cluster}"
            staged.write_bytes(self.servers.kubeconfig(cluster, token))
            staged.rename(directory / cluster)

    def turn(self, cluster: int, number: int) -> Change:
        """That pod's readiness turns."""
        pod, services = (cluster, number), self.size.services
        ready = pod in self._unready
        self._unready ^= {pod}
        key, told = mesh.pod_key(cluster, services, number), mesh.told_name(cluster, services, number)
        document = wire(mesh.pod(cluster, services, number, ready=ready))
        return Change(mesh.cluster_name(cluster), document, key, ready, told)

    def some(self, count: int, clusters: Sequence[int]) -> list[Change]:
        """Changes of pods in these clusters by chance, no two near each other of one resource."""
        changes: list[Change] = []
        while len(changes) < count:
            cluster, number = self._chance.choice(clusters), self._chance.randrange(self.size.pods)
            told = mesh.told_name(cluster, self.size.services, number)
            if told not in self._recent:
                self._recent.append(told)
                changes.append(self.turn(cluster, number))
        return changes

    def burst(self, clusters: Sequence[int]) -> list[Change]:
        """Changes of different pods, as many as a burst has."""
        pods = [(cluster, number) for cluster in clusters for number in range(self.size.pods)]
        return [self.turn(*pod) for pod in self._chance.sample(pods, min(BURST, len(pods)))]


def asked(plane: Connection, *command: object) -> Usage:
    """What the control plane answers."""
    plane.send(command)
    usage: Usage = received(plane)
    return usage


def happen(servers: ApiServers, changes: Sequence[Change], gaps: Sequence[float] = ()) -> list[int]:
    """The changes happen; when, in ns."""
    return servers.change([(change.cluster, change.document) for change in changes], gaps)


# -- clusters that come and go


def registered(some: Mesh, results: Results) -> None:
    """What clusters cost that join a control plane: memory, CPU, and what stays behind when they go or rotate."""
    size, names = some.size, some.names()
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as directory:
        home, remotes = Path(directory, "home"), Path(directory, "remotes")
        remotes.mkdir()
        home.write_bytes(some.servers.kubeconfig(names[0]))
        with process(control_plane, [(names[0], home)], remotes) as plane:
            received(plane)
            alone = asked(plane, "use", False)
            some.register(remotes, names[1:])
            synced = asked(plane, "synced", names)
            time.sleep(size.rest)
            rest = asked(plane, "use", False)
            results.add("watchers.home.memory", alone.resident / 1e6, "MB")
            for when, usage in (("synced", synced), ("rest", rest)):
                added = (usage.resident - alone.resident) / size.remotes / 1e6
                results.add(f"watchers.remote.memory.{when}", added, "MB", goal=8)
                results.add(f"watchers.process.memory.{when}", usage.resident / 1e6, "MB", goal=200)
            results.add("watchers.process.memory.peak", rest.peak / 1e6, "MB")
            results.add("watchers.remotes.together.cpu", (synced.cpu - alone.cpu) / size.remotes, "s", goal=0.25)
            results.add("watchers.remotes.together.ready", synced.clock - alone.clock, "s")
            idle = cpu_of(plane, lambda: time.sleep(size.seconds))
            changing = steady(some, plane)
            results.add("watchers.idle.cpu", idle, "% of a core")
            each = (changing - idle) / size.remotes
            results.add("watchers.change_a_second.cpu", each, "% of a core", goal=0.05)
            joins(some, plane, remotes, results)
            rotations(some, plane, remotes, results)
            plane.send(("stop",))


def cpu_of(plane: Connection, during: Callable[[], object]) -> float:
    """CPU while something happens, in percent of a core."""
    before = asked(plane, "use", False)
    during()
    after = asked(plane, "use", False)
    return 100 * (after.cpu - before.cpu) / (after.clock - before.clock)


def steady(some: Mesh, plane: Connection) -> float:
    """CPU while one endpoint of every remote cluster changes each second."""
    remotes = some.clusters[1:]
    changes = [change for _ in range(int(some.size.seconds)) for one in remotes for change in some.some(1, [one])]
    return cpu_of(plane, lambda: happen(some.servers, changes, [1 / len(remotes)] * len(changes)))


def joins(some: Mesh, plane: Connection, remotes: Path, results: Results) -> None:
    """Clusters leave and join again one after the other, some read by a streamed list, some in pages."""
    names = some.names()
    spent: dict[bool, list[float]] = {True: [], False: []}
    before = asked(plane, "use", True)
    first = some.size.remotes
    for count in range(first + some.size.joins):
        if count == first:
            # What an allocator keeps of the first ones it uses again.
            before = asked(plane, "use", True)
        cluster, streamed = names[1 + count % some.size.remotes], count % 2 == 0
        some.servers.streamed(cluster, on=streamed)
        (remotes / cluster).unlink()
        gone = asked(plane, "synced", [name for name in names if name != cluster])
        some.register(remotes, [cluster], f"join-{count}")
        there = asked(plane, "synced", names)
        spent[streamed].append(there.cpu - gone.cpu)
        some.servers.streamed(cluster, on=True)
    time.sleep(some.size.rest)
    after = asked(plane, "use", True)
    results.add("watchers.join.cpu.streamed", quantile(spent[True], 0.5), "s", goal=0.25)
    results.add("watchers.join.cpu.pages", quantile(spent[False], 0.5), "s", goal=0.25)
    growth(results, "join", some.size.joins, before, after)


def growth(results: Results, name: str, times: int, before: Usage, after: Usage) -> None:
    """What stayed behind."""
    results.add(f"watchers.{name}.times", times, "times")
    results.add(f"watchers.{name}.growth", (after.resident - before.resident) / times / 1e3, "KB each", goal=20)
    left = after.tasks - before.tasks + after.files - before.files
    results.add(f"watchers.{name}.tasks_and_files_left", left, "", goal=0)


def rotations(some: Mesh, plane: Connection, remotes: Path, results: Results) -> None:
    """All credentials are replaced at once, again and again: each cluster is read anew beside what is served."""
    names, size = some.names()[1:], some.size
    rounds = size.rotations // size.remotes

    def rotate(token: str) -> None:
        lists = {name: some.servers.stats()[name]["lists"] for name in names}
        some.register(remotes, names, token)
        end = time.monotonic() + 60
        while not all(
            counts["lists"] >= lists[name] + KINDS and counts["open"] == KINDS
            for name, counts in some.servers.stats().items()
            if name in lists
        ):
            if time.monotonic() > end:
                raise TimeoutError(f"a rotation does not end: {some.servers.stats()}")
            time.sleep(0.05)

    for number in range(2):
        rotate(f"first-{number}")
    time.sleep(size.rest)
    before = asked(plane, "use", True)
    for number in range(rounds):
        rotate(f"rotation-{number}")
    time.sleep(size.rest)
    after = asked(plane, "use", False)
    trimmed = asked(plane, "use", True)
    results.add("watchers.rotation.cpu", (after.cpu - before.cpu) / rounds / size.remotes, "s")
    growth(results, "rotation", rounds * size.remotes, before, trimmed)
    results.add("watchers.rotation.process.memory", after.resident / 1e6, "MB", goal=200)
    results.add("watchers.rotation.process.memory.peak", after.peak / 1e6, "MB")
    results.add("watchers.rotation.revisions", after.revision - before.revision, "revisions", goal=0)


# -- from a change to ztunnels


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


PARTS = {"registered": registered, "served": served}


def measure(size: str, parts: Collection[str]) -> None:
    """Run parts and print their figures."""
    results = Results("watchers", size)
    results.add("machine.load.before", os.getloadavg()[0], "processes")
    results.add("machine.reference.before", reference(), "ms")
    with ApiServers() as servers:
        if not servers.compiled:
            print("# no Go: the API servers are those of the tests, in Python, and take CPU time from what is measured")
        some = Mesh(servers, SIZES[size])
        for part in parts:
            PARTS[part](some, results)
    results.add("machine.load.after", os.getloadavg()[0], "processes")
    results.add("machine.reference.after", reference(), "ms")
    results.save()


def main() -> None:
    """All parts, or the one that is named."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", choices=sorted(SIZES), default="small")
    arguments.add_argument("--part", choices=sorted(PARTS))
    given = arguments.parse_args()
    measure(given.size, [given.part] if given.part else list(PARTS))


if __name__ == "__main__":
    main()
