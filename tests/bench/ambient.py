"""What the whole ambient registry costs: one endpoint of ten clusters, and ten thousand entries of home.

`python -m tests.bench.ambient --size small|full` measures Isthmus and, where it can be had, istiod beside it: the same
API servers, the same ztunnels, one after the other. Part `remotes`: home and 10 remote clusters of 300 services and
4,000 endpoints, in which one endpoint goes or comes back at a time (what else they cost is in tests.bench.beside).
Parts `listed` and `selected`: the worlds of tests.bench.entries, from the start of the process to a change that every
workload is told of. Changes come one at a time, so far apart that each is told before the next.

The latency of a change counts from its write until a ztunnel has everything that is to be told of it. CPU is that of
the control plane's process, bytes those of responses with addresses.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from tests.bench import beside, entries
from tests.bench.api_servers import ApiServers
from tests.bench.beside import HOME, Rig, latencies
from tests.bench.entries import Change, Entries, Listed, Selected
from tests.bench.fleet import Fleet, Heard
from tests.bench.memory import used
from tests.bench.peers import ControlPlane, Starter, peers, quiet
from tests.bench.results import Results, Stolen, quantile, reference

GAP = 0.35
"""Seconds between two changes: istiod waits a tenth of a second for more, and longer if more comes."""


class Size(msgspec.Struct, frozen=True):
    """How much is measured. `pushes` is how often a change concerns every workload, `calm` how long nothing is under
    way before what comes next.
    """

    mesh: beside.Size
    services: int
    changes: int
    pushes: int
    clients: int
    calm: float


SIZES = {
    "small": Size(beside.SIZES["small"], services=300, changes=3, pushes=1, clients=3, calm=0.5),
    "full": Size(beside.SIZES["full"], services=10_000, changes=30, pushes=3, clients=10, calm=1.5),
}

PATIENCE = 20
"""Seconds that are waited for what was not told although nothing is under way: on a busy machine that only seems so."""

Figures = dict[str, float]


def told(at: Sequence[int], changes: Sequence[Change], heard: Heard) -> list[float]:
    """Milliseconds of every change at every client; infinite if something of it was not told."""
    some = []
    for each in heard:
        when: dict[str, list[int]] = {}
        for receipt in each:
            for name in receipt.names:
                when.setdefault(entries.told_name(name), []).append(receipt.at)
        for moment, change in zip(at, changes, strict=True):
            last = max(_first(when.get(name, []), moment) for name in change.told)
            some.append((last - moment) / 1e6)
    return some


def _first(times: Sequence[int], since: int) -> float:
    return next((one for one in times if one >= since), math.inf)


class Measured:
    """One control plane on one world of entries."""

    def __init__(self, servers: ApiServers, start: Starter, world: Entries, size: Size) -> None:
        self._servers = servers
        self._start = start
        self._world = world
        self._size = size
        self._strict = False
        self.figures: Figures = {}

    def run(self) -> Figures:
        """From its start on."""
        world, size = self._world, self._size
        began = time.monotonic()
        with self._start(HOME[0], self._servers.kubeconfig(HOME[0])) as plane:
            plane.ready()
            self.figures["start.ready"] = time.monotonic() - began
            self.figures["start.cpu"] = self._quiet(plane)
            with Fleet(plane.xds, 1, HOME) as fleet:
                self._first_answer(plane, fleet)
                for place, (kind, made) in enumerate(
                    {"endpoint": world.endpoint, "service": world.service, "policy": world.policy}.items()
                ):
                    # Each kind changes services that no other does.
                    numbers = range(place * size.changes, (place + 1) * size.changes)
                    self._changes(plane, fleet, kind, [made(number) for number in numbers])
                self._pushes(plane, fleet, "full_push")
            with Fleet(plane.xds, size.clients, HOME) as fleet:
                fleet.joined()
                self._quiet(plane)
                self._pushes(plane, fleet, f"full_push_to_{size.clients}")
            self.figures["memory"] = used(plane.pid).resident / 1e6
        return self.figures

    def _quiet(self, plane: ControlPlane) -> float:
        """Seconds of CPU that it has used once nothing is under way."""
        return quiet(plane, seconds=self._size.calm).cpu

    def _first_answer(self, plane: ControlPlane, fleet: Fleet) -> None:
        before = used(plane.pid).cpu
        fleet.joined()
        [wall], heard = self._told(fleet, [fleet.streams()[0].began], [Change({}, self._world.names())])
        self.figures["first_answer.cpu"] = self._quiet(plane) - before
        self.figures["first_answer.told"] = wall / 1e3
        self.figures["first_answer.bytes"] = sum(receipt.size for receipt in heard[0]) / 1e6

    def _told(self, fleet: Fleet, at: Sequence[int], changes: Sequence[Change]) -> tuple[list[float], Heard]:
        """The latencies of changes, once all are told, and what was."""
        heard = fleet.heard()
        end = time.monotonic() + PATIENCE
        while math.inf in (some := told(at, changes, heard)) and time.monotonic() < end:
            time.sleep(1)
            heard = [[*before, *after] for before, after in zip(heard, fleet.heard(), strict=True)]
        return some, heard

    def _changes(self, plane: ControlPlane, fleet: Fleet, name: str, changes: Sequence[Change]) -> None:
        """They happen, one at a time, after a time of quiet."""
        fleet.heard()
        before = used(plane.pid).cpu
        writes = [(HOME[0], change.manifest) for change in changes]
        at = self._servers.change(writes, [GAP] * len(changes))
        some, heard = self._told(fleet, at, changes)
        spent = self._quiet(plane) - before
        self.figures[f"{name}.p50"] = quantile(some, 0.5)
        self.figures[f"{name}.p99"] = quantile(some, 0.99)
        self.figures[f"{name}.cpu"] = 1e3 * spent / len(changes)
        self.figures[f"{name}.bytes"] = sum(receipt.size for receipt in heard[0]) / len(changes)

    def _pushes(self, plane: ControlPlane, fleet: Fleet, name: str) -> None:
        """Every workload is told another set of policies, again and again, after a time of quiet."""
        some, spent, sizes = [], [], []
        for _ in range(self._size.pushes):
            self._strict = not self._strict
            change = Change(entries.strict(on=self._strict), self._world.names())
            fleet.heard()
            before = used(plane.pid).cpu
            at = self._servers.change([(HOME[0], change.manifest)])
            latency, heard = self._told(fleet, at, [change])
            some += latency
            spent.append(self._quiet(plane) - before)
            sizes.append(sum(receipt.size for receipt in heard[0]) / 1e6)
        self.figures[f"{name}.p50"] = quantile(some, 0.5) / 1e3
        self.figures[f"{name}.longest"] = max(some) / 1e3
        self.figures[f"{name}.cpu"] = quantile(spent, 0.5)
        self.figures[f"{name}.bytes"] = quantile(sizes, 0.5)


def one_endpoint(rig: Rig, start: Starter, size: Size) -> Figures:
    """Of one control plane, ten clusters joined: an endpoint that goes or comes back at a time."""
    rig.register(*rig.remotes)
    with start(HOME[0], rig.home()) as plane, Fleet(plane.xds, 1, HOME) as fleet:
        plane.ready()
        assert fleet.holds(rig.networks, rig.size.services, 120), "not every cluster was told"
        before = quiet(plane, seconds=size.calm)
        fleet.heard()
        events = rig.events(size.changes)
        at = rig.happen(events, [GAP] * size.changes)
        after, heard = quiet(plane, seconds=size.calm), fleet.heard()
        some = [math.inf if one is None else one for one in latencies(at, events, heard)]
        rig.restore()
    rig.forget(*rig.remotes)
    return {
        "endpoint.p50": quantile(some, 0.5),
        "endpoint.p99": quantile(some, 0.99),
        "endpoint.cpu": 1e3 * (after.cpu - before.cpu) / size.changes,
        "endpoint.bytes": sum(receipt.size for receipt in heard[0]) / size.changes,
        "memory": after.resident / 1e6,
    }


UNITS = {
    "start.ready": "s",
    "start.cpu": "s",
    "first_answer.cpu": "s",
    "first_answer.told": "s",
    "first_answer.bytes": "MB",
    "memory": "MB",
    **{f"{one}.{which}": "ms" for one in ("endpoint", "service", "policy") for which in ("p50", "p99", "cpu")},
    **{f"{one}.bytes": "bytes" for one in ("endpoint", "service", "policy")},
    **{f"full_push.{which}": "s" for which in ("p50", "longest", "cpu")},
    "full_push.bytes": "MB",
}
GOALS = {"start.ready": 3.0, "full_push.p50": 1.5, "endpoint.p50": 5.0, "service.p50": 10.0}


def entries_of(world: Entries, size: Size, started: dict[str, Starter]) -> dict[str, Figures]:
    """The figures of each control plane on a world of entries."""
    measured = {}
    for name, start in started.items():
        with ApiServers(protobuf=True) as servers:
            servers.start(HOME[0], world.objects())
            measured[name] = Measured(servers, start, world, size).run()
    return measured


def remotes(size: Size, started: dict[str, Starter]) -> dict[str, Figures]:
    """The same on a mesh of clusters."""
    with ApiServers(protobuf=True) as servers:
        rig = Rig(servers, size.mesh)
        return {name: one_endpoint(rig, start, size) for name, start in started.items()}


PARTS: dict[str, Callable[[Size, dict[str, Starter]], dict[str, Figures]]] = {
    "remotes": remotes,
    "listed": lambda size, started: entries_of(Listed(size.services), size, started),
    "selected": lambda size, started: entries_of(Selected(size.services // 10), size, started),
}


def measure(size: str, parts: Collection[str]) -> None:
    """Run parts and print their figures."""
    results = Results("ambient", size)
    stolen = Stolen()
    results.add("machine.load.before", os.getloadavg()[0], "processes")
    results.add("machine.reference.before", reference(), "ms")
    started = peers(build=size == "full")
    for part in parts:
        measured = PARTS[part](SIZES[size], started)
        peer = measured.get("istiod", {})
        for name, value in measured["isthmus"].items():
            kind = name.replace(f"_to_{SIZES[size].clients}", "")
            results.add(f"ambient.{part}.{name}", value, UNITS[kind], goal=GOALS.get(name), peer=peer.get(name))
    results.add("machine.stolen", stolen.percent(), "% of the time")
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
