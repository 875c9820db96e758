"""A toy mesh on a real graph: small enough to be rebuilt hundreds of times, with every kind of collection in it.

Clusters have nodes, pods and services; views are told of what stands in their network. On purpose it also holds what a
good graph avoids: functions that raise, two items that produce one key, collections that share keys, members that meet
in two groups. Beside it stand what tests of a graph need: the whole state in a comparable form, and published tables.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Pass, Source, Sums, Withheld
from aggregator.graph.engine import Engine, State
from aggregator.graph.members import Members

Key: TypeAlias = tuple[str, str]
"""(cluster, name)"""

Inputs: TypeAlias = dict[Collection[Any, Any], dict[Any, Any]]


class Cluster(msgspec.Struct, frozen=True):
    """A cluster counts once it is synced, or when the moment has passed until which it is waited for."""

    network: str
    synced: bool = True
    deadline: float = 0.0


class Pod(msgspec.Struct, frozen=True):
    """A pod of an app on a node. The app `broken` makes functions raise."""

    app: str
    node: str
    ready: bool = True


class Service(msgspec.Struct, frozen=True):
    """A service of an app, with the hosts it claims and a certificate: none, `bad`, or good."""

    app: str
    hosts: tuple[str, ...] = ()
    certificate: str = ""


class ToyMesh:
    """The declaration: sources as attributes, and everything else by name."""

    def __init__(self) -> None:
        self.graph = graph = Graph()
        self.clusters: Source[str, Cluster] = graph.source("clusters")
        self.nodes: Source[Key, str] = graph.source("nodes")
        self.pods: Source[Key, Pod] = graph.source("pods")
        self.services: Source[Key, Service] = graph.source("services")
        self.views: Source[str, tuple[str, ...]] = graph.source("views")

        networks = graph.derive("networks", self.clusters, _network)
        by_app = graph.index("services by app", self.services, lambda _, service: (service.app,))

        def workload(at: At, key: Key, pod: Pod) -> Outcome[tuple[Any, ...]]:
            if pod.app == "broken":
                raise ValueError(f"no workload of {key}")
            network = at.get(networks, key[0])
            if network is None:
                return Withheld("ClusterUnknown")
            zone = at.get(self.nodes, (key[0], pod.node))
            if zone is None:
                at.note(("node", key[0], pod.node), f"unknown node {pod.node}")
            services = tuple(sorted(at.group(by_app, pod.app)))
            return (network, zone, services, pod.ready)

        self.workloads = graph.derive("workloads", self.pods, workload)

        def claims(at: At, key: Key, service: Service) -> Iterator[tuple[tuple[str, Key], Outcome[str]]]:
            network = at.get(networks, key[0])
            for host in service.hosts:
                yield (host, key), Withheld("ClusterUnknown") if network is None else network

        claimed = graph.expand("claims", self.services, claims)
        by_host = graph.index("claims by host", claimed, lambda claim, _: (claim[0],))

        def chosen(at: At, host: str, members: Mapping[tuple[str, Key], str]) -> tuple[Key, str]:
            first, *others = sorted(members)
            for _, service in others:
                at.note(("service", *service), f"{host} belongs to {first[1]}")
            return (first[1], members[first])

        self.hosts = graph.derive("hosts", by_host, chosen)
        # Several services may name one host, so several items may produce one key here.
        self.aliases = graph.expand(
            "aliases",
            self.services,
            lambda at, key, one: ((host, key) for host in one.hosts),
            unless=lambda _, one: not one.hosts,
        )

        def certificate(at: At, key: Key, service: Service) -> Outcome[str]:
            return Withheld("CertificateUnusable") if service.certificate in ("", "bad") else service.certificate

        self.certificates = graph.latch("certificates", graph.derive("good certificates", self.services, certificate))

        # Collections of two types, told apart by the functions.
        things: tuple[Collection[Any, Any], ...] = (self.workloads, self.hosts)
        both: tuple[Collection[Any, Any], ...] = (self.certificates, self.services)

        def amounts(key: Hashable, item: Any) -> Iterator[tuple[str, Hashable, int]]:
            if isinstance(item[0], str):  # a workload
                network, _, services, ready = item
                for _, name in services:
                    yield name, ("pods", network), 1
                    yield name, "ready", int(ready)
            else:  # a host
                yield item[0][1], "hosts", 1

        capacity = graph.fold("capacity", things, amounts)
        enough = graph.derive("enough", capacity, _enough)

        def served(at: At, key: Key, service: Service) -> tuple[Any, ...]:
            kept = graph.kept(self.certificates)
            return (at.get(enough, key[1]), at.get(self.certificates, key), at.get(kept, key), at.passed(len(key[1])))

        self.served = graph.derive("served", self.services, served)

        # Both are keyed by service: the first one's item counts where both have one.
        either = graph.index("either", both, lambda _, item: (type(item).__name__,))
        self.counted = graph.derive("counted", either, lambda at, kind, members: len(members))

        in_network = graph.index("things by network", things, _networks_of)
        views = graph.index("views by network", self.views, lambda _, networks: networks)
        self.resources = graph.pair("resources", views, in_network, _resource)
        self.neighbours = graph.pair("neighbours", views, views, lambda one, ours, other, theirs: (ours, theirs))

        graph.publish("resources", self.resources, self.neighbours)
        graph.publish("hosts", self.hosts)
        graph.publish("aliases", self.aliases)
        graph.publish("services", self.served)
        graph.publish("capacity", capacity)
        graph.publish("counted", self.counted)
        graph.publish("latched", self.certificates)

    @property
    def sources(self) -> tuple[Source[Any, Any], ...]:
        """The sources that a test may change, what the latch keeps not among them."""
        return (self.clusters, self.nodes, self.pods, self.services, self.views)

    def kept(self) -> dict[Any, Any]:
        """What the latch keeps: hidden state made visible, to be given to a rebuilt graph."""
        return dict(self.graph.values(self.graph.kept(self.certificates)))


def _network(at: At, cluster: str, state: Cluster) -> Outcome[str]:
    return state.network if state.synced or at.passed(state.deadline) else Withheld("ClusterNotSynced")


def _enough(at: At, service: str, sums: Sums) -> Outcome[str]:
    ready = sums.get("ready", 0)
    return Withheld("NothingReady") if ready == 0 else "many" if ready > 1 else "one"


def _networks_of(key: Hashable, item: Any) -> Iterator[str]:
    network = item[0] if isinstance(item[0], str) else item[1]
    if network == "nowhere":
        raise ValueError("nowhere is no network")
    yield network
    yield "all"


def _resource(view: str, networks: tuple[str, ...], key: Any, item: Any) -> Outcome[tuple[Any, ...]]:
    if view == "blind":
        return Withheld("ViewIsBlind")
    if view == "broken" and isinstance(item[0], str):
        raise ValueError(f"{view} cannot show workloads")
    return (networks, item)


class Tables:
    """What the passes of a graph have published so far."""

    def __init__(self) -> None:
        self.content: dict[str, dict[Any, Any]] = {}

    def apply(self, done: Pass) -> None:
        """Take in one pass. A deletion of what is not there is a defect of the graph, and fails."""
        for name, changes in done.published.items():
            table = self.content.setdefault(name, {})
            for key, value in changes.items():
                if value is None:
                    del table[key]
                else:
                    table[key] = value

    def filled(self) -> dict[str, dict[Any, Any]]:
        """The tables that are not empty."""
        return {name: table for name, table in self.content.items() if table}


_MEMBERS = ("records", "readers", "rivals")


def snapshot(engine: Engine) -> dict[str, Any]:
    """Everything an engine remembers, as plain mappings that are equal exactly if the states are."""
    columns = {
        name: [(_sets if name in _MEMBERS else _plain)(one) for one in getattr(engine.state, name)]
        for name in State.COLUMNS
    }
    return {**columns, "findings": _plain(engine.state.findings), "subjects": _sets(engine.state.subjects)}


def _sets(members: Mapping[Any, Members]) -> dict[Any, list[Any]]:
    """Who belongs to something, however that is kept and in whatever order they came."""
    return {key: sorted(some, key=repr) for key, some in members.items()}


def _plain(value: Any) -> Any:
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value


def run(engine: Engine, inputs: Inputs, now: float | None = None, budget: int | None = None) -> Pass:
    """One whole pass, in slices of `budget` steps."""
    engine.begin(inputs, now)
    while (done := engine.run(budget)) is None:
        pass
    return done


def cluster_contents(mesh: ToyMesh, cluster: str, now: float = 0.0) -> Inputs:
    """A small cluster: it waits for a moment, brings findings, rivals, failures and a certificate to be latched."""
    return {
        mesh.clusters: {cluster: Cluster("blue", synced=False, deadline=now + 1e9)},
        mesh.nodes: {(cluster, "node-1"): "zone-a"},
        mesh.pods: {
            (cluster, f"pod-{i}"): Pod(("web", "api", "broken")[i % 3], f"node-{i % 2 + 1}", i % 2 == 0)
            for i in range(9)
        },
        mesh.services: {
            (cluster, app): Service(app, ("shop.example", f"{app}.example", f"{cluster}.example"), "good")
            for app in ("web", "api")
        },
    }


def random_inputs(mesh: ToyMesh, choice: random.Random) -> Inputs:
    """Some changes of any sources."""
    inputs: Inputs = {source: {} for source in mesh.sources}
    for _ in range(choice.randrange(1, 8)):
        cluster = choice.choice(("west", "east"))
        gone = choice.random() < 0.3
        hosts = tuple(sorted({choice.choice(("a", "b", "c")) for _ in range(choice.randrange(3))}))
        app = choice.choice(("web", "api", "broken"))
        kind = choice.randrange(5)
        if kind == 0:
            inputs[mesh.clusters][cluster] = None if gone else Cluster(choice.choice(("red", "blue")))
        elif kind == 1:
            inputs[mesh.nodes][cluster, choice.choice("nm")] = None if gone else choice.choice(("zone-a", "zone-b"))
        elif kind == 2:
            pod = Pod(app, choice.choice("nm"), choice.random() < 0.5)
            inputs[mesh.pods][cluster, choice.choice("pqr")] = None if gone else pod
        elif kind == 3:
            service = Service(app, hosts, choice.choice(("", "bad", "good")))
            inputs[mesh.services][cluster, choice.choice(("web", "api"))] = None if gone else service
        else:
            inputs[mesh.views][choice.choice(("v", "w", "blind", "broken"))] = None if gone else ("all", "red")
    return inputs


def digest(passes: int = 60) -> str:
    """A digest of what a fixed series of passes publishes, its order included."""
    mesh, choice = ToyMesh(), random.Random(7)
    total = hashlib.sha256()
    for _ in range(passes):
        done = run(mesh.graph, random_inputs(mesh, choice))
        for name, changes in done.published.items():
            total.update(repr((name, list(changes.items()))).encode())
        total.update(repr(done.failures).encode())
    total.update(repr(list(snapshot(mesh.graph).items())).encode())
    return total.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest())
