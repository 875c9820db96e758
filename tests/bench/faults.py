"""What Isthmus and what istiod do when something breaks: the same faults, on the same API servers, seen by ztunnels.

`python -m tests.bench.faults --size small|full` puts each through the rows of tests.bench.fault_rows and prints their
figures, Isthmus' own and istiod's as its peer; small has only rows that are done within seconds, unless they are named.
`--table` prints the newest figures of every row as the table of docs/benchmarks.md. A figure that is `inf` did not come
about while it was waited for.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable

from tests.bench.api_servers import ApiServers
from tests.bench.beside import Rig, Size
from tests.bench.fault_rows import ROWS, Row, Seen
from tests.bench.peers import Starter, peers
from tests.bench.results import RESULTS, Results

SIZES = {
    "small": Size(2, 30, 300, seconds=3, rest=1, pause=1, joins=2, clients=10, calm=0.5),
    "full": Size(2, 300, 4000, seconds=15, rest=10, pause=2, joins=5, clients=50),
}


def observed(row: Row, start: Starter, size: Size) -> list[Seen]:
    """One row, on API servers of its own."""
    with ApiServers(protobuf=True) as servers:
        return row.happens(Rig(servers, size), start)


def measure(size: str, rows: Iterable[Row]) -> None:
    """The rows, one after the other, each for both."""
    results = Results("faults", size)
    started = peers(build=size == "full")
    try:
        for row in rows:
            seen = {name: observed(row, start, SIZES[size]) for name, start in started.items()}
            theirs = {one.name: one.value for one in seen.get("istiod", [])}
            for one in seen["isthmus"]:
                name = f"faults.{row.number}.{one.name}"
                results.add(name, one.value, one.unit, goal=one.goal, least=one.least, peer=theirs.get(one.name))
    finally:
        results.save()


def table(size: str) -> list[str]:
    """The newest figures of every row as the lines of a Markdown table."""
    lines = (RESULTS / "faults.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["size"] == size]
    told = ["| # | fault | what was seen | expected | Isthmus | istiod |", "|---|---|---|---|---|---|"]
    for row in ROWS:
        of_row = f"faults.{row.number}."
        newest = {one["name"]: one for one in rows if one["name"].startswith(of_row)}
        for number, one in enumerate(newest.values()):
            what = one["name"].removeprefix(of_row).replace("_", " ")
            first = (str(row.number), row.fault) if number == 0 else ("", "")
            expected = one["goal"].replace("<=", "≤ ").replace(">=", "≥ ").replace("none", "")
            cells = [*first, what, expected, *(_shown(value, one["unit"]) for value in (one["value"], one["peer"]))]
            told.append(f"| {' | '.join(cells)} |")
    return told


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "not measured"
    return "not seen" if math.isinf(value) else f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:.0f} {unit}"


def main() -> None:
    """The rows of this size, or those that are named."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", choices=sorted(SIZES), default="small")
    arguments.add_argument("--row", type=int, action="append", choices=[row.number for row in ROWS])
    arguments.add_argument("--table", action="store_true", help="print the newest figures as a table")
    given = arguments.parse_args()
    if given.table:
        print("\n".join(table(given.size)))
        return
    named = given.row or [row.number for row in ROWS if given.size == "full" or row.soon]
    measure(given.size, [row for row in ROWS if row.number in named])


if __name__ == "__main__":
    main()
