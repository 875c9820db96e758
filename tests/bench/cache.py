"""What a table costs: time of a change, of hearing of it, of a relist that changes nothing; memory at rest; roots.

Every figure is a plain function that returns numbers; what prints or compares them stands elsewhere. Times are CPU
times of this process, the best of several rounds. `python -m tests.bench.cache` prints them all.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable

import msgspec

from aggregator.cache.journal import MemoryJournal
from aggregator.cache.replication import Follower, MessagePackCodec, Publisher
from aggregator.cache.table import Cursor, Table
from tests.bench.results import Results

Key = tuple[str, ...]

ROUNDS = 7


class Pod(msgspec.Struct, frozen=True, gc=False):
    """About as much as a fact holds."""

    node: str
    addresses: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    generation: int


def keys(rows: int) -> list[Key]:
    """Keys of pods of one cluster in 30 namespaces."""
    return [("west", "Pod", f"namespace-{number % 30}", f"web-{number}") for number in range(rows)]


def pods(rows: int, generation: int = 0) -> list[Pod]:
    """New objects every time, equal for an equal generation."""
    labels = (("app", "web"), ("version", "1"))
    return [
        Pod(f"node-{number % 100}", (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",), labels, generation)
        for number in range(rows)
    ]


def filled(rows: int) -> tuple[Table[Key, Pod], list[Key]]:
    """A table with that many pods, and their keys."""
    table: Table[Key, Pod] = Table("facts")
    names = keys(rows)
    table.replace(("west",), zip(names, pods(rows), strict=True))
    return table, names


def seconds(run: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """The least CPU time of several runs, each after `before`, which is not counted."""
    best = float("inf")
    for _ in range(ROUNDS):
        before()
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def change_microseconds(
    readers: int, together: int = 1, *, taking: bool = False, rows: int = 5_000, stretch: int = 250
) -> float:
    """One change of a row, `together` in a call, with so many readers that have something pending.

    `taking`: the first reader takes after every call. The best of many stretches of so many changes, since a stretch is
    short enough to be left alone by the rest of the machine.
    """
    table, names = filled(rows)
    cursors = [table.cursor("west", from_start=False) for _ in range(readers)]
    best = float("inf")
    for generation in range(1, ROUNDS + 1):
        changes = list(zip(names, pods(rows, generation), strict=True))
        calls = [changes[start : start + together] for start in range(0, rows, together)]
        for cursor in cursors:
            cursor.take()
        step = max(1, stretch // together)
        for first in range(0, len(calls), step):
            part = calls[first : first + step]
            start = time.process_time()
            for call in part:
                table.apply(call)
                if taking:
                    cursors[0].take()
            best = min(best, (time.process_time() - start) / (len(part) * together))
    return best * 1e6


def take_microseconds(changes: int, rows: int = 5_000) -> float:
    """A take of so many changed keys."""
    table, names = filled(rows)
    cursor = table.cursor("west", from_start=False)
    generation = 0

    def prepare() -> None:
        nonlocal generation
        generation += 1
        table.apply(zip(names, pods(changes, generation), strict=False))

    return seconds(cursor.take, prepare) * 1e6


def replace_equal(rows: int = 5_000) -> dict[str, float]:
    """A relist that changes nothing: milliseconds, and bytes that stay allocated afterwards."""
    table, names = filled(rows)
    items = list(zip(names, pods(rows), strict=True))
    spent = seconds(lambda: table.replace(("west",), items))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    table.replace(("west",), items)
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {"ms": spent * 1e3, "bytes kept": kept}


def bytes_per_row(rows: int = 40_000) -> float:
    """Memory of a row at rest beyond its key and value, with a reader that has read everything."""
    names, values = keys(rows), pods(rows)
    gc.collect()
    tracemalloc.start()
    table: Table[Key, Pod] = Table("facts")
    cursor = table.cursor("west")
    table.apply(zip(names, values, strict=True))
    cursor.take()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / rows


def bytes_per_unread_key(rows: int = 40_000, changes: int = 4) -> float:
    """Memory of the change log for a reader that never takes, per key that changed `changes` times."""
    table, names = filled(rows)
    cursor = table.cursor("west", from_start=False)
    generations = [list(zip(names, pods(rows, generation), strict=True)) for generation in range(1, changes + 1)]
    gc.collect()
    tracemalloc.start()
    for generation in generations:
        for item in generation:
            table.apply((item,))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    cursor.close()
    return used / rows


def wake(readers: int = 1_000, changes: int = 1) -> dict[str, float]:
    """A change that wakes so many readers of one partition: ringing all bells, and one reader's take (microseconds)."""
    table, names = filled(5_000)
    rung: list[int] = []
    cursors: list[Cursor[Key, Pod]] = [
        table.cursor("west", bell=lambda: rung.append(1), from_start=False) for _ in range(readers)
    ]
    apply_best = take_best = float("inf")
    for generation in range(1, ROUNDS + 1):
        items = list(zip(names, pods(changes, generation), strict=False))
        start = time.process_time()
        table.apply(items)
        middle = time.process_time()
        for cursor in cursors:
            cursor.take()
        end = time.process_time()
        apply_best, take_best = min(apply_best, middle - start), min(take_best, end - middle)
    if len(rung) != readers * ROUNDS:
        raise AssertionError(f"{len(rung)} bells for {readers * ROUNDS}")
    return {"ring all": apply_best * 1e6, "take of each": take_best / readers * 1e6}


def root(rows: int = 40_000) -> dict[str, float]:
    """The first root of a partition (milliseconds), and the next after one row changed (microseconds)."""
    names, values = keys(rows), pods(rows)
    table: Table[Key, Pod] = Table("facts")
    generation = 0

    def anew() -> None:
        nonlocal table
        table = Table("facts")
        table.apply(zip(names, values, strict=True))

    def change() -> None:
        nonlocal generation
        generation += 1
        table.apply(zip(names[:1], pods(1, generation), strict=True))

    first = seconds(lambda: table.root("west"), anew)
    return {"first ms": first * 1e3, "after a change us": seconds(lambda: table.root("west"), change) * 1e6}


def replication(rows: int = 40_000) -> dict[str, float]:
    """Microseconds per row through a journal in memory: filling both ends, and meeting a flush with equal content."""
    table, _ = filled(rows)
    journal = MemoryJournal()
    codec: MessagePackCodec[Pod] = MessagePackCodec(Pod)
    far: Table[Key, Pod] = Table("far")

    async def epoch() -> int:
        return 1

    publisher = Publisher(table, journal, "pods", codec, epoch=epoch, complete=lambda: True, partition="west")
    follower = Follower(far, journal, "pods", codec, partition="west")
    found: dict[str, float] = {}

    async def measure() -> None:
        for name in ("fill", "refill"):
            start = time.process_time()
            await publisher.step()
            middle = time.process_time()
            await follower.step()
            found[f"publish {name}"] = (middle - start) / rows * 1e6
            found[f"follow {name}"] = (time.process_time() - middle) / rows * 1e6
            journal.flush()

    asyncio.run(measure())
    if far.revision != 1 or far.root() != table.root():
        raise AssertionError("the refill was pushed")
    return found


def main() -> int:
    """Print every figure, and keep it."""
    results = Results("cache", "full")
    results.add("table: one change in a call, nobody reads", change_microseconds(0), "us", goal=2)
    results.add("table: one change in a call, one reads", change_microseconds(1), "us", goal=2.5)
    results.add("table: one change of 1,000 in a call, one reads", change_microseconds(1, 1_000), "us", goal=1)
    results.add("table: one change and the take of it", change_microseconds(1, taking=True), "us", goal=5)
    results.add("table: take of 1,000 changes, each", take_microseconds(1_000) / 1_000, "us", goal=0.5)
    relist = replace_equal()
    results.add("table: 5,000 equal rows replaced", relist["ms"], "ms", goal=5)
    results.add("table: 5,000 equal rows replaced, kept", relist["bytes kept"], "bytes", goal=1_000)
    results.add("table: a row at rest beyond key and value", bytes_per_row(), "bytes", goal=150)
    results.add("table: a changed key nobody takes", bytes_per_unread_key(), "bytes", goal=250)
    woken = wake()
    results.add("table: 1,000 readers woken by a change", woken["ring all"], "us", goal=1_000)
    results.add("table: take of each of 1,000 readers", woken["take of each"], "us", goal=3)
    results.add("table: take of 2,000 changes by each of 1,000", wake(changes=2_000)["take of each"], "us", goal=5)
    roots = root()
    results.add("table: first root of 40,000 rows", roots["first ms"], "ms", goal=250)
    results.add("table: root after one change", roots["after a change us"], "us", goal=150)
    for name, spent in replication().items():
        results.add(f"journal in memory: {name}, a row", spent, "us", goal=10)
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
