"""The engine: one pass over the collections in the order of their declaration.

Inputs change sources; every collection then takes what changed before it, does its step (`derivations`, `groups`,
`latch`, `allocation`) on the items concerned, and stops where the result is equal (early cutoff). A pass is a generator
cut into slices by the caller, so that no slice keeps an event loop waiting; only when everything has settled does it
hand out one `Pass`, the published difference. The engine knows no clock and does no I/O.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from aggregator.graph.collection import CLOCK, Collection, GraphError
from aggregator.graph.members import NOBODY, Members, kept_as, with_member, without_member
from aggregator.graph.outcome import MISSING, Withheld

Reads: TypeAlias = tuple[tuple[int, Hashable], ...]
"""What one evaluation read: (collection, key), in the order of the first reading of each."""

Notes: TypeAlias = tuple[tuple[Hashable, Any], ...]
"""What one evaluation noted: (subject, finding)."""

Step: TypeAlias = Callable[["Engine", Collection[Any, Any]], Iterator[None]]

Blame: TypeAlias = Callable[[str, Hashable, str], tuple[Hashable, Any]]
"""From the name of a collection, an item and what its derivation raised, to (subject, finding)."""

FINDINGS = "findings"

_ENDED = object()

PUBLISHED_AT_ONCE = 16
"""How many changed keys are copied into the Pass in one step of a slice: together about the cost of an evaluation."""


class Failure(msgspec.Struct, frozen=True):
    """A function raised, or one key was produced twice: that item is withheld, its neighbours are not."""

    collection: str
    key: Hashable
    error: str


class Pass(msgspec.Struct, frozen=True):
    """What one pass changed, in one revision.

    `published` maps each publication to its difference: key -> new value, or None where the item is gone.
    `evaluated` counts the derivations run, matches of pairs included. `failures` are defects met on the way.
    """

    published: Mapping[str, Mapping[Any, Any]]
    evaluated: int
    failures: tuple[Failure, ...] = ()


class State:
    """Everything a graph remembers between passes; a fork lays an overlay over each of these mappings.

    What an evaluation read is kept once per distinct set of reads ("record"): a record lists the items that share it,
    and a read lists records. Ten thousand pods of one Deployment on one node thus cost one record, not ten thousand.
    """

    COLUMNS = ("values", "outputs", "producers", "rivals", "reads", "records", "readers")
    __slots__ = ("findings", "subjects", *COLUMNS)

    def __init__(self) -> None:
        self.values: list[Any] = []  # collection -> key -> value
        self.outputs: list[Any] = []  # expansion -> item -> keys it claims
        self.producers: list[Any] = []  # expansion -> key -> the item that produced it
        self.rivals: list[Any] = []  # expansion -> key -> Members: items that claim it too, in vain
        self.reads: list[Any] = []  # derivation -> item -> its reads (the record's own tuple)
        self.records: list[Any] = []  # derivation -> reads -> Members: items
        self.readers: list[Any] = []  # collection -> key -> Members: (derivation, reads)
        self.findings: Any = {}  # (derivation, item) -> ((subject, finding), ...)
        self.subjects: Any = {}  # subject -> Members: (derivation, item)

    def grow(self) -> None:
        """Make room for one more collection."""
        for name in self.COLUMNS:
            getattr(self, name).append({})


class Engine:
    """Runs passes over declared collections. `Graph` adds the declarations, `Fork` replaces the state by overlays."""

    def __init__(self, steps: Mapping[str, Step], failed: Blame | None = None) -> None:
        """`failed` says which finding, on which subject, an evaluation that raised leaves for as long as it fails."""
        self._steps = steps
        self.failed = failed
        self.collections: list[Collection[Any, Any]] = []
        self.standing_on: list[list[int]] = []  # collection -> collections over it
        self.publications: dict[int, str] = {}
        self.publishers: dict[str, list[int]] = {}  # publication -> its collections
        self.state = State()
        self.now = 0.0
        self.moments: list[float] = []  # heap of moments to come, each of which somebody waits for or waited for
        self.dirty: list[dict[Hashable, None]] = []  # derivation -> items to evaluate
        self.changed: list[dict[Hashable, Any]] = []  # this pass: key -> value before it (of an index: changed members)
        self.evaluated_by: list[int] = []  # functions run since the start, by collection
        self.withheld: dict[tuple[str, str], int] = {}  # (collection, code) -> times since the start
        self.passes = 0  # begun since the start
        self._pass: Iterator[None] | None = None
        self._broken = False
        self._woken: set[int] = set()  # collections with something to do in this pass
        self._queue: list[int] = []  # heap of collections that were woken or have changed; one may be there twice
        self._published: dict[str, dict[Any, Any]] = {}
        self._failures: list[Failure] = []
        self._evaluated = 0
        self._touched: dict[Hashable, tuple[Any, ...]] = {}  # subject -> its findings before this pass

    # -- a pass ---------------------------------------------------------------------------------------------------

    def begin(self, inputs: Mapping[Collection[Any, Any], Mapping[Any, Any]], now: float | None = None) -> None:
        """Start a pass with changes of sources (key -> value, None deletes) and the time (seconds since the epoch).

        The inputs are read as the pass goes on and must not change before it ends. Time never runs backwards: an
        earlier `now` is ignored. Raises GraphError while another pass is under way, after one has broken off, and for
        inputs to what is not a source of this graph.
        """
        if self._broken:
            raise GraphError("a pass has broken off and left its work half done: build the graph anew")
        if self._pass is not None:
            raise GraphError("a pass is under way: run it to its end before the next begins")
        for source in inputs:
            if source.kind != "source":
                raise GraphError(f"{source} is derived: only sources take input")
            if source.number >= len(self.collections) or self.collections[source.number] is not source:
                raise GraphError(f"{source} is not of this graph")
        self.passes += 1
        self._evaluated, self._touched, self._woken = 0, {}, set()
        if now is not None and now > self.now:
            self.now = now
            self._ring(now)
        self._pass = self._run(inputs)

    def run(self, budget: int | None = None) -> Pass | None:
        """Work on the pass under way, at most `budget` steps (at least 1; about one evaluation each).

        Returns the Pass once everything has settled, None while there is more to do. Raises GraphError when no pass is
        under way, and when a derivation breaks the rules of the graph; after that the graph is of no more use.
        """
        if self._pass is None:
            raise GraphError("no pass is under way")
        if budget is not None and budget < 1:
            raise GraphError(f"a slice of {budget} steps would never end the pass")
        try:
            if budget is None:
                for _ in self._pass:
                    pass
            elif next(islice(self._pass, budget - 1, budget), _ENDED) is not _ENDED:
                return None  # there was a last step of this slice
        except BaseException:
            self._pass, self._broken = None, True
            raise
        done = Pass(self._published, self._evaluated, tuple(self._failures))
        self._pass, self._published, self._failures = None, {}, []  # what a pass brought is its taker's alone
        return done

    @property
    def under_way(self) -> bool:
        """Whether a pass has begun and not ended."""
        return self._pass is not None

    def _run(self, inputs: Mapping[Collection[Any, Any], Mapping[Any, Any]]) -> Iterator[None]:
        for source, changes in inputs.items():
            for key, value in changes.items():
                self.set(source.number, key, MISSING if value is None else value)
                yield
            for later in self.standing_on[source.number]:
                self._wake(later)  # a latch comes before the source of what it keeps
        number, seen = -1, []
        while self._queue:
            before, number = number, heapq.heappop(self._queue)
            if number == before:
                continue
            if number in self._woken:
                collection = self.collections[number]
                yield from self._steps[collection.kind](self, collection)
            changed = self.changed[number]
            if changed:
                seen.append(number)
                for later in self.standing_on[number]:
                    self._wake(later)
                    if self.collections[later].kind in ("derive", "expand"):
                        self.dirty[later].update(dict.fromkeys(self._concerning(later, number)))
                if self.state.readers[number]:
                    yield from self._wake_readers(number, changed)
        for number in seen:
            publication = self.publications.get(number)
            if publication is not None:
                yield from self._publish(publication, self.changed[number])
            self.changed[number] = {}
        if self._touched:
            self._publish_findings()

    def _concerning(self, derivation: int, source: int) -> Iterable[Hashable]:
        """The changed items of the source that a derivation has, or had, to be evaluated for."""
        changed, collection = self.changed[source], self.collections[derivation]
        if collection.unless is None:
            return changed
        values, counted = self.state.values[source], collection.counted
        return [
            key
            for key, old in changed.items()
            if counted(key, old) is not MISSING or counted(key, values.get(key, MISSING)) is not MISSING
        ]

    def _wake(self, number: int) -> None:
        """A collection has something to do in this pass; those that have not stay untouched, however many they are."""
        if number not in self._woken:
            self._woken.add(number)
            heapq.heappush(self._queue, number)

    def _wake_readers(self, number: int, changed: Mapping[Hashable, Any]) -> Iterator[None]:
        """Mark the items whose last evaluation read one of the changed keys."""
        readers, records = self.state.readers[number], self.state.records
        for key in changed:
            for derivation, reads in readers.get(key, ()):
                self._wake(derivation)
                self.dirty[derivation].update(dict.fromkeys(records[derivation][reads]))
                yield

    def _publish(self, name: str, changed: Mapping[Hashable, Any]) -> Iterator[None]:
        """Copy what changed into the Pass. Where several collections hold one key, that of the first is published."""
        published = self._published.setdefault(name, {})
        publishers = self.publishers[name]
        first = self.state.values[publishers[0]]
        for count, key in enumerate(changed, 1):
            if len(publishers) == 1:
                published[key] = first.get(key)
            elif key not in published:
                holders = [number for number in publishers if key in self.state.values[number]]
                published[key] = self.state.values[holders[0]][key] if holders else None
                for number in holders[1:]:
                    self.fail(
                        self.collections[number], key, f"{name!r} has one from {self.collections[holders[0]]} too"
                    )
            if count % PUBLISHED_AT_ONCE == 0:
                yield

    # -- time -----------------------------------------------------------------------------------------------------

    def next_moment(self) -> float | None:
        """The next moment at which something may change although nothing arrives; None if nothing waits for time."""
        waited_for = self.state.readers[CLOCK]
        while self.moments and self.moments[0] not in waited_for:
            heapq.heappop(self.moments)
        return self.moments[0] if self.moments else None

    def wait_for(self, moment: float) -> None:
        """Let a pass at or after `moment` evaluate those who asked for it."""
        if moment <= self.now:
            return
        heapq.heappush(self.moments, moment)
        waited_for = self.state.readers[CLOCK]
        if len(self.moments) > 2 * len(waited_for) + 16:  # most are no longer waited for, and may lie years ahead
            self.moments = [moment for moment in waited_for if moment > self.now]
            heapq.heapify(self.moments)

    def _ring(self, now: float) -> None:
        while self.moments and self.moments[0] <= now:
            moment = heapq.heappop(self.moments)
            if moment in self.state.readers[CLOCK]:
                self.changed[CLOCK][moment] = MISSING
                heapq.heappush(self._queue, CLOCK)

    # -- items ----------------------------------------------------------------------------------------------------

    def inner(self, outer: Any, key: Hashable) -> dict[Any, Any]:
        """The mapping under `key` of a mapping of mappings, made if absent, ours to change (a fork copies it first)."""
        found: dict[Any, Any] | None = outer.get(key)
        if found is None:
            found = outer[key] = {}
        return found

    def leave(self, outer: Any, key: Hashable, member: Hashable) -> None:
        """Take `member` out of the mapping under `key`, and that mapping away when it is empty."""
        members = self.inner(outer, key)
        members.pop(member, None)
        if not members:
            del outer[key]

    def join(self, outer: Any, key: Hashable, member: Hashable) -> None:
        """Add `member`, which is none of them yet, to the Members under `key`."""
        members: Members = outer.get(key, NOBODY)
        if isinstance(members, dict):
            members[member] = None
        else:
            outer[key] = with_member(members, member)

    def part(self, outer: Any, key: Hashable, member: Hashable) -> None:
        """Take `member` out of the Members under `key`, and those away when they are none."""
        members: Members = outer.get(key, NOBODY)
        rest: Members
        if isinstance(members, dict):
            members.pop(member, None)
            rest = kept_as(members)
        else:
            rest = without_member(members, member)
        if rest:
            outer[key] = rest
        elif members:
            del outer[key]

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
        if not changed:
            heapq.heappush(self._queue, number)
        if key not in changed:
            changed[key] = old
        elif changed[key] is value or changed[key] == value:
            del changed[key]

    def ran(self, number: int) -> None:
        """Count one run of a derivation."""
        self._evaluated += 1
        self.evaluated_by[number] += 1

    def fail(self, collection: Collection[Any, Any], item: Hashable, error: str) -> None:
        """Report a defect of a derivation with the Pass under way."""
        self._failures.append(Failure(collection.name, item, error))

    def raised(self, collection: Collection[Any, Any], item: Hashable, error: Exception) -> Withheld:
        """Report what a derivation raised: our defect, whatever it is, for which the item's neighbours must not pay."""
        self.fail(collection, item, f"{type(error).__name__}: {error}")
        return Withheld("InternalError", str(error))

    def blame(self, collection: Collection[Any, Any], item: Hashable, error: Exception) -> list[tuple[Hashable, Any]]:
        """The finding on whatever object a failed evaluation was about, which stands as long as it fails."""
        return [] if self.failed is None else [self.failed(collection.name, item, f"{type(error).__name__}: {error}")]

    def count(self, collection: Collection[Any, Any], reason: Withheld) -> None:
        """Count an item that was withheld; nothing else is kept of it."""
        counter = (collection.name, reason.code)
        self.withheld[counter] = self.withheld.get(counter, 0) + 1

    # -- findings -------------------------------------------------------------------------------------------------

    def keep_findings(self, number: int, item: Hashable, notes: Notes) -> None:
        """Replace what an item's last evaluation noted."""
        owner = (number, item)
        old: Notes = self.state.findings.get(owner, ())
        if old == notes:
            return
        for subject in dict.fromkeys(subject for subject, _ in (*old, *notes)):
            if subject not in self._touched:
                self._touched[subject] = self.findings_of(subject)
        for subject in dict.fromkeys(subject for subject, _ in old):
            self.part(self.state.subjects, subject, owner)
        for subject in dict.fromkeys(subject for subject, _ in notes):
            self.join(self.state.subjects, subject, owner)
        if notes:
            self.state.findings[owner] = notes
        else:
            del self.state.findings[owner]

    def findings_of(self, subject: Hashable) -> tuple[Any, ...]:
        """All findings of one subject, without repeats, in their own order."""
        owners = self.state.subjects.get(subject, ())
        return tuple(sorted({f for owner in owners for s, f in self.state.findings[owner] if s == subject}))

    def _publish_findings(self) -> None:
        now = {subject: self.findings_of(subject) for subject in self._touched}
        changes = {subject: found or None for subject, found in now.items() if found != self._touched[subject]}
        if changes:
            self._published[FINDINGS] = changes
