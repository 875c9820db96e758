"""The pipeline's figures: what one endpoint costs at each stage, and what one change costs and how soon it arrives.

`python -m tests.bench.pipeline --size small|full`. Full is 10 remote clusters and home, 300 global services and 4,000
endpoints each. Every part runs in a process of its own, so that memory is that part's alone.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tests.bench import mesh
from tests.bench.memory import resident
from tests.bench.results import Results, Stolen, reference, wake
from tests.kit.world import World, changed_names
from watchers.facts.kinds import kind_of

SIZES = {"small": (3, 60, 600), "full": (11, 300, 4000)}
"""(clusters with home, services each, endpoints each)."""


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
        before = resident(trimmed=True)
        times = [time.process_time()]
        facts = [kind.decode_json(data, mesh.cluster_name(number), "istio-system") for kind, data in wire]
        times.append(time.process_time())
        world.cluster(mesh.cluster_name(number))
        world.facts.apply([keyed for keyed in facts if keyed])
        times.append(time.process_time())
        objects += len(facts)
        del facts
        held = resident(trimmed=True)
        times.append(time.process_time())
        world.step()
        times.append(time.process_time())
        after = resident(trimmed=True)
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
        "total_mb": resident(trimmed=True) / 1e6,
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


def hosts(_size: str) -> dict[str, Any]:
    """Microseconds of a pass for one more host, paired with its views, beside 100 and beside 20,000."""
    from tests.bench.graph import new_host_microseconds

    return {"beside_100": new_host_microseconds(100), "beside_20000": new_host_microseconds(20_000)}


def latency(size: str) -> dict[str, Any]:
    """From start to ready, and from a change to ten ztunnels over gRPC, at 100 changes a second and in bursts."""
    from tests.bench.latency import measure

    return dict(measure(*SIZES[size], seconds=30 if size == "full" else 5))


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "stages": lambda size: stages(*SIZES[size]),
    "hosts": hosts,
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
    results = Results("pipeline", given.size)
    results.add("machine.reference.before", reference(), "ms")
    results.add("machine.wake", wake(), "us")
    stolen = Stolen()
    add_stages(results, in_process("stages", given.size))
    add_hosts(results, in_process("hosts", given.size))
    add_latency(results, in_process("latency", given.size))
    results.add("machine.stolen", stolen.percent(), "% of the time")
    results.add("machine.reference.after", reference(), "ms")
    results.save()


def add_stages(results: Results, figures: dict[str, float]) -> None:
    """What an endpoint costs at each stage, and what one change makes the graph do."""
    results.add("pipeline.decode.facts_per_second", figures["facts_per_second"], "facts/s")
    for stage in ("decode", "apply", "pass"):
        results.add(f"pipeline.{stage}.cpu_per_endpoint", figures[f"{stage}_us"], "us")
    for stage in ("facts", "graph"):
        results.add(f"pipeline.{stage}.bytes_per_endpoint", figures[f"{stage}_bytes"], "bytes")
    results.add("pipeline.remote.cpu_to_take_in", figures["remote_cpu"], "s", goal=0.25)
    results.add("pipeline.remote.memory", figures["remote_mb"], "MB", goal=8)
    for where in ("home", "remote"):
        results.add(f"pipeline.change.{where}.functions", figures[f"{where}_functions"], "functions", goal=6)
        results.add(f"pipeline.change.{where}.resources", figures[f"{where}_resources"], "resources", goal=1)
        results.add(f"pipeline.change.{where}.bytes", figures[f"{where}_bytes"], "bytes")
        results.add(f"pipeline.change.{where}.cpu", figures[f"{where}_us"], "us")


def add_hosts(results: Results, figures: dict[str, float]) -> None:
    """Whether one more host costs the same beside many."""
    for beside, cost in figures.items():
        results.add(f"pipeline.new_host.{beside}", cost, "us", goal=30)
    results.add("pipeline.new_host.flatness", figures["beside_20000"] / figures["beside_100"], "times", goal=1.3)


def add_latency(results: Results, figures: dict[str, float]) -> None:
    """The process as a whole: start, memory, steady changes, bursts, and how long its loop was ever kept busy."""
    results.add("pipeline.ready", figures["ready_s"], "s")
    results.add("pipeline.ready.cpu", figures["ready_cpu_s"], "s")
    # Percent of a core at one change a second is the microseconds of a change divided by 10,000.
    results.add("pipeline.remote.cpu_at_one_change_a_second", figures["alone_us"] / 1e4, "% of a core", goal=0.05)
    results.add("pipeline.first_answer.cpu", figures["answer_cpu_ms"], "ms")
    results.add("pipeline.first_answer.size", figures["answer_mb"], "MB")
    for rhythm in ("even", "random"):
        results.add(f"pipeline.latency.{rhythm}.p50", figures[f"{rhythm}_p50_ms"], "ms", goal=2)
        results.add(f"pipeline.latency.{rhythm}.p99", figures[f"{rhythm}_p99_ms"], "ms", goal=15)
        results.add(f"pipeline.latency.{rhythm}.longest", figures[f"{rhythm}_longest_ms"], "ms")
        results.add(f"pipeline.latency.{rhythm}.cpu", figures[f"{rhythm}_cpu_percent"], "% of a core")
        results.add(f"pipeline.latency.{rhythm}.bytes_per_change", figures[f"{rhythm}_bytes"], "bytes")
        results.add(f"pipeline.latency.{rhythm}.responses_per_change", figures[f"{rhythm}_responses"], "responses")
    results.add("pipeline.memory", figures["random_resident_mb"], "MB", goal=200)
    for where in ("home", "mesh"):
        results.add(f"pipeline.burst.{where}", figures[f"burst_{where}_ms"], "ms", goal=250)
        results.add(f"pipeline.burst.{where}.cpu_per_change", figures[f"burst_{where}_cpu_us"], "us")
    for when in ("ready", "answer", "steady", "burst_home", "burst_mesh"):
        name = f"pipeline.longest_step.{when.replace('_', '.')}"
        # By the clock it is whatever else the machine does meanwhile. At the start there is nobody yet to keep waiting.
        results.add(name, figures[f"{when}_block_ms"], "ms")
        results.add(f"{name}.cpu", figures[f"{when}_block_cpu_ms"], "ms", goal=None if when == "ready" else 20)


if __name__ == "__main__":
    main()
