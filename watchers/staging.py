"""Where one reading of a cluster writes: into a stage of its own, which takes the place of what there is, or to nobody.

Used by `cluster`: a new credential fills a stage beside the facts that are served, then the stage is opened, and the
difference is one revision. A stage that is closed hears no late words. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from watchers.facts import Fact, ObjectKey
from watchers.sink import Facts


class Sink(Facts, Protocol):
    """What a kind is written to. It tells what it holds: the last good fact of an object that is invalid now."""

    def get(self, key: ObjectKey) -> Fact | None:
        """What was written last under a key."""
        ...

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[ObjectKey, Fact]]:
        """What stands under a prefix."""
        ...


class Stage:
    """What one generation writes: kept aside, or passed on to the sink, or, once it is closed, dropped."""

    def __init__(self, cluster: str, facts: Sink, *, aside: bool) -> None:
        self._prefix = (cluster,)
        self._facts = facts
        self._aside: dict[ObjectKey, Fact] | None = {} if aside else None
        self._closed = False
        self.written = False

    def apply(self, changes: Iterable[tuple[ObjectKey, Fact | None]], cause: object = None) -> int:
        """As Facts.apply."""
        if self._closed:
            return 0
        self.written = True
        if self._aside is None:
            return self._facts.apply(changes, cause)
        for key, fact in changes:
            if fact is None:
                self._aside.pop(key, None)
            else:
                self._aside[key] = fact
        return 0

    def replace(self, prefix: tuple[str, ...], items: Iterable[tuple[ObjectKey, Fact]], cause: object = None) -> int:
        """As Facts.replace."""
        if self._closed:
            return 0
        self.written = True
        if self._aside is None:
            return self._facts.replace(prefix, items, cause)
        kept = {key: fact for key, fact in self._aside.items() if key[: len(prefix)] != prefix}
        kept.update(items)
        self._aside = kept
        return 0

    def get(self, key: ObjectKey) -> Fact | None:
        """What this generation holds under a key, or else the one before it."""
        return (self._aside or {}).get(key) or self._facts.get(key)

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[ObjectKey, Fact]]:
        """What this generation has written under a prefix."""
        if self._aside is None:
            return self._facts.scan(prefix)
        return iter([(key, fact) for key, fact in self._aside.items() if key[: len(prefix)] == prefix])

    @property
    def aside(self) -> bool:
        """Whether what is written is kept aside or dropped, so that the sink knows nothing of it."""
        return self._aside is not None or self._closed

    def writes_to(self, facts: Facts) -> bool:
        """Whether that is where its writes go."""
        return self._facts is facts

    @property
    def held(self) -> int:
        """How many facts are kept aside."""
        return len(self._aside or ())

    def open(self, unread: Iterable[str], besides: Iterable[tuple[ObjectKey, Fact]], cause: object) -> None:
        """Makes what was kept aside, and what is given besides, all there is of the cluster; later writes follow.

        Of ``unread`` kinds the sink keeps what it holds: that they may not be read does not say that they are gone.
        """
        if self._aside is not None and not self._closed:
            staged, self._aside = self._aside, None
            for fact in unread:
                staged.update(self._facts.scan((*self._prefix, fact)))
            staged.update(besides)
            self._facts.replace(self._prefix, staged.items(), cause)

    def close(self) -> None:
        """From now on nothing is heard of it."""
        self._closed = True
        self._aside = None
