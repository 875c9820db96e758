"""The engine: one pass over the collections in the order of their declaration.

Inputs change sources; every collection then takes what changed before it, evaluates only the items concerned, and stops
where the result is equal (early cutoff). A pass is a generator cut into slices by the caller, so that no slice keeps an
event loop waiting; only when everything has settled does it hand out one `Pass`, the published difference.

What an evaluation read is kept once per distinct set of reads ("record"): a record lists the items that share it, and a
read lists records. Ten thousand pods of one Deployment on one node thus cost one record, not ten thousand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from aggregator.graph.collection import CLOCK, At, Collection, GraphError
from aggregator.graph.outcome import MISSING, Withheld

Reads: TypeAlias = tuple[tuple[int, Hashable], ...]
Step: TypeAlias = Callable[["Engine", Collection[Any, Any]], Iterator[None]]

FINDINGS = "findings"


class Failure(msgspec.Struct, frozen=True):
    """A derivation raised: the item is withheld (`InternalError`), its neighbours are served."""

    collection: str
    key: Hashable
    error: str


class Pass(msgspec.Struct, frozen=True):
    """What one pass changed, in one revision.

    `published` maps each publication to its difference: key -> new value, or None where the item is gone.
    `evaluated` counts the functions run. `failures` are derivations that raised.
    """

    published: Mapping[str, Mapping[Any, Any]]
    evaluated: int
    failures: tuple[Failure, ...] = ()


class State:
    """Everything a graph remembers between passes; a fork lays an overlay over each of these mappings."""

    __slots__ = ("findings", "outputs", "producers", "readers", "reads", "records", "subjects", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []  # collection -> key -> value
        self.outputs: list[Any] = []  # expansion -> item -> keys it produced
        self.producers: list[Any] = []  # expansion -> key -> the item that produced it
        self.reads: list[Any] = []  # derivation -> item -> its reads (the record's own tuple)
        self.records: list[Any] = []  # derivation -> reads -> {item: None}
        self.readers: list[Any] = []  # collection -> key -> {(derivation, reads): None}
        self.findings: Any = {}  # (derivation, item) -> ((subject, finding), ...)
        self.subjects: Any = {}  # subject -> {(derivation, item): None}

    def grow(self) -> None:
        """Make room for one more collection."""
        for column in (self.values, self.outputs, self.producers, self.reads, self.records, self.readers):
            column.append({})


class Engine:
    """Runs passes over declared collections. `Graph` adds the declarations, `Fork` replaces the state by overlays."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self._steps = steps
        self.collections: list[Collection[Any, Any]] = []
        self.derived_from: list[list[int]] = []  # collection -> derivations over it
        self.publications: dict[int, str] = {}
        self.state = State()
        self.now = 0.0
        self.moments: list[float] = []  # heap of moments somebody waits for
        self.dirty: list[dict[Hashable, None]] = []
        self.changed: list[dict[Hashable, Any]] = []  # this pass: key -> value before it
        self.evaluated_by: list[int] = []  # functions run since the start, by collection
        self.withheld: dict[tuple[str, str], int] = {}  # (collection, code) -> times since the start
        self._pass: Iterator[None] | None = None
        self._published: dict[str, dict[Any, Any]] = {}
        self._failures: list[Failure] = []
        self._evaluated = 0
        self._touched: dict[Hashable, None] = {}

    # -- a pass ---------------------------------------------------------------------------------------------------

    def begin(self, inputs: Mapping[Collection[Any, Any], Mapping[Any, Any]], now: float | None = None) -> None:
        """Start a pass with changes of sources (key -> value, None deletes) and the time (seconds since the epoch).

        Raises GraphError while another pass is under way, and for inputs to what is not a source.
        """
        if self._pass is not None:
            raise GraphError("a pass is under way: run it to its end before the next begins")
        for source in inputs:
            if source.kind != "source":
                raise GraphError(f"{source} is derived: only sources take input")
        if now is not None and now > self.now:
            self.now = now
        self._published, self._failures, self._evaluated, self._touched = {}, [], 0, {}
        self._pass = self._run(inputs)

    def run(self, budget: int | None = None) -> Pass | None:
        """Work on the pass under way, at most `budget` steps (about one evaluation each).

        Returns the Pass once everything has settled, None while there is more to do.
        """
        if self._pass is None:
            raise GraphError("no pass is under way")
        try:
            if budget is None:
                for _ in self._pass:
                    pass
            elif sum(1 for _ in islice(self._pass, budget)) == budget:
                return None
        except BaseException:
            self._pass = None
            raise
        self._pass = None
        return Pass(self._published, self._evaluated, tuple(self._failures))

    @property
    def under_way(self) -> bool:
        """Whether a pass has begun and not ended."""
        return self._pass is not None

    def next_moment(self) -> float | None:
        """The next moment at which something may change although nothing arrives; None if nothing waits for time."""
        readers = self.state.readers[CLOCK]
        while self.moments and (self.moments[0] <= self.now or self.moments[0] not in readers):
            heapq.heappop(self.moments)
        return self.moments[0] if self.moments else None

    def has_passed(self, moment: float) -> bool:
        """Whether `moment` lies behind the time of this pass; otherwise it is remembered as one to wake for."""
        if moment <= self.now:
            return True
        if moment not in self.state.readers[CLOCK]:
            heapq.heappush(self.moments, moment)
        return False

    def _run(self, inputs: Mapping[Collection[Any, Any], Mapping[Any, Any]]) -> Iterator[None]:
        while self.moments and self.moments[0] <= self.now:
            moment = heapq.heappop(self.moments)
            if moment in self.state.readers[CLOCK]:
                self.changed[CLOCK][moment] = MISSING
        for source, changes in inputs.items():
            for key, value in changes.items():
                self.set(source.number, key, MISSING if value is None else value)
                yield
        for collection in self.collections:
            number = collection.number
            step = self._steps.get(collection.kind)
            if step is not None:
                yield from step(self, collection)
            changed = self.changed[number]
            if not changed:
                continue
            yield from self._spread(number, changed)
            publication = self.publications.get(number)
            if publication is not None:
                values = self.state.values[number]
                self._published.setdefault(publication, {}).update((key, values.get(key)) for key in changed)
        for number, changed in enumerate(self.changed):
            if changed:
                self.changed[number] = {}
        self._publish_findings()

    def _spread(self, number: int, changed: Mapping[Hashable, Any]) -> Iterator[None]:
        """Mark what depends on the changed keys."""
        for derivation in self.derived_from[number]:
            self.dirty[derivation].update(dict.fromkeys(changed))
        readers, records, dirty = self.state.readers[number], self.state.records, self.dirty
        if readers:
            for key in changed:
                for derivation, reads in readers.get(key, ()):
                    dirty[derivation].update(records[derivation][reads])
                    yield

    # -- items ----------------------------------------------------------------------------------------------------

    def inner(self, outer: Any, key: Hashable) -> dict[Any, Any]:
        """The mapping under `key` of a mapping of mappings, made if absent, ours to change (a fork copies it first)."""
        found: dict[Any, Any] | None = outer.get(key)
        if found is None:
            found = outer[key] = {}
        return found

    def set(self, number: int, key: Hashable, value: Any) -> None:
        """Give an item its value (MISSING: remove it). An equal value changes nothing."""
        values = self.state.values[number]
        old = values.get(key, MISSING)
        if value is MISSING:
            if old is MISSING:
                return
            del values[key]
        elif old is not MISSING and old == value:
            return
        else:
            values[key] = value
        changed = self.changed[number]
        if key not in changed:
            changed[key] = old
        elif changed[key] is value or changed[key] == value:
            del changed[key]

    def evaluate(self, collection: Collection[Any, Any], item: Hashable) -> Iterator[tuple[Hashable, Any]]:
        """Run a derivation on one item, record what it read and noted, and yield what it produced, without the withheld."""
        number = collection.number
        value = self.state.values[collection.of[0].number].get(item, MISSING)
        produced: tuple[tuple[Hashable, Any], ...] = ()
        reads: Reads = ()
        notes: list[tuple[Hashable, Any]] = []
        if value is not MISSING:
            at = At(self, number)
            self._evaluated += 1
            self.evaluated_by[number] += 1
            try:
                if collection.kind == "derive":
                    produced = ((item, collection.function(at, item, value)),)
                else:
                    produced = tuple(collection.function(at, item, value))
            except GraphError:
                raise
            except Exception as error:  # noqa: BLE001 - our defect, whatever it is; the item's neighbours must not pay
                self.fail(collection, item, f"{type(error).__name__}: {error}")
                produced = ((item, Withheld("InternalError", str(error))),)
            reads, notes = tuple(at.reads), at.notes
        self._record(number, item, reads)
        if notes or (number, item) in self.state.findings:
            self._keep_findings(number, item, tuple(notes))
        for key, result in produced:
            if type(result) is Withheld:
                counter = (collection.name, result.code)
                self.withheld[counter] = self.withheld.get(counter, 0) + 1
            else:
                yield key, result

    def fail(self, collection: Collection[Any, Any], item: Hashable, error: str) -> None:
        """Report a defect of a derivation with the Pass under way."""
        self._failures.append(Failure(collection.name, item, error))

    def _record(self, number: int, item: Hashable, reads: Reads) -> None:
        """Note what `item` read: move it from its old record to the one it now shares with others."""
        reads_of, records = self.state.reads[number], self.state.records[number]
        old = reads_of.get(item)
        if old == reads or (old is None and not reads):
            return
        if old is not None:
            sharing = self.inner(records, old)
            del sharing[item]
            del reads_of[item]
            if not sharing:
                del records[old]
                for where, key in old:
                    listed = self.inner(self.state.readers[where], key)
                    del listed[number, old]
                    if not listed:
                        del self.state.readers[where][key]
        if reads:
            if reads not in records:
                entry = (number, reads)
                for where, key in reads:
                    self.inner(self.state.readers[where], key)[entry] = None
            sharing = self.inner(records, reads)
            if sharing:  # keep one tuple per record, the one its first item brought
                first = next(iter(sharing))
                reads = reads_of[first]
            sharing[item] = None
            reads_of[item] = reads

    # -- findings -------------------------------------------------------------------------------------------------

    def _keep_findings(self, number: int, item: Hashable, notes: tuple[tuple[Hashable, Any], ...]) -> None:
        owner = (number, item)
        old = self.state.findings.get(owner, ())
        if old == notes:
            return
        for subject in {subject for subject, _ in old}:
            owners = self.inner(self.state.subjects, subject)
            owners.pop(owner, None)
            if not owners:
                del self.state.subjects[subject]
            self._touched[subject] = None
        for subject in {subject for subject, _ in notes}:
            self.inner(self.state.subjects, subject)[owner] = None
            self._touched[subject] = None
        if notes:
            self.state.findings[owner] = notes
        else:
            del self.state.findings[owner]

    def findings_of(self, subject: Hashable) -> tuple[Any, ...]:
        """All findings of one subject, without repeats, in their own order."""
        owners = self.state.subjects.get(subject, ())
        return tuple(sorted({f for owner in owners for s, f in self.state.findings[owner] if s == subject}))

    def publish_now(self, name: str, changes: Mapping[Any, Any]) -> None:
        """Hand out changes with the Pass under way (a latch's last good values)."""
        self._published.setdefault(name, {}).update(changes)

    def _publish_findings(self) -> None:
        if self._touched:
            self._published[FINDINGS] = {subject: self.findings_of(subject) or None for subject in self._touched}


def derive_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """One item in, at most one item out, under the same key."""
    number = collection.number
    dirty, engine.dirty[number] = engine.dirty[number], {}
    for item in dirty:
        value: Any = MISSING
        for _, value in engine.evaluate(collection, item):
            pass
        engine.set(number, item, value)
        yield


def expand_step(engine: Engine, collection: Collection[Any, Any]) -> Iterator[None]:
    """One item in, any number of items out, under keys that no other item produces."""
    number = collection.number
    outputs, producers = engine.state.outputs[number], engine.state.producers[number]
    dirty, engine.dirty[number] = engine.dirty[number], {}
    for item in dirty:
        new: dict[Hashable, Any] = {}
        for key, value in engine.evaluate(collection, item):
            if producers.get(key, item) != item or key in new:
                engine.fail(collection, item, f"{key!r} is produced twice, by {producers.get(key, item)!r} too")
            else:
                new[key] = value
        for key in outputs.get(item, ()):
            if key not in new:
                engine.set(number, key, MISSING)
                del producers[key]
        for key, value in new.items():
            engine.set(number, key, value)
            producers[key] = item
        if new:
            outputs[item] = tuple(new)
        elif item in outputs:
            del outputs[item]
        yield
