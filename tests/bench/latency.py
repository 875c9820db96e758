"""From an endpoint's change to every ztunnel: how soon, at what cost, and how long the loop is ever kept busy.

The control plane is a process of its own, started on directories as `isthmus run` would. Ten clients with a ztunnel's
habits (delta, all addresses, an acknowledgement for each response) are another; they reach it by gRPC over loopback,
the server's being the real one and theirs that of tests.bench.stream. This process sends changes at moments of its own,
whether or not the control plane keeps up, which writes each to its facts as a watcher would. All three write down times
of one clock (`time.monotonic_ns`), which are joined afterwards.

A change counts from the moment it was sent. Its pass published a revision; a client has it with the first response of
that revision or a later one. So a change that was superseded before it was sent counts by the newer one.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from tests.bench import mesh
from tests.bench.memory import resident
from tests.bench.plane import Commands, process, received, serve
from tests.bench.results import quantile
from tests.bench.stream import Stream
from tests.kit.ztunnel.grpc_transport import METHOD
from tests.kit.ztunnel.machine import ZtunnelMachine
from tests.kit.ztunnel.validation import ADDRESS_TYPE, AUTHORIZATION_TYPE
from watchers.facts.core import Pod
from watchers.facts.keys import ObjectKey
from watchers.sink import Cause
from xds import protos

if TYPE_CHECKING:
    from aggregator.app.main import ControlPlane

CLIENTS = 10
RATE = 100
"""Changes a second."""
BURST = 4000
"""Single changes in a burst."""
BURSTS = 5
QUIET = 2.0
"""Seconds between two runs, after which passes may take as much as they want again for a moment."""

Published: TypeAlias = tuple[int, tuple[str, ...], tuple[int, ...]]
"""A revision: its number, the names of its resources, the numbers of the changes that led to it (the newest 64)."""
Receipt: TypeAlias = tuple[int, int, int, tuple[str, ...]]
"""A response at a client: when, the revision it says it is of, its bytes, the names of its resources."""


class Change(Cause, frozen=True, gc=False):
    """The cause of one change, by its number."""

    number: int


class Run(msgspec.Struct):
    """What the control plane says of a time between `begin` and `end`: CPU and wall time in seconds.

    `block` and `block_cpu` are the longest step of the event loop, in seconds, by the clock and in CPU time; `slice` is
    the longest slice of a pass. `began_ns` is when the first change was written.
    """

    began_ns: int
    wall: float
    cpu: float
    block: float
    block_cpu: float
    slice: float
    resident: int
    passes: int
    published: list[Published]


# -- the control plane's process


class Steps:
    """The longest step of the event loop: everything that runs in it, whoever wrote it, is a handle that it calls.

    Watching costs a tenth of what a small step does, so it is off while CPU time and latencies are measured.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        """In seconds."""
        self.longest_cpu = 0.0
        """In seconds of CPU time of the loop's thread."""
        self._run: Any = asyncio.Handle._run

    def watch(self, *, on: bool) -> None:
        """Begin anew, or stop."""
        run = self._run
        self.longest = self.longest_cpu = 0.0

        def timed(handle: asyncio.Handle) -> None:
            cpu, clock = time.thread_time(), time.perf_counter()
            run(handle)
            self.longest = max(self.longest, time.perf_counter() - clock)
            self.longest_cpu = max(self.longest_cpu, time.thread_time() - cpu)

        setattr(asyncio.Handle, "_run", timed if on else run)  # noqa: B010 - a method is not to be assigned, says mypy


class Driver(Commands):
    """Does inside the control plane what the measuring process asks for."""

    def __init__(self, plane: ControlPlane, pipe: Connection, steps: Steps) -> None:
        from aggregator.views import ztunnel

        super().__init__(plane, pipe)
        self._steps = steps
        self._published: list[Published] = []
        self._passes = 0
        self._first_ns = 0
        self._last = 0
        self._reader = plane.records.reader()
        self._changes = plane.tables.resources.cursor(ztunnel.ADDRESSES.name, self._note, from_start=False)
        self._begin_ns, self._begin_cpu = time.monotonic_ns(), time.process_time()

    def ready(self) -> tuple[object, int, float, float, float]:
        """The port, when this is, CPU time since the start, and the longest step by the clock and in CPU time."""
        return super().ready(), time.monotonic_ns(), time.process_time(), self._steps.longest, self._steps.longest_cpu

    def _note(self) -> None:
        from aggregator.app.records import Pass

        batch = self._changes.take()
        passes = [cause for cause in batch.causes if isinstance(cause, Pass)]
        numbers = tuple(cause.number for one in passes for cause in one.causes if isinstance(cause, Change))
        self._published.append((batch.revision, tuple(name for _, name in batch.changes), numbers))

    def begin(self, watched: bool) -> None:
        """A run begins; `watched`: the loop's steps are."""
        self._published = []
        self._first_ns = 0
        self._steps.watch(on=watched)
        self._reader.take()
        self.plane.aggregator.longest_slice = 0.0
        self._passes = self.plane.pipeline.graph.passes
        self._begin_ns, self._begin_cpu = time.monotonic_ns(), time.process_time()

    def change(self, number: int, key: ObjectKey) -> None:
        """Turn the readiness of a pod."""
        if not self._first_ns:
            self._first_ns = time.monotonic_ns()
        self._last = number
        facts = self.plane.tables.facts
        pod = facts.get(key)
        assert isinstance(pod, Pod)
        turned = msgspec.structs.replace(pod, ready=not pod.ready)
        facts.apply([(key, turned)], Change(received=time.time_ns(), source="changes", objects=1, number=number))

    def burst(self, number: int, keys: list[ObjectKey]) -> None:
        """Turn the readiness of many pods, one by one, letting others work as a reader of a socket does."""

        async def write() -> None:
            for count, key in enumerate(keys):
                self.change(number + count, key)
                if count % 100 == 99:
                    await asyncio.sleep(0)
            await self._report()

        self.tasks.create_task(write())

    def end(self) -> None:
        """The run ends: tell of it once all changes are published."""
        self.tasks.create_task(self._report())

    async def _report(self) -> None:
        from aggregator.app.records import Pass

        taken: list[object] = []
        while not any(
            isinstance(cause, Change) and cause.number == self._last
            for one in taken
            if isinstance(one, Pass)
            for cause in one.causes
        ):
            await asyncio.sleep(0.01)
            taken = self._reader.take()
        run = Run(
            began_ns=self._first_ns,
            wall=(time.monotonic_ns() - self._begin_ns) / 1e9,
            cpu=time.process_time() - self._begin_cpu,
            block=self._steps.longest,
            block_cpu=self._steps.longest_cpu,
            slice=self.plane.aggregator.longest_slice,
            resident=resident(),
            passes=self.plane.pipeline.graph.passes - self._passes,
            published=self._published,
        )
        self.pipe.send(run)


def control_plane(pipe: Connection, sources: list[tuple[str, Path]]) -> None:
    """The process of the control plane; the first source is home."""
    steps = Steps()
    steps.watch(on=True)
    serve(pipe, sources, lambda plane, pipe: Driver(plane, pipe, steps))


# -- the clients' process


class Client:
    """One ztunnel: takes what it is sent, acknowledges it, and writes down when it came. Keeps no content."""

    def __init__(self, bell: asyncio.Event) -> None:
        self.revision = -1
        """Of the newest addresses it has."""
        self._bell = bell
        self._heard: list[tuple[int, bytes]] = []
        self._stream = Stream(METHOD, self._hear)

    async def run(self, port: int) -> None:
        """Talk until the server ends the stream, which raises RuntimeError."""
        await asyncio.get_running_loop().create_connection(lambda: self._stream, "127.0.0.1", port)
        for request in ZtunnelMachine().open_stream():
            self._stream.send(request)
        await self._stream.ended.wait()
        raise RuntimeError("the control plane has ended a stream")

    def receipts(self) -> list[Receipt]:
        """Of the addresses heard since last time."""
        heard, self._heard = self._heard, []
        return [_receipt(now, data) for now, data in heard]

    def _hear(self, data: bytes) -> None:
        now = time.monotonic_ns()
        # Nobody reads what came before the acknowledgement is out: a long response would delay the other clients'.
        kind = ADDRESS_TYPE if (place := data.rfind(_ADDRESSES)) >= 0 else AUTHORIZATION_TYPE
        place = place + len(_ADDRESSES) if place >= 0 else data.rfind(_AUTHORIZATIONS) + len(_AUTHORIZATIONS)
        answer = protos.envoy.service.discovery.v3.DeltaDiscoveryRequest()
        answer.type_url, answer.response_nonce = kind, data[place + 2 : place + 2 + data[place + 1]].decode()
        self._stream.send(answer.SerializeToString())
        if kind == ADDRESS_TYPE:
            self.revision = int(data[2 : 2 + data[1]])
            self._heard.append((now, data))
            self._bell.set()


def _type_field(type_url: str) -> bytes:
    """The field of a DeltaDiscoveryResponse before its nonce (another one than in the resources, which hold it too)."""
    return b"\x22" + bytes((len(type_url),)) + type_url.encode()


_ADDRESSES, _AUTHORIZATIONS = _type_field(ADDRESS_TYPE), _type_field(AUTHORIZATION_TYPE)


def _receipt(now: int, data: bytes) -> Receipt:
    response = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(data)
    names = tuple(resource.name for resource in response.resources)
    return now, int(response.system_version_info), len(data), names


def ztunnels(pipe: Connection, port: int) -> None:
    """The process of the clients. Tells when each has its first answer; then, for each revision it hears, its receipts
    since, once all clients have come so far.
    """

    async def serve() -> None:
        bell = asyncio.Event()
        clients = [Client(bell) for _ in range(CLIENTS)]
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 1000)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(client.run(port)) for client in clients]
            wanted: int | None = 0
            while wanted is not None:
                while any(client.revision < wanted for client in clients):
                    bell.clear()
                    await bell.wait()
                pipe.send([client.receipts() for client in clients])
                wanted = await asyncio.to_thread(pipe.recv)
            for each in running:
                each.cancel()

    asyncio.run(serve())


# -- the measuring process


class Bench:
    """A mesh that is served, and ways to change it."""

    def __init__(self, plane: Connection, clients: Connection, size: tuple[int, int, int]) -> None:
        self._plane = plane
        self._clients = clients
        self._clusters, self._services, self._pods = size
        self._chance = random.Random(7)
        self._number = 0

    def pods(self, count: int, clusters: int) -> list[tuple[int, int]]:
        """(cluster, number) of different pods of the first `clusters`, by chance."""
        chosen = self._chance.sample(range(clusters * self._pods), min(count, clusters * self._pods))
        return [divmod(one, self._pods) for one in chosen]

    def key(self, pod: tuple[int, int]) -> ObjectKey:
        """Key of such a pod."""
        return mesh.pod_key(pod[0], self._services, pod[1])

    def told(self, pod: tuple[int, int]) -> str:
        """Name of the resource that changes with it."""
        return mesh.told_name(pod[0], self._services, pod[1])

    def begin(self, *, watched: bool) -> None:
        """A run begins, in quiet: no pass is under way or paused for."""
        time.sleep(QUIET)
        self._plane.send(("begin", watched))

    def result(self) -> tuple[Run, list[list[Receipt]]]:
        """What came of a run: as the control plane tells it, and each client's receipts up to its last revision."""
        run: Run = received(self._plane)
        self._clients.send(max((revision for revision, _, _ in run.published), default=0))
        return run, received(self._clients)

    def steady(self, gaps: Sequence[float], *, watched: bool = False) -> dict[str, float]:
        """One change after each of `gaps` (seconds); latencies in ms, CPU in percent of a core, bytes per change."""
        sent = []
        self.begin(watched=watched)
        due = time.perf_counter()
        for number, gap in enumerate(gaps, self._number):
            pod = divmod(self._chance.randrange(self._clusters * self._pods), self._pods)
            message = ("change", number, self.key(pod))
            due += gap
            time.sleep(max(0.0, due - time.perf_counter()))
            sent.append((number, time.monotonic_ns(), self.told(pod)))
            self._plane.send(message)
        self._plane.send(("end",))
        self._number += len(gaps)
        run, receipts = self.result()
        latencies, without = joined(sent, run.published, receipts)
        return {
            "p50_ms": quantile(latencies, 0.5),
            "p99_ms": quantile(latencies, 0.99),
            "longest_ms": max(latencies),
            "cpu_percent": 100 * run.cpu / run.wall,
            "bytes": sum(size for each in receipts for _, _, size, _ in each) / len(receipts) / len(sent),
            "responses": sum(len(each) for each in receipts) / len(receipts) / len(sent),
            "passes": run.passes / len(sent),
            "without": without / len(sent),
            "block_ms": 1e3 * run.block,
            "block_cpu_ms": 1e3 * run.block_cpu,
            "resident_mb": run.resident / 1e6,
        }

    def burst(self, clusters: int, *, watched: bool = False) -> dict[str, float]:
        """Many changes at once in the first `clusters`; ms from the first one to the last receipt."""
        keys = [self.key(pod) for pod in self.pods(BURST, clusters)]
        self.begin(watched=watched)
        self._plane.send(("burst", self._number, keys))
        self._number += len(keys)
        run, receipts = self.result()
        last = max(revision for revision, _, _ in run.published)
        done = max(next(at for at, revision, _, _ in each if revision >= last) for each in receipts)
        return {
            "ms": (done - run.began_ns) / 1e6,
            "resources": sum(len(names) for each in receipts for _, _, _, names in each) / len(receipts),
            "passes": float(run.passes),
            "cpu_us": 1e6 * run.cpu / len(keys),
            "block_ms": 1e3 * run.block,
            "block_cpu_ms": 1e3 * run.block_cpu,
            "slice_ms": 1e3 * run.slice,
        }


def joined(
    sent: Sequence[tuple[int, int, str]], published: Sequence[Published], receipts: Sequence[Sequence[Receipt]]
) -> tuple[list[float], int]:
    """Milliseconds of every change (number, ns, name) at every client; how many changes led to nothing new.

    Those are changes that another took back before a pass took them, so that a service's endpoints are as before.
    """
    revision_of: dict[int, int] = {}
    names_of = {revision: frozenset(names) for revision, names, _ in published}
    for revision, _, numbers in published:
        for number in numbers:
            revision_of.setdefault(number, revision)
    latencies: list[float] = []
    without = 0
    revisions = [[revision for _, revision, _, _ in each] for each in receipts]
    for number, at, name in sent:
        wanted = revision_of.get(number)
        if wanted is None or name not in names_of[wanted]:
            without += 1
            continue
        for client, each in enumerate(receipts):
            when, _, _, names = each[bisect_left(revisions[client], wanted)]
            assert name in names, f"revision {wanted} changed {name}, which client {client} was not sent"
            latencies.append((when - at) / 1e6)
    assert without * 20 < len(sent), f"{without} of {len(sent)} changes led to nothing: too many to be by chance"
    return latencies, without


def measure(clusters: int, services: int, pods: int, *, seconds: float) -> dict[str, float]:
    """All figures, by name; `clusters` counts home."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as directory:
        sources = [(mesh.cluster_name(number), Path(directory, str(number))) for number in range(clusters)]
        for number, (_, path) in enumerate(sources):
            mesh.write(path, number, services, pods)
        started = time.monotonic_ns()
        with process(control_plane, sources) as plane:
            port, ready, cpu, block, block_cpu = received(plane)
            figures |= {"ready_s": (ready - started) / 1e9, "ready_cpu_s": cpu}
            figures |= {"ready_block_ms": 1e3 * block, "ready_block_cpu_ms": 1e3 * block_cpu}
            count = int(RATE * min(seconds, 10))
            figures["alone_us"] = alone(plane, clusters, services, pods, count)
            plane.send(("begin", True))
            with process(ztunnels, port) as clients:
                first: list[list[Receipt]] = received(clients)
                bench = Bench(plane, clients, (clusters, services, pods))
                plane.send(("change", -count - 1, mesh.pod_key(0, services, 0)))
                plane.send(("end",))
                run, _ = bench.result()
                figures |= {"answer_mb": first[0][0][2] / 1e6, "answer_cpu_ms": 1e3 * run.cpu / CLIENTS}
                figures |= {"answer_block_ms": 1e3 * run.block, "answer_block_cpu_ms": 1e3 * run.block_cpu}
                figures |= changes(bench, clusters, int(RATE * seconds))
                clients.send(None)
                plane.send(("stop",))
    return figures


def alone(plane: Connection, clusters: int, services: int, pods: int, count: int) -> float:
    """Microseconds of CPU for one change of a remote endpoint, with nobody to tell it to, one every 10 ms."""
    chance = random.Random(5)
    time.sleep(QUIET)
    plane.send(("begin", False))
    due = time.perf_counter()
    for number in range(count):
        due += 1 / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        key = mesh.pod_key(chance.randrange(1, clusters), services, chance.randrange(pods))
        plane.send(("change", number - count, key))
    plane.send(("end",))
    run: Run = received(plane)
    return 1e6 * run.cpu / count


def changes(bench: Bench, clusters: int, count: int) -> dict[str, float]:
    """`count` changes in each rhythm, then bursts."""
    chance = random.Random(11)
    figures: dict[str, float] = {}
    rhythms = {
        "even": [1 / RATE] * count,
        "random": [chance.expovariate(RATE) for _ in range(count)],
    }
    # Watched, and to warm up.
    watched = bench.steady(rhythms["random"][: 3 * RATE], watched=True)
    figures |= {f"steady_{name}": watched[name] for name in ("block_ms", "block_cpu_ms")}
    for rhythm, gaps in rhythms.items():
        measured = bench.steady(gaps)
        figures |= {f"{rhythm}_{name}": value for name, value in measured.items() if not name.startswith("block")}
    for where, within in (("home", 1), ("mesh", clusters)):
        steps = bench.burst(within, watched=True)
        bursts = [bench.burst(within) for _ in range(BURSTS)]
        figures |= {f"burst_{where}_{name}": quantile([one[name] for one in bursts], 0.5) for name in bursts[0]}
        figures |= {f"burst_{where}_{name}": steps[name] for name in ("block_ms", "block_cpu_ms")}
    return figures
