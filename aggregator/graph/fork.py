"""Fork: the same graph over the same state, whose changes stay its own.

A fork reads through to its base and writes to overlays, so trying a change costs only the change. It is what `plan`
runs on. It must be used up before the base runs its next pass, and the base is not touched whatever happens to it.
"""

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterator, KeysView
from typing import Any

from aggregator.graph.engine import Engine, State
from aggregator.graph.outcome import MISSING


class Overlay(dict[Any, Any]):
    """A dict that reads through to `base` and never writes to it. MISSING marks what is deleted here."""

    __slots__ = ("base",)

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base = base

    def get(self, key: Any, default: Any = None) -> Any:
        """The value here, else the base's, else `default`."""
        own = super().get(key)
        if own is None:
            return self.base.get(key, default)
        return default if own is MISSING else own

    def __missing__(self, key: Any) -> Any:
        return self.base[key]

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return self.get(key, MISSING) is not MISSING

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        if key in self.base:
            super().__setitem__(key, MISSING)
        else:
            super().__delitem__(key)

    def owns(self, key: Any) -> bool:
        """Whether the value under `key` was set here, so that it may be changed in place."""
        return super().get(key, MISSING) is not MISSING

    def __iter__(self) -> Iterator[Any]:
        for key, value in super().items():
            if value is not MISSING:
                yield key
        for key in self.base:
            if not super().__contains__(key):
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), MISSING) is not MISSING

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    __hash__ = None

    def keys(self) -> KeysView[Any]:  # type: ignore[override]
        """The keys here and below."""
        return KeysView(self)

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        """The items here and below."""
        return ItemsView(self)


class Fork(Engine):
    """An engine over the state of another one. Use `Graph.fork`."""

    def __init__(self, base: Engine) -> None:
        super().__init__(base._steps)
        self.collections, self.derived_from, self.publications = base.collections, base.derived_from, base.publications
        self.now, self.moments = base.now, list(base.moments)
        self.dirty = [{} for _ in base.collections]
        self.changed = [{} for _ in base.collections]
        self.evaluated_by = [0] * len(base.collections)
        self.state = State()
        for name in ("values", "outputs", "producers", "reads", "records", "readers"):
            setattr(self.state, name, [Overlay(column) for column in getattr(base.state, name)])
        self.state.findings, self.state.subjects = Overlay(base.state.findings), Overlay(base.state.subjects)

    def inner(self, outer: Any, key: Hashable) -> dict[Any, Any]:
        """As the engine's, but what still belongs to the base is copied first."""
        if outer.owns(key):
            owned: dict[Any, Any] = outer[key]
            return owned
        copied = outer[key] = dict(outer.get(key, ()))
        return copied
