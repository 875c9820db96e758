"""Derivations: functions of one item, run again when the item or something they read has changed.

`derive` gives at most one item under the same key, `expand` any number under keys of their own. A function that raises
costs only its own item: it is withheld, reported with the Pass, and run again like any other when what it read changes.
Here the records of what was read are kept as well (see `engine.State`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from aggregator.graph.collection import CLOCK, At, Collection, GraphError
from aggregator.graph.engine import Engine, Reads
from aggregator.graph.members import NOBODY, Members
from aggregator.graph.outcome import MISSING, Withheld


def derive_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """One item in, at most one item out, under the same key."""
    number = collection.number
    at = At(engine, number)
    dirty, engine.dirty[number] = engine.dirty[number], {}
    for item in dirty:
        result = _evaluate(engine, collection, at, item)
        if type(result) is Withheld:
            engine.count(collection, result)
            result = MISSING
        engine.set(number, item, result)
        yield


def expand_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """One item in, any number of items out, under keys that no other item produces.

    Should two items claim one key all the same, that is reported, and the first of them by the text of its key has it,
    so that the outcome depends on what there is and not on what came first.
    """
    number = collection.number
    at = At(engine, number)
    state = engine.state
    outputs, producers, rivals = state.outputs[number], state.producers[number], state.rivals[number]
    waiting, engine.dirty[number] = engine.dirty[number], {}
    disputed: dict[Hashable, None] = {}
    while waiting:
        for item in waiting:
            new = _expanded(engine, collection, at, item)
            old = outputs.get(item, ())
            for key in old:
                if key in new:
                    continue
                if producers.get(key, MISSING) != item:
                    engine.part(rivals, key, item)
                    continue
                engine.set(number, key, MISSING)
                del producers[key]
                if key in rivals:
                    disputed[key] = None
            for key, value in new.items():
                owner = producers.get(key, MISSING)
                if owner is not MISSING and owner != item:
                    disputed[key] = None
                    engine.join(rivals, key, owner)
                producers[key] = item
                if key in rivals:
                    engine.part(rivals, key, item)
                engine.set(number, key, value)
            if not new:
                if old:
                    del outputs[item]
            elif tuple(new) != old:
                outputs[item] = tuple(new)
            yield
        waiting = _heirs(disputed, producers, rivals)
    for key in disputed:
        for rival in rivals.get(key, NOBODY):
            engine.fail(collection, rival, f"{key!r} is produced twice, by {producers[key]!r} too")


def _heirs(
    disputed: Iterable[Hashable], producers: Mapping[Hashable, Hashable], rivals: Mapping[Hashable, Iterable[Hashable]]
) -> dict[Hashable, None]:
    """The rivals who come before the producer of a key, or whose key has none any more: they are to produce it."""
    heirs: dict[Hashable, None] = {}
    for key in disputed:
        if key in rivals:
            first = min(rivals[key], key=repr)
            if key not in producers or repr(first) < repr(producers[key]):
                heirs[first] = None
    return heirs


def _expanded(engine: Engine, collection: Collection[Any, Any], at: At, item: Hashable) -> dict[Hashable, Any]:
    """What one item expands to, without the withheld."""
    result = _evaluate(engine, collection, at, item)
    if result is MISSING:
        return {}
    new: dict[Hashable, Any] = {}
    for key, value in result:
        if type(value) is Withheld:
            engine.count(collection, value)
        elif key in new:
            engine.fail(collection, item, f"{key!r} is produced twice by one item")
        else:
            new[key] = value
    return new


def _evaluate(engine: Engine, collection: Collection[Any, Any], at: At, item: Hashable) -> Any:
    """Run a derivation on one item, keep what it read and noted, and return what it yielded.

    Of an expansion that is a list of (key, outcome); of an item that is gone it is MISSING.
    """
    number = collection.number
    value = engine.state.values[collection.of[0].number].get(item, MISSING)
    result: Any = MISSING
    if value is not MISSING:
        engine.ran(number)
        try:
            result = collection.function(at, item, value)
            if collection.kind == "expand":
                result = [(key, outcome) for key, outcome in result]
        except GraphError:
            raise
        except Exception as error:  # noqa: BLE001 - see `Engine.raised`
            at.notes.extend(engine.blame(collection, item, error))
            reason = engine.raised(collection, item, error)
            result = reason if collection.kind == "derive" else ((item, reason),)
    if at.reads or item in engine.state.reads[number]:
        _record(engine, number, item, tuple(at.reads))
        at.reads.clear()
    if at.notes or (engine.state.findings and (number, item) in engine.state.findings):
        engine.keep_findings(number, item, tuple(at.notes))
        at.notes.clear()
    return result


def _record(engine: Engine, number: int, item: Hashable, reads: Reads) -> None:
    """Note what `item` read: move it from its old record to the one it now shares with others."""
    state = engine.state
    reads_of, records = state.reads[number], state.records[number]
    old = reads_of.get(item)
    if old == reads:
        return
    if old is not None:
        del reads_of[item]
        engine.part(records, old, item)
        if old not in records:
            for where, key in old:
                engine.part(state.readers[where], key, (number, old))
    if not reads:
        return
    sharing: Members = records.get(reads, NOBODY)
    if sharing:
        # One tuple for all who share a record: the one its first item brought. The newest has it too, and is found
        # without passing over the places of those who have left.
        reads = reads_of[next(reversed(sharing))]
    else:
        reader = (number, reads)
        for where, key in reads:
            first = key not in state.readers[where]
            engine.join(state.readers[where], key, reader)
            if first and where == CLOCK:
                engine.wait_for(key)  # type: ignore[arg-type]  # keys of the clock are moments
    engine.join(records, reads, item)
    reads_of[item] = reads
