"""Fork: the same graph over the same state, whose changes stay its own.

A fork reads through to its base and writes to overlays, so trying a change costs only the change. It is what `plan`
runs on. It must be used up before the base runs its next pass, and the base is not touched whatever happens to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, MutableMapping
from typing import Any

from aggregator.graph.collection import Collection, GraphError
from aggregator.graph.engine import Engine, Pass, State
from aggregator.graph.outcome import MISSING

_BELOW = object()
"""Stands for the absence of a key in an overlay's own part, where None may be a value and MISSING marks a deletion."""


class Overlay(MutableMapping[Any, Any]):
    """A mapping that reads through to `base` and never writes to it.

    Its values are handed out as they are: what is to be changed in place must be owned, see `owns` and `Fork.inner`.
    """

    __slots__ = ("_base", "_own")

    def __init__(self, base: Mapping[Any, Any]) -> None:
        self._base = base
        self._own: dict[Any, Any] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        """The value set here, else the base's, else `default`."""
        found = self._own.get(key, _BELOW)
        if found is _BELOW:
            return self._base.get(key, default)
        return default if found is MISSING else found

    def owns(self, key: Any) -> bool:
        """Whether the value under `key` was set here, so that it may be changed in place."""
        return self._own.get(key, MISSING) is not MISSING

    def __getitem__(self, key: Any) -> Any:
        found = self.get(key, MISSING)
        if found is MISSING:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        if key in self._base:
            self._own[key] = MISSING
        else:
            del self._own[key]

    def __contains__(self, key: object) -> bool:
        return self.get(key, MISSING) is not MISSING

    def __iter__(self) -> Iterator[Any]:
        own = self._own
        for key in self._base:
            if own.get(key) is not MISSING:
                yield key
        for key, value in own.items():
            if value is not MISSING and key not in self._base:
                yield key

    def __len__(self) -> int:
        base = self._base
        return len(base) + sum((value is not MISSING) - (key in base) for key, value in self._own.items())


class Fork(Engine):
    """An engine over the state of another one. Use `Graph.fork`."""

    def __init__(self, base: Engine) -> None:
        super().__init__(base._steps, base.failed)
        self.collections, self.standing_on = base.collections, base.standing_on
        self.publications, self.publishers = base.publications, base.publishers
        self.now, self.moments = base.now, list(base.moments)
        self.dirty = [{} for _ in base.collections]
        self.changed = [{} for _ in base.collections]
        self.evaluated_by = [0] * len(base.collections)
        self.state = State()
        for name in State.COLUMNS:
            setattr(self.state, name, [Overlay(column) for column in getattr(base.state, name)])
        self.state.findings, self.state.subjects = Overlay(base.state.findings), Overlay(base.state.subjects)
        self._base = base
        self._base_passes = base.passes

    def begin(self, inputs: Mapping[Collection[Any, Any], Mapping[Any, Any]], now: float | None = None) -> None:
        """As the engine's. Raises GraphError as well when the base has begun another pass since this fork was made."""
        self._see_base_at_rest()
        super().begin(inputs, now)

    def run(self, budget: int | None = None) -> Pass | None:
        """As the engine's. Raises GraphError as well when the base has begun another pass since this fork was made."""
        self._see_base_at_rest()
        return super().run(budget)

    def inner(self, outer: Any, key: Hashable) -> dict[Any, Any]:
        """As the engine's, but what still belongs to the base is copied first."""
        if outer.owns(key):
            owned: dict[Any, Any] = outer[key]
            return owned
        copied = outer[key] = dict(outer.get(key, ()))
        return copied

    def join(self, outer: Any, key: Hashable, member: Hashable) -> None:
        """As the engine's, but many members that still belong to the base are copied first."""
        if isinstance(outer.get(key), dict):
            self.inner(outer, key)
        super().join(outer, key, member)

    def part(self, outer: Any, key: Hashable, member: Hashable) -> None:
        """As the engine's, but many members that still belong to the base are copied first."""
        if isinstance(outer.get(key), dict):
            self.inner(outer, key)
        super().part(outer, key, member)

    def _see_base_at_rest(self) -> None:
        if self._base.passes != self._base_passes:
            raise GraphError("the graph has begun another pass since it was forked: fork it again")
