"""Latch: the last good value of an item whose derivation now yields nothing.

A certificate that no longer matches its key must not take a host down: while the object exists but its derivation is
withheld, the latch goes on giving the last value it saw. Last good values are an input, never hidden state: they live
in a source of their own, declared right behind the latch, are published under the latch's name so that the process can
keep them in a Table, and are given back to the source at the next start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aggregator.graph.collection import Collection
from aggregator.graph.engine import Engine
from aggregator.graph.outcome import MISSING


def latch_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """Pass good values on and remember them; stand in for withheld ones; forget what is gone."""
    derived, kept = collection.of
    (origin,) = derived.of
    values = engine.state.values
    origin_changed = engine.changed[origin.number]
    for item in {**engine.changed[derived.number], **engine.changed[kept.number], **origin_changed}:
        good = values[derived.number].get(item, MISSING)
        if good is not MISSING:
            engine.set(collection.number, item, good)
            engine.set(kept.number, item, good)
        elif item in values[origin.number]:
            engine.set(collection.number, item, values[kept.number].get(item, MISSING))
        else:
            engine.set(collection.number, item, MISSING)
            # An object seen to go takes its last good value with it; one not seen yet (a process that has just
            # started) keeps it.
            if origin_changed.get(item, MISSING) is not MISSING:
                engine.set(kept.number, item, MISSING)
        yield
