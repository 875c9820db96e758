"""Clusters that join a control plane, leave, join again, rotate their credentials: memory, CPU, what stays behind."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from tests.bench.plane import process, received
from tests.bench.results import Results, quantile
from tests.bench.told import Usage, asked, control_plane
from tests.bench.watched import Mesh, happen
from watchers.kubernetes.connection import OF_REMOTES

KINDS = len(OF_REMOTES)
"""Of so many a remote cluster is watched."""


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
            # Home's Services are told, some of them a second, who shares them now.
            told = asked(plane, "written")
            results.add("watchers.remotes.told_to_home.cpu", told.cpu - rest.cpu, "s")
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
