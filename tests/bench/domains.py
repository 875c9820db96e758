"""TLS domains by the thousands: what one more costs beside many, and everything that happens to them, beside istiod.

`python -m tests.bench.domains --size small|full` measures a matrix: every way of serving domains, at every number of
them, each part in a process of its own with an API server, a control plane, an Envoy and visitors of its own
(`tests.bench.activation`), one after the other. `--part on_demand:7000` measures one part alone. Full has istiod with a
stock Envoy behind it as well, where istiod can be had. A part that does not end in time is ended, and said so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tests.bench.activation import Amounts, Cost, Figures, measured
from tests.bench.results import Results, Stolen, quantile, reference
from tests.bench.served import ISTIOD, MODES
from tests.kit.go_builds import NoProgram
from tests.kit.istiod import VERSION, binary


class Part(msgspec.Struct, frozen=True):
    """One way of serving, `on_demand` or another of tests.bench.served, or `istiod`; and how many domains."""

    name: str
    domains: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Of `NAME:DOMAINS`. Raises ValueError."""
        name, _, domains = text.partition(":")
        if name not in (*MODES, ISTIOD):
            raise ValueError(f"{name!r} is none of {', '.join((*MODES, ISTIOD))}")
        return cls(name, int(domains))

    def __str__(self) -> str:
        return f"{self.name}:{self.domains}"


class Size(msgspec.Struct, frozen=True):
    """What is measured: numbers of domains for Isthmus and for the peer, how much of each, and seconds that a part of
    either may take.
    """

    domains: tuple[int, ...]
    peer: tuple[int, ...]
    amounts: Amounts
    peer_amounts: Amounts
    within: float
    peer_within: float


_FEW: Final = Amounts(warming=1, ec=8, rsa=2, costs=2, changes=2)
SIZES: Final = {
    "small": Size((20, 2_000), (), Amounts(3, ec=10, rsa=5, costs=4, changes=3), _FEW, within=60, peer_within=60),
    "full": Size(
        (100, 1_000, 7_000, 20_000),
        (1_000, 7_000, 20_000),
        Amounts(3, ec=100, rsa=50, costs=30, changes=20),
        _FEW,
        within=300,
        peer_within=600,
    ),
}
FLAT: Final = 1.3
"""Times what one more domain costs beside the fewest that it may cost beside the most."""
OF_ISTIOD: Final = {"compatible": 0.2}
"""The share of istiod's time that a way of serving may take, where it has such a goal."""

Matrix = Mapping[Part, Figures]


# -- the parts, each in a process


def in_process(part: Part, size: str, within: float) -> Figures | None:
    """What one measures in a process of its own, which prints more and more of it; None if that was nothing. Says so if
    it was not all.
    """
    command = [sys.executable, "-m", "tests.bench.domains", "--size", size, "--measure", str(part)]
    with tempfile.TemporaryFile() as said:
        # A session of its own: what it started ends with it, whatever becomes of it.
        with subprocess.Popen(command, stdout=said, start_new_session=True) as process:
            try:
                process.wait(within)
            except subprocess.TimeoutExpired:
                print(f"# {part} was ended after {within:g} s; figures that it had not come to are missing", flush=True)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode not in (0, -signal.SIGKILL):
            print(f"# {part} has failed with exit code {process.returncode}", flush=True)
        said.seek(0)
        lines = said.read().splitlines()
    return msgspec.json.decode(lines[-1], type=Figures) if lines else None


def parts(size: Size) -> list[Part]:
    """All parts of a size. The peer has those it can be had for."""
    some = [Part(name, domains) for domains in size.domains for name in MODES]
    return some + [Part(ISTIOD, domains) for domains in size.peer] if size.peer and _has_peer() else some


def _has_peer() -> bool:
    try:
        binary()
    except NoProgram as error:
        print(f"# peer=none: istiod {VERSION} is absent: {error}", flush=True)
        return False
    print(f"# the peer is istiod {VERSION} with the same Envoy behind it", flush=True)
    return True


# -- the figures


Row = tuple[float, str]
"""A value and its unit."""


def figures(found: Figures, domains: int) -> dict[str, Row]:
    """Values and units of one part, by name; what was not counted is left out."""
    start = found.start
    rows: dict[str, Row] = {
        "start.ready": (start.ready, "s"),
        "start.served": (start.served, "s"),
        **_cost("start", start.cost, "s", 1.0),
        "memory": (start.of_domains / domains / 1e3, "KB/domain"),
        "memory.plane": (start.memory / 1e6, "MB"),
        "memory.envoy": (start.envoy_memory / 1e6, "MB"),
    }
    for algorithm, new in found.new.items():
        for name in ("first", "kept", "again"):
            rows |= _times(f"new.{algorithm}.{name}", [getattr(one, name) for one in new.visits])
        rows |= _cost(f"new.{algorithm}", new.cost, "ms", 1e3)
    for name, change in found.changes.items():
        rows |= _times(name, change.seconds)
        rows |= _cost(name, change.cost, "ms", 1e3)
    return rows


def _times(name: str, seconds: list[float]) -> dict[str, Row]:
    return {f"{name}.{word}": (quantile(seconds, q) * 1e3, "ms") for word, q in (("p50", 0.5), ("p99", 0.99))}


def _cost(name: str, cost: Cost, unit: str, factor: float) -> dict[str, Row]:
    rows: dict[str, tuple[float | None, str]] = {
        f"{name}.cpu": (cost.cpu * factor, unit),
        f"{name}.envoy_cpu": (cost.envoy_cpu * factor, unit),
        f"{name}.sent": (cost.sent, "bytes"),
        f"{name}.functions": (cost.functions, "functions"),
        f"{name}.hashed": (cost.hashed, "objects"),
    }
    return {each: (value, of) for each, (value, of) in rows.items() if value is not None}


def goals(part: Part) -> dict[str, float]:
    """What the figures of a part are to be, by name."""
    some: dict[str, float] = {}
    if part.name == "on_demand":
        some |= {f"new.{algorithm}.first.p99": 50.0 for algorithm in ("ec", "rsa")}
        some |= {f"new.{algorithm}.sent": 4096.0 for algorithm in ("ec", "rsa")}
    if part.name != ISTIOD and part.domains >= 20_000:
        some |= {"start.cpu": 15.0, "memory": 25.0}
    return some


def add(results: Results, matrix: Matrix) -> None:
    """All figures: Isthmus' with the peer's of the same number of domains, and what they say of each other. Where only
    the peer was measured, its figures are its own.
    """
    rows = {part: figures(found, part.domains) for part, found in matrix.items()}
    ours = {part.domains for part in rows if part.name != ISTIOD}
    for part, row in rows.items():
        if part.name == ISTIOD and part.domains in ours:
            continue
        peer = rows.get(Part(ISTIOD, part.domains), {}) if part.name != ISTIOD else {}
        bounds = goals(part)
        for name, (value, unit) in row.items():
            theirs = peer.get(name, (None, ""))[0]
            results.add(f"domains.{part.name}_{part.domains}.{name}", value, unit, goal=bounds.get(name), peer=theirs)
        first = "new.ec.first.p50"
        if part.name in OF_ISTIOD and first in row and first in peer:
            share = row[first][0] / peer[first][0]
            name = f"domains.{part.name}_{part.domains}.new.ec.first.of_istiod"
            results.add(name, share, "times", goal=OF_ISTIOD[part.name])
    _flatness(results, [(part, row) for part, row in rows.items() if part.name == "on_demand"])


def _flatness(results: Results, some: list[tuple[Part, dict[str, Row]]]) -> None:
    """How much dearer one more domain is beside the most than beside the fewest."""
    if len(some) < 2:
        return
    few, many = (row for _, row in (min(some, key=_count), max(some, key=_count)))
    for name in ("sent", "functions", "hashed", "cpu", "envoy_cpu"):
        full = f"new.ec.{name}"
        if full in few and full in many and few[full][0]:
            results.add(f"domains.flatness.{name}", many[full][0] / few[full][0], "times", goal=FLAT)


def _count(pair: tuple[Part, object]) -> int:
    return pair[0].domains


def measure(size: str, chosen: Iterable[Part]) -> None:
    """Parts one after the other, and their figures."""
    results, stolen = Results("domains", size), Stolen()
    results.add("machine.load.before", os.getloadavg()[0], "processes")
    results.add("machine.reference.before", reference(), "ms")
    matrix = {}
    for part in chosen:
        limits = SIZES[size]
        found = in_process(part, size, limits.peer_within if part.name == ISTIOD else limits.within)
        if found is not None:
            matrix[part] = found
    add(results, matrix)
    results.add("machine.stolen", stolen.percent(), "% of the time")
    results.add("machine.reference.after", reference(), "ms")
    results.save()


def main(arguments: Iterable[str]) -> None:
    """The matrix, or one part of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--part", type=Part.parse, action="append", help="NAME:DOMAINS, instead of all")
    parser.add_argument("--measure", type=Part.parse, help=argparse.SUPPRESS)
    given: Any = parser.parse_args(list(arguments))
    size = SIZES[given.size]
    if given.measure:
        part: Part = given.measure
        amounts = size.peer_amounts if part.name == ISTIOD else size.amounts
        for found in measured(part.name, part.domains, amounts):
            sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
            sys.stdout.flush()
        return
    measure(given.size, given.part or parts(size))


if __name__ == "__main__":
    main(sys.argv[1:])
