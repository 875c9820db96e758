"""Allocation: each claim gets a value of its own, out of a common pool, and keeps it for as long as it stands.

Addresses for services that have none are given so: two services must never get the same one, none may move because
others come or go, and a process that starts anew should give the same ones again. So a value is what the claim names
(`Claim.wanted`, such as the address in an object's status) if that is free, else the one it has, else the first free
one of its own `choices`, which should depend on nothing but its key. Claims of one pass are served in their total
order, those that name a value first: together they get the same values in whatever order they were heard of.

What was given is an input, never hidden state: it is kept in a source of its own, as the latch does it, published under
the allocation's name, and given back at the next start. A second source tells who holds a value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import msgspec

from aggregator.graph.collection import Collection, GraphError
from aggregator.graph.engine import Engine
from aggregator.graph.outcome import MISSING


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A claim to a value: its place in the total order of claims, and the value it names, if any.

    While it `waits` it keeps what it has and gets nothing: not all claims are known that may come before it.
    """

    order: tuple[Any, ...]
    wanted: Hashable | None = None
    waits: bool = False


def allocation_step(engine: Engine, allocation: Collection[Any, Any]) -> Iterator[None]:
    """Free what claims that are gone had; give to those that came what they name, have, or find."""
    claims, kept = allocation.of[:2]
    values = engine.state.values
    standing: Any = values[claims.number]
    pool = _Pool(engine, allocation)
    serve: dict[Hashable, None] = {}
    for item in list(engine.changed[kept.number]):
        if pool.restored(item) and item in standing:
            serve[item] = None
        yield
    for item in engine.changed[claims.number]:
        if item in standing:
            serve[item] = None
        else:
            engine.set(allocation.number, item, MISSING)
            pool.free(item)
        yield
    serve = dict.fromkeys(sorted(serve, key=lambda one: standing[one].order))
    for item in serve:
        claim: Claim = standing[item]
        if claim.wanted is not None and not claim.waits and pool.is_free(claim.wanted, item):
            pool.give(item, claim.wanted)
        yield
    if pool.freed and len(standing) > len(values[allocation.number]):
        unserved = [item for item in standing if item not in values[allocation.number]]
        serve = dict.fromkeys(sorted({*serve, *unserved}, key=lambda one: standing[one].order))
    for item in serve:
        if item not in values[kept.number] and not standing[item].waits:
            pool.find(item)
        engine.set(allocation.number, item, values[kept.number].get(item, MISSING))
        yield


class _Pool:
    """Who holds what, during one pass."""

    def __init__(self, engine: Engine, allocation: Collection[Any, Any]) -> None:
        claims, self._kept, self._holders = allocation.of
        self._engine = engine
        self._allocation = allocation
        self._standing: Any = engine.state.values[claims.number]
        self._values: Any = engine.state.values[self._kept.number]
        self._holder_of: Any = engine.state.values[self._holders.number]
        self.freed = False
        """Whether something is free now that was not before."""

    def restored(self, item: Hashable) -> bool:
        """Enter what was given back from before the start. Of two who had one value the first one keeps it."""
        value = self._values.get(item, MISSING)
        if value is MISSING:
            return False
        if self._holder_of.get(value, item) != item:
            self._engine.set(self._kept.number, item, MISSING)
            return False
        self._engine.set(self._holders.number, value, item)
        return True

    def is_free(self, value: Hashable, item: Hashable) -> bool:
        """Whether nobody but `item` holds a value. Who has not been heard of since the start only keeps it warm."""
        holder = self._holder_of.get(value, item)
        return holder == item or holder not in self._standing

    def find(self, item: Hashable) -> None:
        """Give an item the first of its choices that nobody holds, or else the first that is only kept warm."""
        self._engine.ran(self._allocation.number)
        warm: Any = MISSING
        try:
            for value in self._allocation.function(item):
                if value not in self._holder_of:
                    self.give(item, value)
                    return
                if warm is MISSING and self.is_free(value, item):
                    warm = value
        except GraphError:
            raise
        except Exception as error:  # noqa: BLE001 - see `Engine.raised`
            self._engine.raised(self._allocation, item, error)
        if warm is not MISSING:
            self.give(item, warm)

    def give(self, item: Hashable, value: Hashable) -> None:
        """Let an item hold a value that is free, and not what it held."""
        if self._values.get(item, MISSING) == value:
            return
        self.free(item)
        self.free(self._holder_of.get(value, MISSING))
        self._engine.set(self._kept.number, item, value)
        self._engine.set(self._holders.number, value, item)

    def free(self, item: Hashable) -> None:
        """Let an item hold nothing."""
        value = self._values.get(item, MISSING)
        if value is not MISSING:
            self._engine.set(self._kept.number, item, MISSING)
            self._engine.set(self._holders.number, value, MISSING)
            self.freed = True
