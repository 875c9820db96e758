"""Groups that follow their members: index, fold and pair.

Each takes only what changed in the collections it stands on. No derivation may read a collection that grows with the
mesh, so whatever looks at many items is one of these: an index for small groups, a fold for running sums (the capacity
of a service with 5,000 endpoints costs one subtraction and one addition), a pair for "every view times every item".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from aggregator.graph.collection import Collection
from aggregator.graph.engine import Engine
from aggregator.graph.outcome import MISSING, Withheld


def index_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """Put changed members into their groups. A group's change is the old value of each changed member."""
    groups_of = collection.function
    groups = engine.state.values[collection.number]
    changed = engine.changed[collection.number]
    for source in collection.of:
        values = engine.state.values[source.number]
        for key, old in engine.changed[source.number].items():
            new = values.get(key, MISSING)
            before = () if old is MISSING else dict.fromkeys(groups_of(key, old))
            after = () if new is MISSING else dict.fromkeys(groups_of(key, new))
            for group in before:
                if group not in after:
                    members = engine.inner(groups, group)
                    changed.setdefault(group, {})[key] = members.pop(key)
                    if not members:
                        del groups[group]
            for group in after:
                members = engine.inner(groups, group)
                changed.setdefault(group, {})[key] = members.get(key, MISSING)
                members[key] = new
            yield


def fold_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """Add and subtract the contributions of changed members; a sum of zero is no tag, a group without tags is none."""
    contributions = collection.function
    differences: dict[Hashable, dict[Hashable, int]] = {}
    for source in collection.of:
        values = engine.state.values[source.number]
        for key, old in engine.changed[source.number].items():
            new = values.get(key, MISSING)
            before = [] if old is MISSING else list(contributions(key, old))
            after = [] if new is MISSING else list(contributions(key, new))
            if before != after:
                for sign, amounts in ((-1, before), (1, after)):
                    for group, tag, amount in amounts:
                        difference = differences.setdefault(group, {})
                        difference[tag] = difference.get(tag, 0) + sign * amount
            yield
    sums = engine.state.values[collection.number]
    for group, difference in differences.items():
        if any(difference.values()):
            total = dict(sums.get(group, ()))
            for tag, amount in difference.items():
                total[tag] = total.get(tag, 0) + amount
                if not total[tag]:
                    del total[tag]
            engine.set(collection.number, group, total or MISSING)
        yield


def pair_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """Keep one item per match of two indexes. Costs the changed members of one side times the members of the other."""
    left, right = collection.of
    number, matched = collection.number, collection.function
    lefts, rights = engine.state.values[left.number], engine.state.values[right.number]
    left_changed, right_changed = engine.changed[left.number], engine.changed[right.number]

    def match(group: Hashable, one: Hashable, other: Hashable) -> None:
        ours, theirs = lefts.get(group, {}), rights.get(group, {})
        value: Any = MISSING
        if one in ours and other in theirs:
            value = matched(one, ours[one], other, theirs[other])
            if type(value) is Withheld:
                counter = (collection.name, value.code)
                engine.withheld[counter] = engine.withheld.get(counter, 0) + 1
                value = MISSING
        engine.set(number, (one, other), value)

    for group in {**left_changed, **right_changed}:
        changed_ones, changed_others = left_changed.get(group, {}), right_changed.get(group, {})
        for one in changed_ones:
            for other in {**rights.get(group, {}), **changed_others}:
                match(group, one, other)
                yield
        for other in changed_others:
            for one in lefts.get(group, {}):
                if one not in changed_ones:
                    match(group, one, other)
                    yield
