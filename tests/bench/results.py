"""Figures of benchmarks: one line each, and the same as JSON for whoever compares runs.

A line is `RESULT <name> <value> <unit> goal=<bound> peer=<value|none> ratio=<ours/peer|none> ok|short`. Figures are
measured in the run that prints them; a peer that did not run is `none`, never a number from memory.
`python -m tests.bench.results pipeline --size full --runs 5` prints the medians of the last runs as a table, with the
peer's and the ratio where there was one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path("bench-results")


class Results:
    """Collects the figures of one benchmark."""

    def __init__(self, benchmark: str, size: str) -> None:
        self.benchmark = benchmark
        self.size = size
        self.rows: list[dict[str, Any]] = []

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        goal: float | None = None,
        least: bool = False,
        peer: float | None = None,
    ) -> None:
        """Print a figure. `goal` is the most it may be, or with `least` the least."""
        met = goal is None or (value >= goal if least else value <= goal)
        bound = "none" if goal is None else f"{'>=' if least else '<='}{_number(goal)}"
        ratio = "none" if not peer else _number(value / peer)
        verdict = "ok" if met else "short"
        shown = "none" if peer is None else _number(peer)
        print(f"RESULT {name} {_number(value)} {unit} goal={bound} peer={shown} ratio={ratio} {verdict}", flush=True)
        self.rows.append(
            {"name": name, "value": value, "unit": unit, "goal": bound, "peer": peer, "met": met, "size": self.size}
        )

    def save(self) -> None:
        """Append the figures to bench-results/<benchmark>.jsonl."""
        RESULTS.mkdir(exist_ok=True)
        stamp = {
            "at": int(time.time()),
            "commit": commit(),
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "load": os.getloadavg()[0],
        }
        with (RESULTS / f"{self.benchmark}.jsonl").open("a") as file:
            for row in self.rows:
                file.write(json.dumps({**stamp, **row}) + "\n")


def commit() -> str:
    """The commit that is measured, with a `+` when files differ from it; "" outside of a repository."""
    ran = subprocess.run(["git", "describe", "--always", "--dirty=+"], stdout=subprocess.PIPE, check=False)
    return ran.stdout.decode().strip()


def reference() -> float:
    """Milliseconds that this machine takes now for a fixed piece of Python: a yardstick for other figures of the run.

    On a shared machine it varies by a factor of two within minutes, and with it all that is measured in CPU time.
    """

    def work() -> int:
        counts: dict[tuple[str, int], int] = {}
        for number in range(20_000):
            key = (f"name-{number % 500}", number % 7)
            counts[key] = counts.get(key, 0) + number
        return len(counts)

    spent = []
    for _ in range(15):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return 1e3 * sorted(spent)[len(spent) // 2]


def wake(times: int = 200) -> float:
    """Microseconds of CPU that an event loop takes to be woken by a byte in a pipe, read it, and sleep again.

    It is the least that anything which comes alone can cost, most of it the kernel's. The median of `times`, each three
    milliseconds after the one before.
    """
    ours, theirs = os.pipe()
    writer = f"import os, time\nfor _ in range({times}):\n time.sleep(0.003)\n os.write({theirs}, b'.')"
    spent = []

    async def read() -> None:
        ended = asyncio.Event()
        before = time.thread_time()

        def woken() -> None:
            nonlocal before
            if not os.read(ours, 1):
                ended.set()
            now = time.thread_time()
            spent.append(now - before)
            before = now

        asyncio.get_running_loop().add_reader(ours, woken)
        await ended.wait()
        asyncio.get_running_loop().remove_reader(ours)

    with subprocess.Popen([sys.executable, "-S", "-c", writer], pass_fds=(theirs,)):
        os.close(theirs)
        asyncio.run(read())
    os.close(ours)
    return 1e6 * sorted(spent)[len(spent) // 2]


class Stolen:
    """What the host of a virtual machine took from it since this was made. What takes a few milliseconds here is then
    as late as the host is slow, which the median forgives and the 99th percentile does not.
    """

    def __init__(self) -> None:
        self._before = self._times()

    def percent(self) -> float:
        """Of the time in which something was to be done."""
        stolen, idle, together = (now - before for now, before in zip(self._times(), self._before, strict=True))
        return 100 * stolen / max(1, together - idle)

    @staticmethod
    def _times() -> tuple[int, int, int]:
        """Ticks stolen, idle and in all, over all cores, as the kernel counts them (proc(5))."""
        times = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return times[7], times[3] + times[4], sum(times)


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(benchmark: str, size: str, runs: int, prefix: str = "") -> list[str]:
    """The medians of the last runs of a benchmark, with the lowest and highest, as the lines of a Markdown table.

    Only of figures whose name begins with `prefix`. Where some have a peer there are columns for it: its median, and
    that of the ratios of ours to it.
    """
    lines = (RESULTS / f"{benchmark}.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["size"] == size and row["name"].startswith(prefix)]
    last = sorted({row["at"] for row in rows})[-runs:]
    figures: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["at"] in last:
            figures.setdefault(row["name"], []).append(row)
    compared = any(row["peer"] is not None for some in figures.values() for row in some)
    heads = ["figure", "median", "lowest to highest", *(["peer", "ratio"] if compared else []), "unit", "goal", ""]
    told = [_line(heads), "|---" * len(heads) + "|"]
    for name, some in figures.items():
        values = sorted(row["value"] for row in some)
        cells = [f"`{name}`", _number(quantile(values, 0.5)), f"{_number(values[0])} to {_number(values[-1])}"]
        cells += _against(some) if compared else []
        told.append(_line([*cells, some[-1]["unit"], *_verdict(some[-1], values)]))
    return told


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _against(some: list[dict[str, Any]]) -> list[str]:
    """The peer's median and the median ratio."""
    both = [(row["value"], row["peer"]) for row in some if row["peer"] is not None]
    ratios = [value / peer for value, peer in both if peer]
    if not both:
        return ["none", "none"]
    ratio = _number(quantile(ratios, 0.5)) if ratios else "none"
    return [_number(quantile([peer for _, peer in both], 0.5)), ratio]


def _verdict(row: dict[str, Any], values: list[float]) -> list[str]:
    """The bound, and whether the median keeps it."""
    if row["goal"] == "none":
        return ["", ""]
    most, middle = float(row["goal"][2:]), quantile(values, 0.5)
    met = middle >= most if row["goal"][0] == ">" else middle <= most
    return [row["goal"].replace("<=", "≤ ").replace(">=", "≥ "), "ok" if met else "**short**"]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("benchmark")
    arguments.add_argument("--size", choices=("small", "full"), default="full")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--prefix", default="", help="only figures whose name begins with it")
    given = arguments.parse_args()
    print("\n".join(table(given.benchmark, given.size, given.runs, given.prefix)))


if __name__ == "__main__":
    main()
