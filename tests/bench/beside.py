"""What remote clusters cost Isthmus and what they cost istiod: the same API servers, clients and events, one after the
other.

`beside` is a part of tests.bench.watchers and adds its figures to those: Isthmus' own, istiod's as its peer. Every
cluster is a network of its own whose east-west gateway others go by (two-tier). An event is an endpoint that goes with
its Pod, or comes back: the Pod is deleted or created, its EndpointSlice changed. It counts from the first of the two
writes, and has arrived with the first response at a ztunnel of home that names the way to that service through that
cluster's gateway. Both are told of clusters by Secrets of home and are watched from outside. What did not come about
within a minute is `inf`.
"""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from tests.bench import mesh
from tests.bench.api_servers import ApiServers, Write
from tests.bench.fleet import Fleet, Heard
from tests.bench.memory import Used, used
from tests.bench.peers import ControlPlane, Starter, cpu_during, peers, quiet
from tests.bench.results import Results, quantile
from tests.bench.watched import objects, wire
from tests.kit.kubeconfigs import remote_secret
from watchers.facts.keys import ObjectKey

HOME = (mesh.cluster_name(0), "n0")
RATES = (10, 31, 90)
"""Events a second."""


class Size(msgspec.Struct, frozen=True):
    """How much is measured. `seconds` is how long each rhythm of events lasts, `rest` how long nothing happens before
    memory is at rest, `pause` between two clusters that leave or join, `calm` how long nothing is under way before what
    comes next.
    """

    remotes: int
    services: int
    pods: int
    seconds: float
    rest: float
    pause: float
    joins: int
    clients: int
    rates: tuple[int, ...] = RATES
    calm: float = 1.5


SIZES = {
    "small": Size(2, 30, 400, seconds=2, rest=1, pause=1, joins=1, clients=20, rates=(31,), calm=0.5),
    "short": Size(10, 300, 4000, seconds=5, rest=5, pause=2, joins=2, clients=100, calm=1.0),
    "full": Size(10, 300, 4000, seconds=20, rest=30, pause=5, joins=6, clients=100),
}


def secret_key(cluster: str) -> ObjectKey:
    """Of the Secret that registers it."""
    return (HOME[0], "Secret", "istio-system", f"remote-{cluster}")


class Event(msgspec.Struct, frozen=True):
    """An endpoint goes or comes back: the writes, and the service and network by which it is told."""

    writes: tuple[Write, Write]
    service: str
    network: str


class Rig:
    """Home and remote clusters behind API servers, and endpoints that go and come back."""

    def __init__(self, servers: ApiServers, size: Size) -> None:
        self.servers = servers
        self.size = size
        self.remotes = [mesh.cluster_name(number) for number in range(1, size.remotes + 1)]
        self.networks = [f"n{number}" for number in range(1, size.remotes + 1)]
        self._chance = random.Random(7)
        self._gone: set[tuple[int, int]] = set()
        self._next = 0
        servers.start(HOME[0], objects(0, size.services, size.services))
        for number, name in enumerate(self.remotes, 1):
            servers.start(name, objects(number, size.services, size.pods))

    def home(self) -> bytes:
        """The kubeconfig of home."""
        return self.servers.kubeconfig(HOME[0])

    def register(self, *clusters: str, token: str = "token") -> int:
        """Home has the Secrets of these clusters; when, in ns."""
        secrets: list[Write] = []
        for cluster in clusters:
            _, _, namespace, name = secret_key(cluster)
            kubeconfigs = {cluster: self.servers.kubeconfig(cluster, token)}
            secrets.append((HOME[0], remote_secret(name, kubeconfigs, namespace=namespace)))
        return self.servers.change(secrets)[-1]

    def forget(self, *clusters: str) -> int:
        """It has them no more."""
        return self.servers.change([(HOME[0], secret_key(cluster)) for cluster in clusters])[-1]

    def events(self, count: int) -> list[Event]:
        """In remote clusters in turn, each of a service that no recent one was of."""
        some = []
        for _ in range(count):
            cluster = 1 + self._next % self.size.remotes
            service = self._next // self.size.remotes % self.size.services
            each = self.size.pods // self.size.services
            some.append(self.event(cluster, service + self.size.services * self._chance.randrange(each)))
            self._next += 1
        return some

    def event(self, cluster: int, number: int) -> Event:
        """That endpoint goes or comes back."""
        name, services, pods = mesh.cluster_name(cluster), self.size.services, self.size.pods
        pod = mesh.pod_key(cluster, services, number)
        self._gone ^= {(cluster, number)}
        slice_ = mesh.endpoint_slice(cluster, services, pods, number % services)
        missing = {mesh.pod_key(cluster, services, one)[3] for at, one in self._gone if at == cluster}
        slice_["endpoints"] = [one for one in slice_["endpoints"] if one["targetRef"]["name"] not in missing]
        there = (cluster, number) not in self._gone
        first = (name, wire(mesh.pod(cluster, services, number))) if there else (name, pod)
        return Event((first, (name, slice_)), f"s{number % services}.shop.", f"n{cluster}")

    def happen(self, events: Sequence[Event], gaps: Sequence[float]) -> list[int]:
        """They do, each so many seconds after the one before; when, in ns."""
        pairs = [gap for one in gaps for gap in (one, 0.0)]
        return self.servers.change([write for event in events for write in event.writes], pairs)[::2]

    def restore(self) -> None:
        """All endpoints are there."""
        for cluster, number in sorted(self._gone):
            for write in self.event(cluster, number).writes:
                self.servers.change([write])


def latencies(at: Sequence[int], events: Sequence[Event], heard: Heard) -> Iterator[float | None]:
    """Milliseconds of every event at every client; None if it was not told."""
    for each in heard:
        when: dict[tuple[str, str], list[int]] = {}
        for receipt in each:
            for name in (*receipt.names, *receipt.removed):
                network, split, rest = name.partition("/SplitHorizonWorkload/")
                if split:
                    host = rest.rpartition("/")[2]
                    when.setdefault((network, ".".join(host.split(".")[:2]) + "."), []).append(receipt.at)
        for moment, event in zip(at, events, strict=True):
            times = when.get((event.network, event.service), [])
            place = bisect_left(times, moment)
            yield (times[place] - moment) / 1e6 if place < len(times) else None


def seconds(since: int, until: int) -> float:
    """Between two times in ns; infinite if the second, 0, did not come."""
    return (until - since) / 1e9 if until else math.inf


Figures = dict[str, float]


class Measured:
    """One control plane, from its start to its end."""

    def __init__(self, rig: Rig, start: Starter) -> None:
        self._rig = rig
        self._start = start
        self.figures: Figures = {}

    def run(self) -> Figures:
        """Everything that is measured of it."""
        self._joining()
        self._starting()
        return self.figures

    def _joining(self) -> None:
        """Clusters join one after the other, then events happen, then clusters leave and join again."""
        rig, size = self._rig, self._rig.size
        with self._start(HOME[0], rig.home()) as plane:
            plane.ready()
            with Fleet(plane.xds, 1, HOME) as fleet:
                fleet.joined()
                alone = self._quiet(plane)
                self._memory("home.memory", alone)
                after = alone
                for number, (cluster, network) in enumerate(zip(rig.remotes, rig.networks, strict=True), 1):
                    before, at = after, rig.register(cluster)
                    there = fleet.holds([network], size.services)
                    after = self._quiet(plane)
                    if number in (1, size.remotes):
                        which = "first" if number == 1 else "last"
                        self.figures[f"join.{which}.cpu"] = after.cpu - before.cpu
                        self.figures[f"join.{which}.told"] = seconds(at, there)
                self._remote_memory("synced", alone, after)
                time.sleep(size.rest)
                self._remote_memory("rest", alone, used(plane.pid))
                self._rhythms(plane, fleet)
                self._rejoining(plane, fleet)
            rig.forget(*rig.remotes)

    def _quiet(self, plane: ControlPlane) -> Used:
        return quiet(plane, seconds=self._rig.size.calm)

    def _memory(self, name: str, usage: Used) -> None:
        self.figures[name] = usage.resident / 1e6

    def _remote_memory(self, when: str, alone: Used, now: Used) -> None:
        remotes = self._rig.size.remotes
        self.figures[f"remote.memory.{when}"] = (now.resident - alone.resident) / remotes / 1e6
        self.figures[f"process.memory.{when}"] = now.resident / 1e6
        self.figures[f"process.pss.{when}"] = now.proportional / 1e6

    def _rhythms(self, plane: ControlPlane, fleet: Fleet) -> None:
        rig, size = self._rig, self._rig.size
        self.figures["idle.cpu"] = cpu_during(plane, lambda: time.sleep(size.seconds))
        for rate in size.rates:
            count = int(rate * size.seconds)
            chance = random.Random(11)
            rhythms = {"even": [1 / rate] * count, "random": [chance.expovariate(rate) for _ in range(count)]}
            for rhythm, gaps in rhythms.items():
                events = rig.events(count)
                fleet.heard()
                at: list[int] = []
                cpu = cpu_during(plane, lambda e=events, g=gaps, a=at: a.extend(rig.happen(e, g)))  # type: ignore[misc]
                self._quiet(plane)
                heard = fleet.heard()
                told = list(latencies(at, events, heard))
                some = [one for one in told if one is not None]
                name = f"events.{rate}.{rhythm}"
                self.figures[f"{name}.p50"] = quantile(some, 0.5)
                self.figures[f"{name}.p99"] = quantile(some, 0.99)
                self.figures[f"{name}.longest"] = max(some)
                self.figures[f"{name}.not_told"] = len(told) - len(some)
                self.figures[f"{name}.cpu"] = cpu
                self.figures[f"{name}.bytes_per_event"] = sum(one.size for one in heard[0]) / count
        rig.restore()
        self._quiet(plane)

    def _rejoining(self, plane: ControlPlane, fleet: Fleet) -> None:
        """Clusters leave and join again; the first of them do so before memory is looked at."""
        rig, size = self._rig, self._rig.size
        spent, told, gone = [], [], []
        before = 0
        for number in range(size.joins + 1):
            cluster, network = rig.remotes[number % size.remotes], rig.networks[number % size.remotes]
            at = rig.forget(cluster)
            missed = fleet.misses([network])
            cpu = self._quiet(plane).cpu
            joined = rig.register(cluster)
            there = fleet.holds([network], size.services)
            after = self._quiet(plane)
            time.sleep(size.pause)
            if number == 0:
                before = self._settled(plane)
                continue
            spent.append(after.cpu - cpu)
            told.append(seconds(joined, there))
            gone.append(seconds(at, missed))
        self.figures["rejoin.growth"] = (self._settled(plane) - before) / size.joins / 1e6
        self.figures["rejoin.cpu"] = quantile(spent, 0.5)
        self.figures["rejoin.told"] = quantile(told, 0.5)
        self.figures["leave.told"] = quantile(gone, 0.5)

    def _settled(self, plane: ControlPlane) -> int:
        """Bytes in memory once what is not needed was collected and time has passed."""
        plane.collect_garbage()
        time.sleep(self._rig.size.rest)
        plane.collect_garbage()
        return used(plane.pid).resident

    def _starting(self) -> None:
        """It starts with all clusters registered; then many clients join."""
        rig, size = self._rig, self._rig.size
        rig.register(*rig.remotes)
        began = time.monotonic_ns()
        with self._start(HOME[0], rig.home()) as plane:
            with Fleet(plane.xds, 1, HOME) as fleet:
                plane.ready()
                self.figures["start.ready"] = (time.monotonic_ns() - began) / 1e9
                self.figures["start.told"] = seconds(began, fleet.holds(rig.networks, size.services))
                self.figures["start.cpu"] = self._quiet(plane).cpu
            before = self._quiet(plane)
            with Fleet(plane.xds, size.clients, HOME) as fleet:
                joined = [float(one) for one in fleet.joined()]
                assert all(joined), "not every client has an answer"
                connected, streams = self._quiet(plane), fleet.streams()
                at = min(one.began for one in streams)
                self.figures["clients.all_told"] = (max(joined) - at) / 1e9
                self.figures["clients.median_told"] = (quantile(joined, 0.5) - at) / 1e9
                self.figures["clients.cpu"] = 1e3 * (connected.cpu - before.cpu) / size.clients
                self.figures["clients.refused"] = sum(one.opened - 1 for one in streams)
                self._memory("clients.process.memory", connected)
        rig.forget(*rig.remotes)


UNITS = {
    "memory": "MB",
    "pss": "MB",
    "growth": "MB each",
    "cpu": "s",
    "told": "s",
    "all_told": "s",
    "median_told": "s",
    "ready": "s",
    "p50": "ms",
    "p99": "ms",
    "longest": "ms",
    "not_told": "events",
    "refused": "streams",
    "bytes_per_event": "bytes",
}
"""By the last word of a figure's name that is one of these."""
GOALS = {"remote.memory.synced": 8.0, "remote.memory.rest": 8.0, "join.first.cpu": 0.25, "join.last.cpu": 0.25}


def unit(name: str) -> str:
    """Of a figure."""
    words = name.split(".")
    if name == "clients.cpu":
        return "ms each"
    if words[-1] == "cpu" and words[0] in ("idle", "events"):
        return "% of a core"
    return next(UNITS[word] for word in reversed(words) if word in UNITS)


def beside(servers: ApiServers, size: Size, results: Results, *, build: bool) -> None:
    """Isthmus, then istiod where it can be had, and their figures."""
    rig = Rig(servers, size)
    measured = {name: Measured(rig, start).run() for name, start in peers(build=build).items()}
    peer = measured.get("istiod", {})
    for name, value in measured["isthmus"].items():
        results.add(f"watchers.beside.{name}", value, unit(name), goal=GOALS.get(name), peer=peer.get(name))
