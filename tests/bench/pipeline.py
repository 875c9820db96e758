"""The pipeline's figures: what one endpoint costs at each stage, and what one change costs and how soon it arrives.

`python -m tests.bench.pipeline --size small|full`. Full is 10 remote clusters and home, 300 global services and 4,000
endpoints each. Every part runs in a process of its own, so that memory is that part's alone.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.bench import mesh
from tests.bench.results import Results
from tests.kit.world import World, changed_names
from watchers.facts.kinds import kind_of

SIZES = {"small": (3, 60, 600), "full": (11, 300, 4000)}
"""(clusters with home, services each, endpoints each)."""


def resident() -> int:
    """Bytes of this process in memory, after giving back what is free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stages(clusters: int, services: int, pods: int) -> dict[str, float]:
    """CPU and memory per endpoint and stage, over all clusters; the first is home."""
    world = World("c0")
    cpu = dict.fromkeys(("decode", "apply", "pass"), 0.0)
    kept = dict.fromkeys(("facts", "graph"), 0.0)
    objects = 0
    remote_cpu: list[float] = []
    remote_bytes: list[float] = []
    for number in range(clusters):
        wire = [
            (kind, mesh.encoded(one))
            for one in mesh.objects(number, services, pods)
            if (kind := kind_of(one["apiVersion"], one["kind"]))
        ]
        size = sum(len(data) for _, data in wire)
        before = resident()
        times = [time.process_time()]
        facts = [kind.decode_json(data, mesh.cluster_name(number), "istio-system") for kind, data in wire]
        times.append(time.process_time())
        world.cluster(mesh.cluster_name(number))
        world.facts.apply([keyed for keyed in facts if keyed])
        times.append(time.process_time())
        objects += len(facts)
        del facts
        held = resident()
        times.append(time.process_time())
        world.step()
        times.append(time.process_time())
        after = resident()
        for name, begin, end in (("decode", 0, 1), ("apply", 1, 2), ("pass", 3, 4)):
            cpu[name] += times[end] - times[begin]
        kept["facts"] += held - before
        kept["graph"] += after - held
        if number:
            remote_cpu.append(times[2] - times[0] + times[4] - times[3])
            remote_bytes.append(after - before)
        del wire
    endpoints = clusters * pods
    return {
        "facts_per_second": objects / cpu["decode"],
        "wire_mb": size / 1e6,
        **{f"{name}_us": 1e6 * seconds / endpoints for name, seconds in cpu.items()},
        **{f"{name}_bytes": amount / endpoints for name, amount in kept.items()},
        "remote_cpu": sorted(remote_cpu)[len(remote_cpu) // 2],
        "remote_mb": sorted(remote_bytes)[len(remote_bytes) // 2] / 1e6,
        "total_mb": resident() / 1e6,
        **changes(world, clusters, services, pods),
    }


def changes(world: World, clusters: int, services: int, pods: int) -> dict[str, float]:
    """Functions run, resources and bytes published, and CPU, per change of one endpoint's readiness."""
    chance = random.Random(7)
    figures: dict[str, float] = {}
    for where, number in (("home", 0), ("remote", 1)):
        evaluated, published, pushed, spent = [], [], [], 0.0
        for _ in range(300):
            pod = chance.randrange(pods)
            for ready in (False, True):
                world.apply(mesh.cluster_name(number), mesh.pod(number, services, pod, ready=ready))
                began = time.process_time()
                result = world.step()
                spent += time.process_time() - began
                evaluated.append(result.evaluated)
                published.append(len(changed_names(result)))
                pushed.append(sum(len(one.frame) for one in result.published.get("resources", {}).values() if one))
        figures[f"{where}_functions"] = max(evaluated)
        figures[f"{where}_resources"] = max(published)
        figures[f"{where}_bytes"] = sum(pushed) / len(pushed)
        figures[f"{where}_us"] = 1e6 * spent / len(pushed)
    return figures


def in_process(part: str, size: str) -> dict[str, Any]:
    """Run one part in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.pipeline", "--part", part, "--size", size]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    figures: dict[str, Any] = msgspec.json.decode(ran.stdout)
    return figures


def new_hosts(_size: str) -> dict[str, Any]:
    """What one more host costs by `pair` beside 100 and beside 20,000."""
    from tests.bench import graph

    return dict(graph.new_host_costs())


def latency(size: str) -> dict[str, Any]:
    """Event to ten clients, over gRPC, at 100 changes a second."""
    from tests.bench import latency as measured

    return measured.measure(*SIZES[size], seconds=30 if size == "full" else 5)


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "stages": lambda size: stages(*SIZES[size]),
    "hosts": new_hosts,
    "latency": latency,
}


def main() -> None:
    """Run all parts and print their figures."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", choices=sorted(SIZES), default="small")
    arguments.add_argument("--part", choices=sorted(PARTS))
    given = arguments.parse_args()
    if given.part:
        sys.stdout.buffer.write(msgspec.json.encode(PARTS[given.part](given.size)))
        return
    full = given.size == "full"
    results = Results("pipeline", given.size)
    figures = in_process("stages", given.size)
    results.add("pipeline.decode.facts_per_second", figures["facts_per_second"], "facts/s")
    for stage in ("decode", "apply", "pass"):
        results.add(f"pipeline.{stage}.cpu_per_endpoint", figures[f"{stage}_us"], "us")
    for stage in ("facts", "graph"):
        results.add(f"pipeline.{stage}.bytes_per_endpoint", figures[f"{stage}_bytes"], "bytes")
    results.add("pipeline.remote.cpu_to_take_in", figures["remote_cpu"], "s", goal=0.25)
    results.add("pipeline.remote.memory", figures["remote_mb"], "MB", goal=8)
    results.add("pipeline.memory", figures["total_mb"], "MB", goal=200)
    for where in ("home", "remote"):
        results.add(f"pipeline.change.{where}.functions", figures[f"{where}_functions"], "functions", goal=6)
        results.add(f"pipeline.change.{where}.resources", figures[f"{where}_resources"], "resources", goal=1)
        results.add(f"pipeline.change.{where}.bytes", figures[f"{where}_bytes"], "bytes")
        results.add(f"pipeline.change.{where}.cpu", figures[f"{where}_us"], "us")
    figures = in_process("hosts", given.size)
    for hosts, cost in figures.items():
        results.add(f"pipeline.new_host.beside_{hosts}", cost, "us", goal=30)
    figures = in_process("latency", given.size)
    for shape in ("even", "random"):
        results.add(f"pipeline.latency.{shape}.p50", figures[f"{shape}_p50_ms"], "ms", goal=2 if full else None)
        results.add(f"pipeline.latency.{shape}.p99", figures[f"{shape}_p99_ms"], "ms", goal=15 if full else None)
        results.add(f"pipeline.latency.{shape}.cpu", figures[f"{shape}_cpu_percent"], "% of a core")
    results.save()


if __name__ == "__main__":
    main()
