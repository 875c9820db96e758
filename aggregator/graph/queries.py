"""Questions to a graph at rest: why an item is as it is, which sources made it, what a source reaches.

They recompute or walk; nothing is stored for them, so they cost nothing until somebody asks. They belong to the pages,
to `explain`, to `wait` and to the search for the object behind a rejected resource, never to a pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import msgspec

from aggregator.graph.collection import At, Collection, GraphError
from aggregator.graph.engine import Engine
from aggregator.graph.outcome import MISSING, Withheld


class Read(msgspec.Struct, frozen=True):
    """One read of an evaluation: which collection, which key, and whether anything was there."""

    collection: str
    key: Hashable
    found: bool


class Why(msgspec.Struct, frozen=True):
    """One evaluation, run again: what it yielded (values and reasons), what it read, what it noted."""

    produced: tuple[tuple[Hashable, Any], ...]
    reads: tuple[Read, ...]
    notes: tuple[tuple[Hashable, Any], ...]

    @property
    def withheld(self) -> tuple[Withheld, ...]:
        """The reasons among what was produced."""
        return tuple(value for _, value in self.produced if isinstance(value, Withheld))


def why(engine: Engine, collection: Collection[Any, Any], item: Hashable) -> Why | None:
    """Run the derivation of `collection` again on one item of the collection it stands on; None if there is no such item.

    Raises GraphError if `collection` is not derived by a function of one item.
    """
    if collection.kind not in ("derive", "expand"):
        raise GraphError(f"{collection} is not derived item by item")
    value = engine.state.values[collection.of[0].number].get(item, MISSING)
    if value is MISSING:
        return None
    at = At(engine, collection.number)
    result = collection.function(at, item, value)
    produced = ((item, result),) if collection.kind == "derive" else tuple(result)
    reads = tuple(
        Read(engine.collections[number].name, key, key in engine.state.values[number]) for number, key in at.reads
    )
    return Why(produced, reads, tuple(at.notes))


def _parents(engine: Engine, collection: Collection[Any, Any], key: Any) -> Iterator[tuple[Collection[Any, Any], Any]]:
    """What one item was made of, one step back; the reads of a derivation are left to the caller."""
    state, number = engine.state, collection.number
    if collection.kind == "derive":
        yield collection.of[0], key
    elif collection.kind == "expand":
        item = state.producers[number].get(key, MISSING)
        if item is not MISSING:
            yield collection.of[0], item
    elif collection.kind == "latch":
        yield collection.of[0], key
    elif collection.kind == "index":
        for member in state.values[number].get(key, ()):
            for source in collection.of:
                if member in state.values[source.number]:
                    yield source, member
    elif collection.kind == "fold":
        for source in collection.of:
            for member, value in state.values[source.number].items():
                if any(group == key for group, _, _ in collection.function(member, value)):
                    yield source, member
    elif collection.kind == "pair":
        one, other = key
        for index, member in ((collection.of[0], one), (collection.of[1], other)):
            for source in index.of:
                if member in state.values[source.number]:
                    yield source, member


def origins(engine: Engine, collection: Collection[Any, Any], key: Hashable) -> set[tuple[str, Hashable]]:
    """The items of sources that one item was made from, as (source name, key); what was only read does not count."""
    found: set[tuple[str, Hashable]] = set()
    seen = {(collection.number, key)}
    waiting = [(collection, key)]
    while waiting:
        at, item = waiting.pop()
        if at.kind == "source":
            found.add((at.name, item))
            continue
        for parent in _parents(engine, at, item):
            mark = (parent[0].number, parent[1])
            if mark not in seen:
                seen.add(mark)
                waiting.append(parent)
    return found


def _children(engine: Engine, collection: Collection[Any, Any], key: Any) -> Iterator[tuple[Collection[Any, Any], Any]]:
    """What stands on one item, one step forward."""
    state = engine.state
    for number, reads in state.readers[collection.number].get(key, ()):
        for item in state.records[number][reads]:
            yield from _made_of(engine, engine.collections[number], item)
    value = state.values[collection.number].get(key, MISSING)
    for later in engine.collections[collection.number + 1 :]:
        if collection not in later.of:
            continue
        if later.kind in ("derive", "expand"):
            yield from _made_of(engine, later, key)
        elif later.kind == "latch":
            yield later, key
        elif value is MISSING:
            continue
        elif later.kind == "index":
            for group in later.function(key, value):
                yield later, group
                for pair in engine.collections[later.number + 1 :]:
                    if pair.kind == "pair" and later in pair.of:
                        mine = pair.of.index(later)
                        for other in state.values[pair.of[1 - mine].number].get(group, ()):
                            yield pair, (key, other) if mine == 0 else (other, key)
        elif later.kind == "fold":
            for group, _, _ in later.function(key, value):
                yield later, group


def _made_of(engine: Engine, derivation: Collection[Any, Any], item: Any) -> Iterator[tuple[Collection[Any, Any], Any]]:
    if derivation.kind == "derive":
        yield derivation, item
    else:
        for key in engine.state.outputs[derivation.number].get(item, ()):
            yield derivation, key


def reached(engine: Engine, source: Collection[Any, Any], key: Hashable) -> dict[str, set[Hashable]]:
    """The published items that stand, at whatever distance, on one item of a source: publication -> keys."""
    found: dict[str, set[Hashable]] = {}
    seen = {(source.number, key)}
    waiting: list[tuple[Collection[Any, Any], Any]] = [(source, key)]
    while waiting:
        at, item = waiting.pop()
        publication = engine.publications.get(at.number)
        if publication is not None and item in engine.state.values[at.number]:
            found.setdefault(publication, set()).add(item)
        for child in _children(engine, at, item):
            mark = (child[0].number, child[1])
            if mark not in seen:
                seen.add(mark)
                waiting.append(child)
    return found
