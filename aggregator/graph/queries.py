"""Questions to a graph at rest: why an item is as it is, which sources made it, what a source reaches.

They recompute or walk; nothing is stored for them, so they cost nothing until somebody asks. They belong to the pages,
to `explain`, to `wait` and to the search for the object behind a rejected resource, never to a pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import msgspec

from aggregator.graph.collection import NOTHING, At, Collection, GraphError
from aggregator.graph.engine import Engine
from aggregator.graph.groups import contributions
from aggregator.graph.members import NOBODY
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


def why(engine: Engine, collection: Collection[Any, Any], item: Any) -> Why | None:
    """Run a derivation again on one item of the collection it stands on; None if there is no such item.

    Of a pair the item is (left key, right key), None unless the two meet. A function that raises tells `InternalError`,
    as it does in a pass. Raises GraphError if `collection` is no derivation.
    """
    if collection.kind not in ("derive", "expand", "pair"):
        raise GraphError(f"{collection} is not derived item by item")
    at = At(engine, collection.number)
    arguments = _met(engine, collection, *item) if collection.kind == "pair" else _given(engine, collection, at, item)
    if arguments is None:
        return None
    try:
        result = collection.function(*arguments)
        produced = tuple(result) if collection.kind == "expand" else ((item, result),)
    except GraphError:
        raise
    except Exception as error:  # noqa: BLE001 - see `Engine.raised`
        produced = ((item, Withheld("InternalError", str(error))),)
    reads = tuple(
        Read(engine.collections[number].name, key, key in engine.state.values[number]) for number, key in at.reads
    )
    return Why(produced, reads, tuple(at.notes))


def _given(engine: Engine, derivation: Collection[Any, Any], at: At, item: Any) -> tuple[Any, ...] | None:
    """What a derivation is called with for one item."""
    value = engine.state.values[derivation.of[0].number].get(item, MISSING)
    return None if value is MISSING else (at, item, value)


def _met(engine: Engine, pair: Collection[Any, Any], one: Any, other: Any) -> tuple[Any, ...] | None:
    """What a pair is called with for two members, if they share a group."""
    left, right = pair.of
    lefts, rights = engine.state.values[left.number], engine.state.values[right.number]
    for source in left.of:
        for group in contributions(left, one, engine.state.values[source.number].get(one, MISSING)):
            ours, theirs = lefts.get(group, NOTHING), rights.get(group, NOTHING)
            if one in ours and other in theirs:
                return one, ours[one], other, theirs[other]
    return None


def _parents(engine: Engine, collection: Collection[Any, Any], key: Any) -> Iterator[tuple[Collection[Any, Any], Any]]:
    """What one item was made of, one step back; what was only read does not count."""
    state, number = engine.state, collection.number
    if collection.kind in ("derive", "latch", "allocation"):
        yield collection.of[0], key
    elif collection.kind == "expand":
        item = state.producers[number].get(key, MISSING)
        if item is not MISSING:
            yield collection.of[0], item
    elif collection.kind == "index":
        for member in state.values[number].get(key, NOTHING):
            yield from _holding(engine, collection, member)
    elif collection.kind == "fold":
        for source in collection.of:
            for member, value in state.values[source.number].items():
                if any(group == key for group, _, _ in contributions(collection, member, value)):
                    yield source, member
    elif collection.kind == "pair":
        for index, member in zip(collection.of, key, strict=True):
            yield from _holding(engine, index, member)


def _holding(engine: Engine, group: Collection[Any, Any], member: Any) -> Iterator[tuple[Collection[Any, Any], Any]]:
    """The items behind one member of an index."""
    for source in group.of:
        if member in engine.state.values[source.number]:
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
    for number, reads in state.readers[collection.number].get(key, NOBODY):
        for item in state.records[number][reads]:
            yield from _made_of(engine, engine.collections[number], item)
    value = state.values[collection.number].get(key, MISSING)
    for number in engine.standing_on[collection.number]:
        later = engine.collections[number]
        if later.kind in ("derive", "expand"):
            yield from _made_of(engine, later, key)
        elif later.kind in ("latch", "allocation"):
            yield later, key
            yield later.of[1], key
        elif later.kind == "index":
            for group in contributions(later, key, value):
                yield later, group
                yield from _pairs(engine, later, group, key)
        elif later.kind == "fold":
            for group, _, _ in contributions(later, key, value):
                yield later, group


def _pairs(
    engine: Engine, index: Collection[Any, Any], group: Any, member: Any
) -> Iterator[tuple[Collection[Any, Any], Any]]:
    """The pairs that one member of a group is part of, withheld ones included."""
    for number in engine.standing_on[index.number]:
        pair = engine.collections[number]
        if pair.kind == "pair":
            left, right = pair.of
            if left is index:
                for other in engine.state.values[right.number].get(group, NOTHING):
                    yield pair, (member, other)
            if right is index:
                for one in engine.state.values[left.number].get(group, NOTHING):
                    yield pair, (one, member)


def _made_of(engine: Engine, derivation: Collection[Any, Any], item: Any) -> Iterator[tuple[Collection[Any, Any], Any]]:
    if derivation.kind == "derive":
        yield derivation, item
    else:
        for key in engine.state.outputs[derivation.number].get(item, ()):
            yield derivation, key


def reached(
    engine: Engine, source: Collection[Any, Any], key: Hashable, after: Engine | None = None
) -> dict[str, set[Hashable]]:
    """The published items that stand, at whatever distance, on one item of a source: publication -> keys.

    Given a fork in which the item has changed as `after`, also whatever that change changes: steps of the one and
    of the other graph may then alternate, as where an item leaves a group and so brings another one forward.
    """
    engines = (engine,) if after is None else (engine, after)
    found: dict[str, set[Hashable]] = {}
    seen = {(source.number, key)}
    waiting: list[tuple[Collection[Any, Any], Any]] = [(source, key)]
    while waiting:
        at, item = waiting.pop()
        publication = engine.publications.get(at.number)
        if publication is not None and any(item in one.state.values[at.number] for one in engines):
            found.setdefault(publication, set()).add(item)
        for one in engines:
            for child in _children(one, at, item):
                mark = (child[0].number, child[1])
                if mark not in seen:
                    seen.add(mark)
                    waiting.append(child)
    return found
