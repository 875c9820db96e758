"""The declaration of a graph: each method adds one collection, typed by the functions it is given.

The order of declaration is the topological order: a derivation may read only what was declared before it. The shape is
static. Clusters, networks and views are parts of keys; they come and go as items, never as collections.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar, cast

from aggregator.graph.allocation import Claim, allocation_step
from aggregator.graph.collection import At, Collection, GraphError, Index, Source, Sums
from aggregator.graph.derivations import derive_step, expand_step
from aggregator.graph.engine import FINDINGS, Blame, Engine
from aggregator.graph.fork import Fork
from aggregator.graph.groups import fold_step, index_step, pair_step
from aggregator.graph.latch import latch_step
from aggregator.graph.outcome import Outcome
from aggregator.graph.queries import Why, origins, reached, why

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
G = TypeVar("G", bound=Hashable)
W = TypeVar("W")
KL = TypeVar("KL", bound=Hashable)
VL = TypeVar("VL")
KR = TypeVar("KR", bound=Hashable)
VR = TypeVar("VR")

_STEPS = {
    "derive": derive_step,
    "expand": expand_step,
    "index": index_step,
    "fold": fold_step,
    "pair": pair_step,
    "latch": latch_step,
    "allocation": allocation_step,
}
_KEEPING = ("latch", "allocation")
"""Kinds of collections with a source of what they keep, which is published under their name."""


class Graph(Engine):
    """An incremental graph. Declare it, then `begin` and `run` passes."""

    def __init__(self, failed: Blame | None = None) -> None:
        super().__init__(_STEPS, failed)
        self._declare(Collection, "clock", "clock", (), None)

    def _declare(
        self, kind_of: type[Any], name: str, kind: str, of: tuple[Collection[Any, Any], ...], function: Any
    ) -> Any:
        if self.passes:
            raise GraphError(f"{name!r} is declared after the first pass: the shape of a graph is static")
        if any(collection.name == name for collection in self.collections):
            raise GraphError(f"two collections are called {name!r}")
        for parent in of:
            if parent.number >= len(self.collections) or self.collections[parent.number] is not parent:
                raise GraphError(f"{name!r} stands on {parent}, which is not of this graph")
            if parent.kind == "index" and kind not in ("derive", "expand", "pair"):
                raise GraphError(f"{name!r}: a group changes in place, so no {kind} can stand on {parent}")
            if parent.kind != "index" and kind == "pair":
                raise GraphError(f"{name!r}: a pair stands on two indexes, not on {parent}")
        if len({parent.number for parent in of}) < len(of) and kind != "pair":
            raise GraphError(f"{name!r} stands on one collection twice")
        number = len(self.collections)
        collection = kind_of(number, name, kind, of, function)
        self.collections.append(collection)
        self.standing_on.append([])
        self.dirty.append({})
        self.changed.append({})
        self.evaluated_by.append(0)
        self.state.grow()
        for parent in of:
            self.standing_on[parent.number].append(number)
        return collection

    def source(self, name: str) -> Source[K, V]:
        """Items from outside, typed by the annotation of the variable that holds it."""
        return cast("Source[K, V]", self._declare(Source, name, "source", (), None))

    def derive(self, name: str, of: Collection[K, V], function: Callable[[At, K, V], Outcome[W]]) -> Collection[K, W]:
        """One item from one item, under the same key: a pure function of the item and of what it reads through `At`."""
        return cast("Collection[K, W]", self._declare(Collection, name, "derive", (of,), function))

    def expand(
        self,
        name: str,
        of: Collection[K, V],
        function: Callable[[At, K, V], Iterable[tuple[G, Outcome[W]]]],
        *,
        unless: Callable[[K, V], bool] | None = None,
    ) -> Collection[G, W]:
        """Any number of items from one item, under keys that no other item of `of` can produce.

        `unless` tells by the item alone, where that is cheap and true of most, that the function would yield nothing
        but Withheld and read nothing. In a pass it is not run then, nor the Withheld counted; who asks why is told.
        """
        declared = cast("Collection[G, W]", self._declare(Collection, name, "expand", (of,), function))
        declared.unless = unless
        return declared

    def index(
        self,
        name: str,
        of: Collection[K, V] | tuple[Collection[K, V], ...],
        by: Callable[[K, V], Iterable[G]],
        *,
        unless: Callable[[K, V], bool] | None = None,
    ) -> Index[G, K, V]:
        """Members by group. `by` sees nothing but the item; it is not asked of those that `unless` is true of.

        Of several collections, whose keys should differ: where two hold the same one, the first one's item counts.
        """
        parents = of if isinstance(of, tuple) else (of,)
        declared = cast("Index[G, K, V]", self._declare(Index, name, "index", parents, by))
        declared.unless = unless
        return declared

    def fold(
        self,
        name: str,
        of: Collection[K, V] | tuple[Collection[K, V], ...],
        by: Callable[[K, V], Iterable[tuple[G, Hashable, int]]],
        *,
        unless: Callable[[K, V], bool] | None = None,
    ) -> Collection[G, Sums]:
        """Running sums: each item contributes (group, tag, amount); a group's value is {tag: amount} without zeros.

        The order of the tags tells of the past: sort them wherever it could show. Of several collections, and `unless`:
        as `index`.
        """
        parents = of if isinstance(of, tuple) else (of,)
        declared = cast("Collection[G, Sums]", self._declare(Collection, name, "fold", parents, by))
        declared.unless = unless
        return declared

    def pair(
        self,
        name: str,
        left: Index[G, KL, VL],
        right: Index[G, KR, VR],
        matched: Callable[[KL, VL, KR, VR], Outcome[W]],
    ) -> Collection[tuple[KL, KR], W]:
        """One item for every member of the one index with every member of the other that it shares a group with."""
        return cast("Collection[tuple[KL, KR], W]", self._declare(Collection, name, "pair", (left, right), matched))

    def latch(self, name: str, of: Collection[K, V]) -> Collection[K, V]:
        """The last good value of each item of a derivation, while the object behind it exists.

        Kept values are published under `name` and restored by giving them to `kept(latch)` at the start.
        """
        if of.kind != "derive":
            raise GraphError(f"{name!r}: only a derivation of one item from one item can be latched, not {of}")
        latch = self._declare(Collection, name, "latch", (of,), None)
        kept = self._declare(Source, f"{name} (kept)", "source", (), None)
        latch.of = (of, kept)
        for seen in (kept, of.of[0]):  # it watches the object behind the derivation, too
            self.standing_on[seen.number].append(latch.number)
        self._publish_as(name, kept)
        return cast("Collection[K, V]", latch)

    def allocate(
        self, name: str, of: Collection[K, Claim], choices: Callable[[K], Iterable[V]]
    ) -> Collection[K, V]:
        """A value for each claim that no other claim has, and that stays: see `allocation`.

        `choices` are the values an item may have, some dozens of them, in the order in which they are tried. Who finds
        none of them free is without until one is. What was given is published under `name` and restored by giving it to
        `kept(allocation)` at the start.
        """
        allocation = self._declare(Collection, name, "allocation", (of,), choices)
        kept = self._declare(Source, f"{name} (kept)", "source", (), None)
        holders = self._declare(Source, f"{name} (holders)", "source", (), None)
        allocation.of = (of, kept, holders)
        self.standing_on[kept.number].append(allocation.number)
        self._publish_as(name, kept)
        return cast("Collection[K, V]", allocation)

    def kept(self, keeping: Collection[K, V]) -> Source[K, V]:
        """The source that holds a latch's last good values, or what an allocation gave: given back with the first pass,
        then theirs alone.
        """
        if keeping.kind not in _KEEPING:
            raise GraphError(f"{keeping} keeps nothing")
        return cast("Source[K, V]", keeping.of[1])

    def publish(self, name: str, *collections: Collection[Any, Any]) -> None:
        """Hand out the changes of these collections under `name` with every Pass.

        Their keys should differ: where two hold the same one, the first one's item is published and a failure reported.
        """
        if name == FINDINGS:
            raise GraphError("findings are published by the engine")
        for keeping in self.collections:
            if keeping.kind in _KEEPING and keeping.name == name:
                raise GraphError(f"what {keeping.kind} {name!r} keeps is published under its name")
        for collection in sorted(collections, key=lambda one: one.number):
            self._publish_as(name, collection)

    def _publish_as(self, name: str, collection: Collection[Any, Any]) -> None:
        if self.passes:
            raise GraphError(f"{collection} is published after the first pass: the shape of a graph is static")
        if collection.kind == "index":
            raise GraphError(f"{collection}: a group changes in place, so an index cannot be published")
        if collection.number in self.publications:
            raise GraphError(f"{collection} is already published")
        self.publications[collection.number] = name
        publishers = self.publishers.setdefault(name, [])
        publishers.append(collection.number)
        publishers.sort()

    # -- questions ------------------------------------------------------------------------------------------------

    def fork(self) -> Fork:
        """The same graph, whose changes stay its own. Only between passes."""
        if self.under_way:
            raise GraphError("a pass is under way: fork between passes")
        return Fork(self)

    def values(self, collection: Collection[K, V]) -> dict[K, V]:
        """All items of a collection: for start-up, pages and tests, never for a derivation. Not to be changed."""
        return cast("dict[K, V]", self.state.values[collection.number])

    def why(self, collection: Collection[Any, Any], item: Hashable) -> Why | None:
        """See `queries.why`."""
        return why(self, collection, item)

    def origins(self, collection: Collection[Any, Any], key: Hashable) -> set[tuple[str, Hashable]]:
        """See `queries.origins`."""
        return origins(self, collection, key)

    def reached(self, source: Source[Any, Any], key: Hashable) -> dict[str, set[Hashable]]:
        """See `queries.reached`."""
        return reached(self, source, key)
