"""Weather for a control plane: clusters that change, break, leave and come back, and proxies that come and go.

`python -m tests.bench.soak --seconds N`. A control plane runs in a process of its own on directories of manifests,
which are rewritten at random, while ztunnel stand-ins lose their streams and start anew. After a first spell the
manifests are put back and everything is counted; after the rest they are put back again, and then nothing may be left
behind: the same content at every client as at the very beginning, the same graph, tasks and files, hardly more memory.
The exit code is 1 if something is; the seed of the weather is printed and can be given.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from tests.bench import mesh
from tests.bench.memory import resident
from tests.bench.plane import Commands, process, received, serve
from tests.bench.results import Results
from tests.bench.stream import Stream
from tests.kit import manifests
from tests.kit.manifests import Manifest
from tests.kit.ztunnel import ADDRESS_TYPE, AUTHORIZATION_TYPE, ZtunnelMachine
from tests.kit.ztunnel.grpc_transport import METHOD

CLUSTERS, SERVICES, PODS = 4, 30, 300
CLIENTS = 8
FIRST_SPELL = 0.25
"""The share of the time before everything is counted for the first time: caches and rings fill."""
CALM = 30.0
"""Seconds in which everybody must have the content again once nothing changes any more."""
GROWTH = 6.0
"""MB that memory may have grown: what is read and sent fills a ring of 8,192 records, some 3 MB, whatever the size."""

Content = dict[str, dict[str, str]]
"""Versions by type URL and name."""


class Counts(msgspec.Struct):
    """What there is in the control plane's process. `graph` are the sizes of all that the graph keeps, by kind of it
    and collection; `tables` rows by table; `bytes` those in memory; `revisions` how often content was published.
    """

    bytes: int
    revisions: int
    tasks: int
    files: int
    graph: dict[str, int]
    tables: dict[str, int]


# -- the control plane's process


class Counting(Commands):
    """Tells what is there."""

    def count(self) -> None:
        """Everything that could be left behind."""
        state = self.plane.pipeline.graph.state
        names = [collection.name for collection in self.plane.pipeline.graph.collections]
        sizes: Counter[str] = Counter({"findings": len(state.findings), "subjects": len(state.subjects)})
        for column in state.COLUMNS:
            for name, held in zip(names, getattr(state, column), strict=True):
                inner = sum(len(one) for one in held.values() if isinstance(one, dict | tuple))
                sizes[f"{column} of {name}"] += len(held) + inner
        tables = self.plane.tables
        counts = Counts(
            bytes=resident(trimmed=True),
            revisions=tables.resources.revision,
            tasks=len(asyncio.all_tasks()),
            files=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names alone
            graph=dict(sizes),
            tables={name: len(getattr(tables, name)) for name in tables.__struct_fields__},
        )
        self.pipe.send(counts)

    def content(self) -> None:
        """What ztunnels are to have."""
        from aggregator.views import ztunnel

        content: Content = {}
        for view in ztunnel.VIEWS:
            rows = self.plane.tables.resources.scan((view.name,))
            content[view.type_url] = {name: resource.version for (_, name), resource in rows}
        self.pipe.send(content)


def control_plane(pipe: Connection, sources: list[tuple[str, Path]]) -> None:
    """The process of the control plane."""
    serve(pipe, sources, Counting)


# -- what changes


class Directories:
    """The clusters' manifests as files, one for each service and its pods: as they were first, and as they are."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self._chance = chance
        self.sources = [(mesh.cluster_name(number), root / str(number)) for number in range(CLUSTERS)]
        self._first: dict[Path, list[Manifest]] = {}
        self._differing: set[Path] = set()
        for number, (_, directory) in enumerate(self.sources):
            directory.mkdir()
            self._first[directory / "infrastructure.json"] = list(mesh.infrastructure(number))
            for service in range(SERVICES):
                pods = [mesh.pod(number, SERVICES, one) for one in range(service, PODS, SERVICES)]
                endpoints = mesh.endpoint_slice(number, SERVICES, PODS, service)
                self._first[directory / f"s{service}.json"] = [mesh.service(number, service), endpoints, *pods]
        for path, objects in self._first.items():
            _write(path, objects)

    def change(self) -> None:
        """Something happens."""
        chance = self._chance
        events: list[tuple[Callable[[], None], int]] = [
            (self._scale, 30),
            (self._rename, 10),
            (self._withdraw, 10),
            (self._break, 5),
            (self._touch, 5),
            (self._move_gateway, 5),
            (self._leave, 1),
            (self._return, 4),
        ]
        happens = chance.choices([event for event, _ in events], [weight for _, weight in events])[0]
        happens()

    def restore(self) -> None:
        """Everything as it was first."""
        for path in sorted(self._differing):
            _write(path, self._first[path])
        self._differing.clear()

    def _service_file(self) -> Path:
        return self._chance.choice([path for path in self._first if path.name != "infrastructure.json"])

    def _put(self, path: Path, objects: Iterable[Manifest]) -> None:
        _write(path, objects)
        self._differing.add(path)

    def _scale(self) -> None:
        """Some pods are gone, others not ready."""
        path = self._service_file()
        service, endpoints, *pods = self._first[path]
        kept = [pod for pod in pods if self._chance.random() < 0.8]
        self._put(path, [service, endpoints, *(self._weakened(pod) for pod in kept)])

    def _weakened(self, pod: Manifest) -> Manifest:
        ready = "True" if self._chance.random() < 0.7 else "False"
        return {**pod, "status": {**pod["status"], "conditions": [{"type": "Ready", "status": ready}]}}

    def _rename(self) -> None:
        """New pods in the place of the old, as after a rollout."""
        path = self._service_file()
        service, endpoints, *pods = self._first[path]
        suffix = f"{self._chance.randrange(1 << 32):08x}"
        renamed = [
            {**pod, "metadata": {**pod["metadata"], "name": f"{pod['metadata']['name']}-{suffix}"}} for pod in pods
        ]
        self._put(path, [service, endpoints, *renamed])

    def _withdraw(self) -> None:
        """The service is deleted, or no longer shared."""
        path = self._service_file()
        service, *others = self._first[path]
        local = {**service, "metadata": {**service["metadata"], "labels": {}}}
        self._put(path, self._chance.choice([others, [local, *others], []]))

    def _break(self) -> None:
        """A file is written halfway."""
        path = self._service_file()
        data = _list(self._first[path])
        path.write_bytes(data[: self._chance.randrange(len(data))])
        self._differing.add(path)

    def _touch(self) -> None:
        """All files of a cluster are written anew with what they hold already."""
        _, directory = self._chance.choice(self.sources)
        for path in sorted(self._first):
            if path.parent == directory and path.exists():
                staged = path.with_name(f".{path.name}.new")
                staged.write_bytes(path.read_bytes())
                staged.replace(path)

    def _move_gateway(self) -> None:
        """An east-west gateway has another address, or none; a cluster may be in another network."""
        number = self._chance.randrange(1, CLUSTERS)
        path = self.sources[number][1] / "infrastructure.json"
        objects = [one for one in self._first[path] if one["kind"] not in ("Gateway", "Namespace")]
        network = self._chance.choice((f"n{number}", f"n{number}", "n0", ""))
        objects += [manifests.namespace("istio-system", network=network), manifests.namespace("shop")]
        if self._chance.random() < 0.8:
            address = f"192.0.2.{self._chance.randrange(1, 250)}"
            objects.append(manifests.east_west_gateway("istio-system/edge", address, network=f"n{number}"))
        self._put(path, objects)

    def _leave(self) -> None:
        """A remote cluster has nothing any more."""
        _, directory = self._chance.choice(self.sources[1:])
        for path in self._first:
            if path.parent == directory:
                path.unlink(missing_ok=True)
                self._differing.add(path)

    def _return(self) -> None:
        """Some of what differs is as it was first."""
        for path in self._chance.sample(sorted(self._differing), len(self._differing) // 2):
            _write(path, self._first[path])
            self._differing.discard(path)


def _list(objects: Iterable[Manifest]) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _write(path: Path, objects: Iterable[Manifest]) -> None:
    staged = path.with_name(f".{path.name}.new")
    staged.write_bytes(_list(objects))
    staged.replace(path)


class Proxy:
    """A ztunnel stand-in that is always on a stream, or about to be."""

    def __init__(self, port: int) -> None:
        self.machine = ZtunnelMachine()
        self._port = port
        self._stream: Stream | None = None

    async def run(self) -> None:
        """Live for ever."""
        while True:
            stream = self._stream = Stream(METHOD, self._hear)
            await asyncio.get_running_loop().create_connection(lambda: stream, "127.0.0.1", self._port)  # noqa: B023
            for request in self.machine.open_stream():
                stream.send(request)
            await stream.ended.wait()
            stream.close()

    def _hear(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.send(self.machine.receive(data))

    def reconnect(self) -> None:
        """Lose the connection."""
        if self._stream is not None:
            self._stream.close()

    def restart(self) -> None:
        """Lose the connection and all that was learned."""
        self.machine = ZtunnelMachine()
        self.reconnect()

    @property
    def held(self) -> Content:
        """What it has."""
        return {kind: dict(self.machine.held(kind)) for kind in (ADDRESS_TYPE, AUTHORIZATION_TYPE)}


# -- the measuring process


class Soak:
    """The weather, and what it leaves."""

    def __init__(
        self, directories: Directories, plane: Connection, proxies: list[Proxy], chance: random.Random
    ) -> None:
        self._directories = directories
        self._plane = plane
        self._proxies = proxies
        self._chance = chance
        self.changes = self.reconnects = 0

    async def _ask(self, command: str) -> Any:
        self._plane.send((command,))
        return await asyncio.to_thread(received, self._plane)

    async def spell(self, seconds: float) -> None:
        """Changes and reconnections for that long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.to_thread(self._directories.change)
            self.changes += 1
            if self._chance.random() < 0.3:
                proxy = self._chance.choice(self._proxies)
                (proxy.restart if self._chance.random() < 0.2 else proxy.reconnect)()
                self.reconnects += 1
            await asyncio.sleep(self._chance.expovariate(20))

    async def first_content(self) -> Content:
        """What everybody has before anything has changed."""
        content: Content = await self._ask("content")
        if not await self._calm(content):
            raise RuntimeError("the proxies do not get the content in the first place")
        return content

    async def settle(self, content: Content) -> list[str]:
        """Put everything back and wait for everybody to have it; what is wrong if somebody has not."""
        await asyncio.to_thread(self._directories.restore)
        if await self._calm(content):
            return []
        wrong = [f"the control plane {_difference(content, await self._ask('content'))}"]
        wrong += [f"proxy {number} {_difference(content, one.held)}" for number, one in enumerate(self._proxies)]
        return [one for one in wrong if not one.endswith(" equal")]

    async def _calm(self, content: Content) -> bool:
        end = time.monotonic() + CALM
        while time.monotonic() < end:
            if await self._ask("content") == content and all(one.held == content for one in self._proxies):
                return True
            await asyncio.sleep(0.1)
        return False

    async def count(self) -> Counts:
        """What there is, once it does not change from one second to the next: streams take a moment to be gone."""
        last: Counts = await self._ask("count")
        for _ in range(10):
            await asyncio.sleep(1)
            now: Counts = await self._ask("count")
            if (now.tasks, now.files, now.graph) == (last.tasks, last.files, last.graph):
                return now
            last = now
        return last

    def oddities(self) -> list[str]:
        """What proxies took in silence and should not have been sent."""
        return sorted({str(oddity) for one in self._proxies for oddity in one.machine.oddities})


def _difference(wanted: Content, held: Content) -> str:
    """In words."""
    said = []
    for kind, versions in wanted.items():
        own = held.get(kind, {})
        missing, extra = versions.keys() - own.keys(), own.keys() - versions.keys()
        other = [name for name in versions.keys() & own.keys() if versions[name] != own[name]]
        for word, names in (("lacks", missing), ("has besides", extra), ("has other versions of", other)):
            if names:
                said.append(f"{word} {len(names)} of {kind.rpartition('.')[2]}: {', '.join(sorted(names)[:3])}")
    return "; ".join(said) or "is equal"


async def soak(seconds: float, chance: random.Random, results: Results) -> list[str]:
    """Everything that is wrong after that many seconds."""
    with tempfile.TemporaryDirectory(prefix="isthmus-soak-") as root:
        directories = Directories(Path(root), chance)
        with process(control_plane, directories.sources) as plane:
            port = await asyncio.to_thread(received, plane)
            proxies = [Proxy(port) for _ in range(CLIENTS)]
            async with asyncio.TaskGroup() as tasks:
                living = [tasks.create_task(proxy.run()) for proxy in proxies]
                weather = Soak(directories, plane, proxies, chance)
                content = await weather.first_content()
                await weather.spell(FIRST_SPELL * seconds)
                wrong = await weather.settle(content)
                before = await weather.count()
                await weather.spell((1 - FIRST_SPELL) * seconds)
                wrong += await weather.settle(content)
                after = await weather.count()
                for task in living:
                    task.cancel()
            plane.send(("stop",))
    return [*wrong, *weather.oddities(), *left_behind(before, after, weather, results)]


def left_behind(before: Counts, after: Counts, weather: Soak, results: Results) -> list[str]:
    """What there is more of, or less, in words; prints all figures."""
    growth = (after.bytes - before.bytes) / 1e6
    results.add("soak.changes", weather.changes, "changes")
    results.add("soak.revisions", after.revisions, "revisions")
    results.add("soak.reconnections", weather.reconnects, "streams")
    results.add("soak.memory", after.bytes / 1e6, "MB")
    results.add("soak.memory.growth", growth, "MB", goal=GROWTH)
    results.add("soak.tasks", after.tasks, "tasks", goal=before.tasks)
    results.add("soak.files", after.files, "files", goal=before.files)
    results.add("soak.graph", sum(after.graph.values()), "entries", goal=sum(before.graph.values()))
    results.add("soak.tables", sum(after.tables.values()), "rows", goal=sum(before.tables.values()))
    wrong = [f"memory grew by {growth:.1f} MB"] if growth > GROWTH else []
    return wrong + differing(before, after)


def differing(before: Counts, after: Counts) -> list[str]:
    """What there is more of than before, or less, in words."""
    pairs = [("tasks", before.tasks, after.tasks), ("files", before.files, after.files)]
    for old, new in ((before.graph, after.graph), (before.tables, after.tables)):
        pairs += [(name, old.get(name, 0), new.get(name, 0)) for name in sorted({*old, *new})]
    return [f"{name}: {old} before, {new} after" for name, old, new in pairs if old != new]


def main() -> int:
    """Run it; 1 if anything is left behind or wrong."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    given = arguments.parse_args()
    print(f"seed {given.seed}", flush=True)
    results = Results("soak", f"{given.seconds:g}s")
    wrong = asyncio.run(soak(given.seconds, random.Random(given.seed), results))
    results.save()
    for one in wrong:
        print(f"WRONG {one}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
