"""What the graph costs: time of an evaluation, bytes of an item and stage, flatness of pairs and folds, slices.

Every figure is a plain function that returns numbers; what prints or compares them stands elsewhere. Times per
evaluation are CPU time, the best of several rounds, and net of what the bare sources cost, so that they are about one
stage; times per pass are medians of whole passes.
`python -m tests.bench.graph` prints them all.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from aggregator.graph import At, Collection, Graph, Source
from tests.bench.results import Results

Key: TypeAlias = tuple[str, str, str, str]
Stage: TypeAlias = Callable[[Graph, "Sources"], Any]

DEPLOYMENTS = 300
NODES = 20
VIEWS = 4


class Sources:
    """Pods of 300 deployments on 20 nodes, and four views, as sources of a new graph."""

    def __init__(self, graph: Graph) -> None:
        self.deployments: Source[str, str] = graph.source("deployments")
        self.nodes: Source[str, str] = graph.source("nodes")
        self.views: Source[str, str] = graph.source("views")
        self.pods: Source[Key, tuple[str, str, int]] = graph.source("pods")

    def fixed(self) -> dict[Collection[Any, Any], Mapping[Any, Any]]:
        """What never changes: deployments, nodes, views."""
        return {
            self.deployments: {f"deployment-{i}": f"service-{i}" for i in range(DEPLOYMENTS)},
            self.nodes: {f"node-{i}": f"zone-{i % 3}" for i in range(NODES)},
            self.views: {f"view-{i}": "all" for i in range(VIEWS)},
        }


def pods(count: int, generation: int = 0) -> dict[Key, tuple[str, str, int]]:
    """`count` pods: deployment, node and a number that differs in every generation."""
    deployments = [f"deployment-{i}" for i in range(DEPLOYMENTS)]
    nodes = [f"node-{i}" for i in range(NODES)]
    return {
        ("west", "Pod", "shop", f"pod-{i}"): (deployments[i % DEPLOYMENTS], nodes[i // DEPLOYMENTS % NODES], generation)
        for i in range(count)
    }


def no_stage(graph: Graph, sources: Sources) -> None:
    """The sources alone: what is taken off every other figure."""


def derive_stage(graph: Graph, sources: Sources) -> None:
    """One to one, without reads."""
    graph.derive("workloads", sources.pods, lambda at, key, pod: pod)


def reading_stage(graph: Graph, sources: Sources) -> None:
    """One to one, with two reads that pods of one deployment on one node share."""

    def workload(at: At, key: Key, pod: tuple[str, str, int]) -> tuple[str, str, int]:
        at.get(sources.deployments, pod[0])
        at.get(sources.nodes, pod[1])
        return pod

    graph.derive("workloads", sources.pods, workload)


def expand_stage(graph: Graph, sources: Sources) -> None:
    """One to one, under the same key, so that what is measured is the engine and not the key."""
    graph.expand("workloads", sources.pods, lambda at, key, pod: ((key, pod),))


def index_stage(graph: Graph, sources: Sources) -> None:
    """Groups by deployment."""
    graph.index("pods by deployment", sources.pods, lambda key, pod: (pod[0],))


def fold_stage(graph: Graph, sources: Sources) -> None:
    """One contribution of each pod to its deployment; it changes with the generation."""
    graph.fold("capacity", sources.pods, lambda key, pod: ((pod[0], "ready", 1 + pod[2]),))


def pair_stage(graph: Graph, sources: Sources) -> None:
    """Each pod with the one view of its group (the index it needs is measured by `index_stage`)."""
    views = graph.index("views by group", sources.views, lambda key, group: (group,) if key == "view-0" else ())
    all_pods = graph.index("all pods", sources.pods, lambda key, pod: ("all",))
    graph.pair("resources", views, all_pods, lambda view, group, key, pod: pod)


STAGES: dict[str, Stage] = {
    "derive": derive_stage,
    "derive, 2 shared reads": reading_stage,
    "expand": expand_stage,
    "index": index_stage,
    "fold": fold_stage,
    "index and pair": pair_stage,
}


def _filled(stage: Stage, count: int) -> tuple[Graph, Sources]:
    graph = Graph()
    sources = Sources(graph)
    stage(graph, sources)
    graph.begin(sources.fixed())
    graph.run()
    if count:
        graph.begin({sources.pods: pods(count)})
        graph.run()
    return graph, sources


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        gc.enable()


def _pass_seconds(graph: Graph, inputs: Mapping[Collection[Any, Any], Mapping[Any, Any]]) -> float:
    def work() -> None:
        graph.begin(inputs)
        graph.run()

    return _seconds(work)


def microseconds_per_evaluation(count: int = 20_000, rounds: int = 3) -> dict[str, tuple[float, float]]:
    """By stage: microseconds for a new item, and for a changed one (whose reads stay as they were)."""

    def cost(stage: Stage) -> tuple[float, float]:
        first, changed = [], []
        for _ in range(rounds):
            graph, sources = _filled(stage, 0)
            first.append(_pass_seconds(graph, {sources.pods: pods(count)}))
            changed.append(_pass_seconds(graph, {sources.pods: pods(count, 1)}))
        return min(first) / count * 1e6, min(changed) / count * 1e6

    base = cost(no_stage)
    figures = {}
    for name, stage in STAGES.items():
        first, changed = cost(stage)
        figures[name] = (round(first - base[0], 2), round(changed - base[1], 2))
    return figures


def bytes_per_item(count: int = 40_000) -> dict[str, float]:
    """By stage: bytes that the engine keeps for each item, without the value, which is the source's own object."""

    def kept(stage: Stage) -> int:
        items = pods(count)
        graph = Graph()
        sources = Sources(graph)
        stage(graph, sources)
        gc.collect()
        tracemalloc.start()
        try:
            graph.begin(sources.fixed())
            graph.run()
            graph.begin({sources.pods: items})
            graph.run()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    base = kept(no_stage)
    return {name: round((kept(stage) - base) / count, 1) for name, stage in STAGES.items()}


def new_host_microseconds(hosts: int, rounds: int = 400) -> float:
    """A pass for one more host beside `hosts`, each paired with four views."""
    graph = Graph()
    views: Source[str, str] = graph.source("views")
    served: Source[Key, int] = graph.source("hosts")
    pairs = graph.pair(
        "resources",
        graph.index("views by group", views, lambda key, group: (group,)),
        graph.index("all hosts", served, lambda key, host: ("all",)),
        lambda view, group, key, host: host,
    )
    graph.publish("resources", pairs)
    graph.begin({views: {f"view-{i}": "all" for i in range(VIEWS)}})
    graph.run()
    graph.begin({served: {("west", "Host", "shop", f"host-{i}"): i for i in range(hosts)}})
    graph.run()
    new: list[dict[Key, int]] = [{("west", "Host", "shop", f"new-{i}"): i} for i in range(rounds)]
    spent = []
    for one in new:
        start = time.perf_counter()
        graph.begin({served: one})
        graph.run()
        spent.append(time.perf_counter() - start)
    spent.sort()
    return round(spent[len(spent) // 2] * 1e6, 1)


def capacity_flip_microseconds(endpoints: int = 5_000, flips: int = 1_000) -> dict[str, float]:
    """One endpoint of a service becomes unready: alone in a pass, and as one of many in a pass (net of the source)."""

    def service(with_fold: bool) -> tuple[Graph, Source[Key, bool]]:
        graph = Graph()
        source: Source[Key, bool] = graph.source("endpoints")
        if with_fold:
            graph.fold("capacity", source, lambda key, ready: (("web", "ready" if ready else "unready", 1),))
        graph.begin({source: {("west", "Endpoint", "shop", f"endpoint-{i}"): True for i in range(endpoints)}})
        graph.run()
        return graph, source

    keys: list[Key] = [("west", "Endpoint", "shop", f"endpoint-{i}") for i in range(flips)]
    graph, source = service(True)
    spent = []
    for key in keys:
        start = time.perf_counter()
        graph.begin({source: {key: False}})
        graph.run()
        spent.append(time.perf_counter() - start)
    spent.sort()
    together = []
    for with_fold in (False, True):
        rounds = []
        for _ in range(5):
            graph, source = service(with_fold)
            rounds.append(_pass_seconds(graph, {source: dict.fromkeys(keys, False)}))
        together.append(min(rounds))
    return {
        "alone in a pass": round(spent[len(spent) // 2] * 1e6, 1),
        "one of many": round((together[1] - together[0]) / flips * 1e6, 2),
    }


def slices(budget: int = 1_000, count: int = 20_000) -> dict[str, float]:
    """A first list of `count` pods through every kind of stage: the longest slice and all, in milliseconds of CPU."""
    graph = Graph()
    sources = Sources(graph)

    def workload(at: At, key: Key, pod: tuple[str, str, int]) -> tuple[str, str, int]:
        at.get(sources.deployments, pod[0])
        at.get(sources.nodes, pod[1])
        return pod

    workloads = graph.derive("workloads", sources.pods, workload)
    endpoints = graph.expand("endpoints", workloads, lambda at, key, pod: ((key, pod),))
    fold = graph.fold("capacity", endpoints, lambda key, pod: ((pod[0], "ready", 1),))
    views = graph.index("views by group", sources.views, lambda key, group: (group,))
    all_pods = graph.index("all pods", endpoints, lambda key, pod: ("all",))
    graph.publish("resources", graph.pair("resources", views, all_pods, lambda view, group, key, pod: pod))
    graph.publish("capacity", fold)
    graph.begin(sources.fixed())
    graph.run()
    graph.begin({sources.pods: pods(count)})
    spent = []
    done = None
    while done is None:
        start = time.process_time()
        done = graph.run(budget)
        spent.append(time.process_time() - start)
    return {"slices": len(spent), "longest": round(max(spent) * 1e3, 2), "all": round(sum(spent) * 1e3, 1)}


def main() -> int:
    """Print every figure, and keep it."""
    results = Results("graph", "full")
    for name, (first, changed) in microseconds_per_evaluation().items():
        results.add(f"{name}: new item", first, "us")
        results.add(f"{name}: changed item", changed, "us")
    for name, size in bytes_per_item().items():
        results.add(f"{name}: kept for an item", size, "bytes", goal=250)
    few, many = new_host_microseconds(100), new_host_microseconds(20_000)
    results.add("new host beside 20,000: pass", many, "us", goal=19)
    results.add("new host: beside 20,000 / beside 100", many / few, "times", goal=1.3)
    flip = capacity_flip_microseconds()
    results.add("one of 5,000 endpoints flips: pass", flip["alone in a pass"], "us", goal=6)
    results.add("one of 5,000 endpoints flips: among many", flip["one of many"], "us", goal=5)
    for budget in (250, 1_000, 4_000):
        found = slices(budget)
        results.add(f"slices of {budget}: longest", found["longest"], "ms", goal=20 if budget <= 1_000 else None)
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
