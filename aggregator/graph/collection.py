"""What the graph is made of: collections, and the view of them that a derivation gets.

A `Collection` is a name and a place in the order of declaration; its items live in the engine's `State`, so that a fork
can share them. `At` is the only door through which a derivation reads anything but its own item, and it records what
went through: a derivation must read nothing else, keep no state and change nothing it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from aggregator.graph.outcome import MISSING

if TYPE_CHECKING:
    from aggregator.graph.engine import Engine

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
G = TypeVar("G", bound=Hashable)

Sums: TypeAlias = Mapping[Hashable, int]
"""What a fold keeps for one group: tag -> amount, without zeros."""

CLOCK = 0
"""Number of the collection of moments: key = seconds since the epoch, present once that moment has passed."""

NOTHING: Mapping[Any, Any] = {}


class GraphError(Exception):
    """The graph was declared or fed in a way that its rules forbid: a mistake in the program, not in its input."""


class Collection(Generic[K, V]):
    """Items of one kind, by key. `number` is the place in the order of declaration, which is topological.

    Nothing comes of items that `unless` is true of, and nothing is read for them: the function is not run.
    """

    __slots__ = ("function", "kind", "name", "number", "of", "unless")

    def __init__(self, number: int, name: str, kind: str, of: tuple[Collection[Any, Any], ...], function: Any) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.of = of
        self.function = function
        self.unless: Callable[[Any, Any], bool] | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r}>"

    def counted(self, key: Any, value: Any) -> Any:
        """The value of an item that something may come of, else MISSING."""
        unless = self.unless
        return MISSING if value is not MISSING and unless is not None and unless(key, value) else value


class Source(Collection[K, V]):
    """A collection whose items come from outside, by `Graph.begin`."""

    __slots__ = ()


class Index(Collection[G, Mapping[K, V]], Generic[G, K, V]):
    """Members of other collections by group. A group is a mapping from member key to member value, never empty."""

    __slots__ = ()


class At:
    """One evaluation's view of the graph. Reads are recorded, so the item is evaluated again when one of them changes.

    It serves one evaluation after the other and must not be kept beyond any of them.
    """

    __slots__ = ("_engine", "_stage", "_values", "notes", "reads")

    def __init__(self, engine: Engine, stage: int) -> None:
        self._engine = engine
        self._stage = stage
        self._values = engine.state.values
        self.reads: dict[tuple[int, Hashable], None] = {}
        self.notes: list[tuple[Hashable, Any]] = []

    def get(self, collection: Collection[K, V], key: K) -> V | None:
        """The item of `collection` under `key`, or None."""
        number = collection.number
        if number >= self._stage:
            raise self._too_late(collection)
        self.reads[number, key] = None
        value: V | None = self._values[number].get(key)
        return value

    def group(self, index: Index[G, K, V], key: G) -> Mapping[K, V]:
        """The members of one group, which must stay small: what grows with the mesh is folded or paired instead.

        The mapping is the index's own: it changes with later passes, so a result must not hold it, and its order tells
        of the past, so members must be sorted wherever order could show in a result or in what is read next.
        """
        number = index.number
        if number >= self._stage:
            raise self._too_late(index)
        self.reads[number, key] = None
        members: Mapping[K, V] = self._values[number].get(key, NOTHING)
        return members

    def passed(self, moment: float) -> bool:
        """Whether `moment` (seconds since the epoch) has passed. Time is an input: it moves only with `Graph.begin`."""
        self.reads[CLOCK, moment] = None
        return moment <= self._engine.now

    def note(self, subject: Hashable, finding: Any) -> None:
        """Attach a finding to `subject` (an object key) for as long as this evaluation stands.

        Findings of one subject are told sorted and without repeats, so they must be hashable and orderable.
        """
        self.notes.append((subject, finding))

    def _too_late(self, read: Collection[Any, Any]) -> GraphError:
        reader = self._engine.collections[self._stage]
        return GraphError(f"{reader} may read only what is declared before it, not {read}")
