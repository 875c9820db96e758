"""What clusters cost that are read through their API servers, and how soon their changes reach ztunnels.

`python -m tests.bench.watchers --size small|short|full`. Full is home and 10 remote clusters of 300 global services and
4,000 endpoints each, every one behind an API server of its own, by TLS, in one process (`api_servers`); short is as
much for less time. Its parts: clusters that come and go (`joining`), the way of a change to ztunnels (`arriving`), long
lists (`listing`), and the first two for Isthmus and istiod beside each other (`beside`), where istiod can be had: full
builds it, the others take it only if it was built before.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection

from tests.bench import beside
from tests.bench.api_servers import ApiServers
from tests.bench.arriving import served
from tests.bench.joining import registered
from tests.bench.listing import listing
from tests.bench.results import Results, Stolen, reference, wake
from tests.bench.watched import Mesh, Size

SIZES = {
    "small": Size(remotes=3, services=60, pods=600, seconds=3, rest=1, joins=4, rotations=6),
    "short": Size(remotes=10, services=300, pods=4000, seconds=5, rest=5, joins=5, rotations=20),
    "full": Size(remotes=10, services=300, pods=4000, seconds=30, rest=10, joins=50, rotations=300),
}


def within(size: str, results: Results, part: Callable[[Mesh, Results], None]) -> None:
    """A part that looks into the process of Isthmus."""
    with ApiServers() as servers:
        part(Mesh(servers, SIZES[size]), results)


def side_by_side(size: str, results: Results) -> None:
    """The part that has a peer."""
    with ApiServers(protobuf=True) as servers:
        beside.beside(servers, beside.SIZES[size], results, build=size == "full")


PARTS: dict[str, Callable[[str, Results], None]] = {
    "registered": lambda size, results: within(size, results, registered),
    "served": lambda size, results: within(size, results, served),
    "listing": listing,
    "beside": side_by_side,
}


def measure(size: str, parts: Collection[str]) -> None:
    """Run parts and print their figures."""
    results = Results("watchers", size)
    stolen = Stolen()
    results.add("machine.load.before", os.getloadavg()[0], "processes")
    results.add("machine.reference.before", reference(), "ms")
    results.add("machine.wake", wake(), "us")
    for part in parts:
        PARTS[part](size, results)
    results.add("machine.stolen", stolen.percent(), "% of the time")
    results.add("machine.load.after", os.getloadavg()[0], "processes")
    results.add("machine.reference.after", reference(), "ms")
    results.save()


def main() -> None:
    """All parts, or the one that is named."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", choices=sorted(SIZES), default="small")
    arguments.add_argument("--part", choices=sorted(PARTS))
    given = arguments.parse_args()
    measure(given.size, [given.part] if given.part else list(PARTS))


if __name__ == "__main__":
    main()
