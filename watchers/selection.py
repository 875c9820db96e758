"""Which namespaces of each cluster are read: what reflectors ask before they begin, and are told when it changes.

In: what the embedding says of a cluster's namespaces. Out: calls to those who read it. Nobody waits for it for ever:
who has not been told in time reads everything, and drops what turns out not to be wanted. Judges nothing itself, and
knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

PATIENCE = 5.0
"""Seconds for which a reader waits to be told."""


class Selection:
    """The namespaces of one cluster that are read: ``namespaces``, None for all."""

    def __init__(self) -> None:
        self.namespaces: frozenset[str] | None = None
        self._told = asyncio.Event()
        self._listeners: dict[int, Callable[[], None]] = {}

    def set(self, namespaces: Iterable[str] | None) -> None:
        """These are read from now on."""
        self.namespaces = None if namespaces is None else frozenset(namespaces)
        self._told.set()
        for listener in tuple(self._listeners.values()):
            listener()

    def forget(self) -> None:
        """Nothing is known of the cluster any more. Who reads it goes on as before, who begins waits to be told."""
        self._told.clear()

    async def settled(self, seconds: float = PATIENCE) -> None:
        """Waits until it is known which are read, at most so long."""
        if not self._told.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._told.wait()
            except TimeoutError:
                pass

    @contextmanager
    def heard_by(self, listener: Callable[[], None]) -> Iterator[None]:
        """Meanwhile the listener is called after every change."""
        self._listeners[id(listener)] = listener
        try:
            yield
        finally:
            del self._listeners[id(listener)]


class Selections:
    """The selections of all clusters."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, ...] | None] = {}
        # A cluster may be registered anew while news of its removal is still on the way, so both are kept apart: what
        # was told, and what those who read a cluster hold.
        self._held: WeakValueDictionary[str, Selection] = WeakValueDictionary()

    def of(self, cluster: str) -> Selection:
        """The selection of a cluster, to be held for as long as it is read."""
        selection = self._held.get(cluster)
        if selection is None:
            selection = self._held[cluster] = Selection()
            if cluster in self._told:
                selection.set(self._told[cluster])
        return selection

    def set(self, cluster: str, namespaces: Iterable[str] | None) -> None:
        """These namespaces of the cluster are read from now on, None for all."""
        told = self._told[cluster] = None if namespaces is None else tuple(namespaces)
        if (selection := self._held.get(cluster)) is not None:
            selection.set(told)

    def forget(self, cluster: str) -> None:
        """Nothing is known of the cluster any more."""
        self._told.pop(cluster, None)
        if (selection := self._held.get(cluster)) is not None:
            selection.forget()
