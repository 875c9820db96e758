"""Groups that follow their members: index, fold and pair.

Each takes only what changed in the collections it stands on. No derivation may read a collection that grows with the
mesh, so whatever looks at many items is one of these: an index for small groups, a fold for running sums (the capacity
of a service with 5,000 endpoints costs one subtraction and one addition), a pair for "every view times every item".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from aggregator.graph.collection import NOTHING, Collection, GraphError
from aggregator.graph.engine import Engine
from aggregator.graph.outcome import MISSING, Withheld


def index_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """Put changed members into their groups. Of a group that has changed it is kept which members have."""
    groups = engine.state.values[collection.number]
    changed = engine.changed[collection.number]
    for key, new, before, after in _changes(engine, collection):
        if before != after:
            for group in dict.fromkeys(before):
                if group not in after:
                    engine.leave(groups, group, key)
                    changed.setdefault(group, {})[key] = None
        for group in after:
            engine.inner(groups, group)[key] = new
            changed.setdefault(group, {})[key] = None
        yield


def fold_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """Add and subtract the contributions of changed members; a sum of zero is no tag, a group without tags is none."""
    sums = engine.state.values[collection.number]
    totals: dict[Hashable, dict[Hashable, int]] = {}
    for _, _, before, after in _changes(engine, collection):
        if before != after:
            for sign, amounts in ((-1, before), (1, after)):
                for group, tag, amount in amounts:
                    total = totals.get(group)
                    if total is None:
                        total = totals[group] = dict(sums.get(group, NOTHING))
                    amount = total.get(tag, 0) + sign * amount
                    if amount:
                        total[tag] = amount
                    else:
                        total.pop(tag, None)
        yield
    for group, total in totals.items():
        engine.set(collection.number, group, total or MISSING)
        yield


def pair_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """Keep one item per match of two indexes. Costs the changed members of one side times the members of the other.

    First those are parted of whom one has left the group, then those are matched of whom one has changed: members that
    move together from one group to another, or meet in two and leave one of them, thus keep their item.
    """
    left, right = collection.of
    lefts, rights = engine.state.values[left.number], engine.state.values[right.number]
    left_changed, right_changed = engine.changed[left.number], engine.changed[right.number]
    groups = {**left_changed, **right_changed}
    for group in groups:
        ones, others = lefts.get(group, NOTHING), rights.get(group, NOTHING)
        gone_ones = [one for one in left_changed.get(group, NOTHING) if one not in ones]
        gone_others = [other for other in right_changed.get(group, NOTHING) if other not in others]
        if not gone_ones and not gone_others:
            continue
        for some, rest in ((gone_ones, others), (gone_ones, gone_others), (ones, gone_others)):
            for one in some if rest else ():
                for other in rest:
                    engine.set(collection.number, (one, other), MISSING)
                    yield
    for group in groups:
        ones, others = lefts.get(group, NOTHING), rights.get(group, NOTHING)
        changed_ones = left_changed.get(group, NOTHING)
        for one in changed_ones:
            if one in ones:
                for other, value in others.items():
                    _match(engine, collection, one, ones[one], other, value)
                    yield
        for other in right_changed.get(group, NOTHING):
            if other in others:
                for one, value in ones.items():
                    if one not in changed_ones:
                        _match(engine, collection, one, value, other, others[other])
                        yield


def _match(engine: Engine, pair: Collection[Any, Any], one: Hashable, ours: Any, other: Hashable, theirs: Any) -> None:
    engine.ran(pair.number)
    try:
        value = pair.function(one, ours, other, theirs)
    except GraphError:
        raise
    except Exception as error:  # noqa: BLE001 - see `Engine.raised`
        value = engine.raised(pair, (one, other), error)
    if type(value) is Withheld:
        engine.count(pair, value)
        value = MISSING
    engine.set(pair.number, (one, other), value)


def contributions(collection: Collection[Any, Any], key: Hashable, value: Any) -> tuple[Any, ...]:
    """What one item brings to an index (groups) or a fold (group, tag, amount): nothing if MISSING or if it fails."""
    if collection.counted(key, value) is MISSING:
        return ()
    try:
        return tuple(collection.function(key, value))
    except GraphError:
        raise
    except Exception:  # noqa: BLE001 - reported by the pass that took it in
        return ()


def _changes(
    engine: Engine, collection: Collection[Any, Any]
) -> Iterator[tuple[Hashable, Any, tuple[Any, ...], tuple[Any, ...]]]:
    """Changed members: key, value now, what they brought before and bring now. A function that raises is reported."""
    by, unless = collection.function, collection.unless
    for key, old, new in _merged(engine, collection.of) if len(collection.of) > 1 else _single(engine, *collection.of):
        if unless is not None:
            old, new = collection.counted(key, old), collection.counted(key, new)
            if old is MISSING and new is MISSING:
                continue
        before: tuple[Any, ...] = ()
        after: tuple[Any, ...] = ()
        try:
            if old is not MISSING:
                before = tuple(by(key, old))
        except Exception:  # noqa: BLE001, S110 - it was reported when it was new
            pass
        try:
            if new is not MISSING:
                after = tuple(by(key, new))
        except GraphError:
            raise
        except Exception as error:  # noqa: BLE001 - see `Engine.raised`
            engine.raised(collection, key, error)
        yield key, new, before, after


def _single(engine: Engine, source: Collection[Any, Any]) -> Iterator[tuple[Hashable, Any, Any]]:
    """Changed items of one collection: key, value before, value now."""
    values = engine.state.values[source.number]
    return ((key, old, values.get(key, MISSING)) for key, old in engine.changed[source.number].items())


def _merged(engine: Engine, of: tuple[Collection[Any, Any], ...]) -> Iterator[tuple[Hashable, Any, Any]]:
    """The same of several collections. Where more than one holds a key, the first one's item counts."""
    changed, values = engine.changed, engine.state.values
    for source in of:
        number = source.number
        changes = changed[number]
        if not changes:
            continue
        mine = values[number]
        others = [
            one for other in of if other is not source for one in (values[other.number], changed[other.number]) if one
        ]
        for key, old in changes.items():
            for other in others:
                if key in other:
                    if not any(key in changed[earlier.number] for earlier in of[: of.index(source)]):
                        yield from _first([(changed[one.number], values[one.number]) for one in of], key)
                    break
            else:
                yield key, old, mine.get(key, MISSING)


def _first(
    sources: Sequence[tuple[Mapping[Hashable, Any], Mapping[Hashable, Any]]], key: Hashable
) -> Iterator[tuple[Hashable, Any, Any]]:
    """A key that several collections hold or held: the first one's value before and now, if they differ."""
    old: Any = MISSING
    new: Any = MISSING
    for before, now in sources:
        if old is MISSING:
            old = before[key] if key in before else now.get(key, MISSING)
        if new is MISSING:
            new = now.get(key, MISSING)
    if old != new:
        yield key, old, new
