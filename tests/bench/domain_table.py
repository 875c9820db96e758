"""The newest figures of domains as one table: `python -m tests.bench.domain_table --size full`, for docs/benchmarks.md.

In: bench-results/domains.jsonl. Out: Markdown, a line for each figure, a column for each way of serving and number of
domains. Parts that were measured one by one stand beside each other as those of one run do.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.bench.results import RESULTS, _number
from tests.bench.served import ISTIOD

_NAME = re.compile(r"domains\.(?P<way>[a-z_]+)_(?P<domains>\d+)\.(?P<figure>.+)")

Column = tuple[str, int]
"""A way of serving, and how many domains."""


def newest(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[Column, tuple[float, str]]]:
    """Of each figure the newest value and its unit, by column; the peer's too, where it stood beside ours."""
    found: dict[str, dict[Column, tuple[float, str]]] = {}
    for row in rows:
        match = _NAME.fullmatch(row["name"])
        if match is None:
            continue
        figures = found.setdefault(match["figure"], {})
        domains = int(match["domains"])
        figures[match["way"], domains] = (row["value"], row["unit"])
        if row["peer"] is not None:
            figures[ISTIOD, domains] = (row["peer"], row["unit"])
    return found


def table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Its lines."""
    found = newest(rows)
    columns = sorted({column for figures in found.values() for column in figures}, key=_order)
    heads = ["figure", "unit", *(f"{way.replace('_', ' ')}, {domains:,}" for way, domains in columns)]
    told = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for figure, values in found.items():
        unit = next(iter(values.values()))[1]
        cells = [_number(values[column][0]) if column in values else "" for column in columns]
        told.append(f"| {' | '.join([f'`{figure}`', unit, *cells])} |")
    return told


def _order(column: Column) -> tuple[bool, str, int]:
    """The peer last."""
    way, domains = column
    return (way == ISTIOD, way, domains)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", choices=("small", "full"), default="full")
    given = arguments.parse_args()
    lines = (RESULTS / "domains.jsonl").read_text().splitlines()
    print("\n".join(table(row for row in map(json.loads, lines) if row["size"] == given.size)))


if __name__ == "__main__":
    main()
