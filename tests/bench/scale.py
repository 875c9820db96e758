"""A thousand ztunnels: they join at once, hear of one change, and come back naming what they hold; and a flood.

`python -m tests.bench.scale --size small|full` measures Isthmus and, where it can be had, istiod beside it: the same
API servers, the same clients, one after the other. Home and 10 remote clusters have 300 global services each, which is
3,611 names for each ztunnel. The ztunnels connect over TLS, each with a token of its own; Isthmus knows the tokens by
its file of identities, istiod has its API server review them.

What is measured: all join cold; an endpoint goes or comes back; all connections end and are opened again at once, the
ztunnels naming what they hold, of which nothing has changed; and how soon a few ztunnels that join have their first
answers, with and without a thousand connections of strangers (`tests.bench.crowd.flood`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import msgspec

from tests.bench import beside
from tests.bench.api_servers import ApiServers
from tests.bench.beside import HOME, Rig, latencies
from tests.bench.crowd import Arrival, Crowd, flood, token_of
from tests.bench.fleet import Fleet
from tests.bench.memory import used
from tests.bench.peers import ControlPlane, Isthmus, Starter, peers, quiet
from tests.bench.results import Results, Stolen, quantile, reference
from tests.kit import manifests

GAP = 1.0
"""Seconds between two changes: the clients have two cores between them, and the control plane."""


class Size(msgspec.Struct, frozen=True):
    """How much is measured. `honest` ztunnels join `rounds` times without and with a flood of `strangers`."""

    mesh: beside.Size
    clients: int
    changes: int
    honest: int
    rounds: int
    strangers: int
    calm: float


SIZES = {
    "small": Size(
        beside.Size(2, 30, 60, seconds=0, rest=0, pause=0, joins=0, clients=0),
        clients=60,
        changes=2,
        honest=10,
        rounds=2,
        strangers=60,
        calm=0.5,
    ),
    "full": Size(
        beside.Size(10, 300, 300, seconds=0, rest=0, pause=0, joins=0, clients=0),
        clients=1000,
        changes=10,
        honest=50,
        rounds=6,
        strangers=1000,
        calm=1.5,
    ),
}

Figures = dict[str, float]


class Measured:
    """One control plane, from its start to its end."""

    def __init__(self, rig: Rig, start: Starter, size: Size) -> None:
        self._rig = rig
        self._start = start
        self._size = size
        self.figures: Figures = {}

    def run(self) -> Figures:
        """Everything that is measured of it."""
        rig, size = self._rig, self._size
        rig.register(*rig.remotes)
        with self._start(HOME[0], rig.home()) as plane:
            plane.ready()
            with Fleet(plane.xds, 1, HOME) as fleet:
                assert fleet.holds(rig.networks, rig.size.services, 120), "not every cluster was told"
            with Crowd(plane.secure, size.honest, HOME) as crowd:
                self._beside_a_flood(plane, crowd)
            with Crowd(plane.secure, size.clients, HOME) as crowd:
                self._joining(plane, crowd)
                self._changing(plane, crowd)
                self._coming_back(plane, crowd)
        rig.forget(*rig.remotes)
        return self.figures

    def _quiet(self, plane: ControlPlane) -> float:
        """Seconds of CPU that it has used once nothing is under way."""
        return quiet(plane, seconds=self._size.calm).cpu

    def _joining(self, plane: ControlPlane, crowd: Crowd) -> None:
        before, memory = self._quiet(plane), used(plane.pid).resident
        arrivals = crowd.arrive()
        cpu = self._quiet(plane) - before
        told = _seconds(arrivals)
        self.figures["join.all_told"] = max(told)
        self.figures["join.median_told"] = quantile(told, 0.5)
        self.figures["join.cpu"] = 1e3 * cpu / len(arrivals)
        self.figures["join.refused"] = sum(one.refused for one in arrivals)
        self.figures["join.resources"] = quantile([float(one.resources) for one in arrivals], 0.5)
        self.figures["join.bytes"] = quantile([one.size / 1e6 for one in arrivals], 0.5)
        self.figures["join.memory.most"] = (_most(plane.pid) - memory) / 1e6
        self.figures["join.memory.connected"] = (used(plane.pid).resident - memory) / 1e3 / len(arrivals)

    def _changing(self, plane: ControlPlane, crowd: Crowd) -> None:
        """An endpoint goes or comes back at a time; every ztunnel is told."""
        rig, changes = self._rig, self._size.changes
        crowd.heard()
        before = used(plane.pid).cpu
        events = rig.events(changes)
        at = rig.happen(events, [GAP] * changes)
        cpu = self._quiet(plane) - before
        heard = crowd.heard()
        first, median, last = [], [], []
        for moment, event in zip(at, events, strict=True):
            some = [math.inf if one is None else one for one in latencies([moment], [event], heard)]
            first.append(min(some))
            median.append(quantile(some, 0.5))
            last.append(max(some))
        self.figures["change.first"] = quantile(first, 0.5)
        self.figures["change.median"] = quantile(median, 0.5)
        self.figures["change.last"] = quantile(last, 0.5)
        self.figures["change.cpu"] = 1e3 * cpu / changes
        rig.restore()
        self._quiet(plane)

    def _coming_back(self, plane: ControlPlane, crowd: Crowd) -> None:
        """All connections end and are opened again, the ztunnels naming what they hold; as it was when they joined."""
        before = used(plane.pid).cpu
        arrivals = crowd.arrive(naming=True)
        cpu = self._quiet(plane) - before
        told = _seconds(arrivals)
        self.figures["come_back.resent"] = sum(one.resources for one in arrivals)
        self.figures["come_back.cpu"] = cpu
        self.figures["come_back.all_told"] = max(told)
        self.figures["come_back.median_told"] = quantile(told, 0.5)
        self.figures["come_back.refused"] = sum(one.refused for one in arrivals)
        self.figures["come_back.bytes"] = sum(one.size for one in arrivals) / len(arrivals)

    def _beside_a_flood(self, plane: ControlPlane, crowd: Crowd) -> None:
        """How soon some ztunnels are served that join again and again, first by themselves."""
        size = self._size
        crowd.arrive()
        alone = self._rounds(crowd)
        before = used(plane.pid)
        with flood(plane.secure, size.strangers) as opened:
            end = time.monotonic() + 30
            while opened() < size.strangers and time.monotonic() < end:
                time.sleep(0.1)
            began, cpu = time.monotonic(), used(plane.pid).cpu
            beside_strangers = self._rounds(crowd)
            spent = time.monotonic() - began
            self.figures["flood.cpu"] = 100 * (used(plane.pid).cpu - cpu) / spent
            self.figures["flood.opened"] = opened()
            self.figures["flood.memory"] = (used(plane.pid).resident - before.resident) / 1e6
        crowd.leave()
        for name, told in (("without", alone), ("with", beside_strangers)):
            self.figures[f"flood.{name}.p50"] = quantile(told, 0.5)
            self.figures[f"flood.{name}.p99"] = quantile(told, 0.99)
        self.figures["flood.times"] = quantile(beside_strangers, 0.99) / quantile(alone, 0.99)

    def _rounds(self, crowd: Crowd) -> list[float]:
        some: list[float] = []
        for _ in range(self._size.rounds):
            crowd.leave()
            time.sleep(0.5)
            some += _seconds(crowd.arrive())
        return some


def _seconds(arrivals: Sequence[Arrival]) -> list[float]:
    """How long each took, from when the first of them began; infinite for those never served."""
    began = min(one.began for one in arrivals)
    return [beside.seconds(began, one.told) for one in arrivals]


def _most(pid: int) -> int:
    """The most bytes that a process ever had in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


UNITS = {
    **{f"{which}.{one}_told": "s" for which in ("join", "come_back") for one in ("all", "median")},
    **{f"{which}.refused": "times" for which in ("join", "come_back")},
    "join.cpu": "ms each",
    "join.resources": "resources each",
    "join.bytes": "MB each",
    "join.memory.most": "MB",
    "join.memory.connected": "KB each",
    **{f"change.{one}": "ms" for one in ("first", "median", "last", "cpu")},
    "come_back.resent": "resources",
    "come_back.cpu": "s",
    "come_back.bytes": "bytes each",
    "flood.cpu": "% of a core",
    "flood.opened": "connections",
    "flood.memory": "MB",
    **{f"flood.{which}.{one}": "s" for which in ("without", "with") for one in ("p50", "p99")},
    "flood.times": "times",
}


def goals(size: Size) -> dict[str, float]:
    """The bounds; that of CPU is of a thousand."""
    return {"come_back.resent": 0.0, "come_back.cpu": 4.0 * size.clients / 1000, "flood.times": 2.0}


def with_identities(path: Path, count: int) -> Starter:
    """Isthmus, told whose tokens those of so many ztunnels are."""
    of = "spiffe://cluster.local/ns/istio-system/sa/ztunnel"
    known = {token_of(n): {"identity": of, "pod": f"ztunnel-{n}", "node": "node-0"} for n in range(count)}
    path.write_text(json.dumps(known))

    def start(cluster: str, kubeconfig: bytes, *, file: Path) -> AbstractContextManager[ControlPlane]:
        return Isthmus(cluster, kubeconfig, "--identities", str(file))

    return partial(start, file=path)


def measure(size: str) -> None:
    """Print the figures."""
    results, given, stolen = Results("scale", size), SIZES[size], Stolen()
    results.add("machine.load.before", os.getloadavg()[0], "processes")
    results.add("machine.reference.before", reference(), "ms")
    started = peers(build=size == "full")
    measured = {}
    with ApiServers(protobuf=True) as servers, tempfile.TemporaryDirectory() as scratch:
        started["isthmus"] = with_identities(Path(scratch, "identities"), given.clients)
        rig = Rig(servers, given.mesh)
        servers.put(HOME[0], manifests.pod("istio-system/ztunnel-0", "10.250.0.1", account="ztunnel", node="node-0"))
        for name, start in started.items():
            measured[name] = Measured(rig, start, given).run()
    peer = measured.get("istiod", {})
    for name, value in measured["isthmus"].items():
        results.add(f"scale.{name}", value, UNITS[name], goal=goals(given).get(name), peer=peer.get(name))
    results.add("machine.stolen", stolen.percent(), "% of the time")
    results.add("machine.load.after", os.getloadavg()[0], "processes")
    results.add("machine.reference.after", reference(), "ms")
    results.save()


def main() -> None:
    """Everything."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", choices=sorted(SIZES), default="small")
    measure(arguments.parse_args().size)


if __name__ == "__main__":
    main()
