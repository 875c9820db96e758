"""Resources by name: some names of a type lead to readings of their own, beside the view that holds the others.

What is under such a name depends on who asks, so there is nothing of it before somebody does: the first question opens
a reading, and giving the name up ends it. Until the reading knows, the name counts as one whose resource is only being
made, so that its absence is not told; what the view holds is told meanwhile. Pure, as all sessions are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from xds.encoded import Resource
from xds.session.content import Changes, State, Subscription

MOST_NAMES: Final = 1_024
"""Names a stream may have open at a time; beyond them there is nothing under any."""

OpenReading = Callable[[str, Callable[[], None]], Subscription | None]
"""Begins to read what is under a name, and rings the bell when there is something to take or its state moves on; None
for a name that stands for nothing."""


class _Reading(Struct):
    """A name that was asked for; `awaited` until it was told what is there, where that was not known at once."""

    content: Subscription
    awaited: bool


class ByName:
    """A Subscription to `view` (None: nothing), and to readings of the names that are `apart`."""

    def __init__(
        self,
        view: Subscription | None,
        apart: Callable[[str], bool],
        open_reading: OpenReading,
        bell: Callable[[], None],
        *,
        most: int = MOST_NAMES,
    ) -> None:
        self._view = view
        self._apart = apart
        self._open = open_reading
        self._bell = bell
        self._most = most
        self._readings: dict[str, _Reading] = {}
        self._rung: dict[str, None] = {}
        self._revision = 0

    @property
    def state(self) -> State:
        """That of the view; of other names it is told one by one what is known."""
        return self._view.state if self._view is not None else "settled"

    @property
    def pending(self) -> bool:
        """Whether anything has changed, or has become known."""
        return bool(self._rung) or (self._view is not None and self._view.pending)

    def take(self) -> Changes:
        """What changed of the view, and of the names that were asked for."""
        taken = self._view.take() if self._view is not None else Changes({})
        changes = {name: one for name, one in taken.changes.items() if not self._apart(name)}
        causes, revision = taken.causes, taken.revision
        rung, self._rung = self._rung, {}
        for name in rung:
            reading = self._readings.get(name)
            if reading is None:
                continue
            own = reading.content.take()
            changes.update({each: one for each, one in own.changes.items() if each == name})
            causes, revision = (*causes, *own.causes), max(revision, own.revision)
            if reading.awaited and reading.content.state != "unknown":
                reading.awaited = False
                changes[name] = reading.content.get(name)
        self._revision = max(self._revision, revision)
        return Changes(changes, causes, self._revision)

    def get(self, name: str) -> Resource | None:
        """The resource of that name. Whoever calls was asked for it, and is told its changes from now on."""
        content = self._content(name)
        return content.get(name) if content is not None else None

    def items(self) -> Iterable[tuple[str, Resource]]:
        """All of the view, and what is under the names that were asked for."""
        if self._view is not None:
            yield from ((name, one) for name, one in self._view.items() if not self._apart(name))
        for name, reading in self._readings.items():
            if (resource := reading.content.get(name)) is not None:
                yield name, resource

    def known(self, name: str) -> bool:
        """Whether there is something under a name, or there may be for all that is known yet."""
        content = self._content(name)
        if content is None:
            return False
        return content.known(name) or (content.state == "unknown" and self._apart(name))

    def final(self, name: str) -> bool:
        """Of the view's names the view knows; of others it is certain as soon as it is known."""
        if not self._apart(name):
            return self._view is None or self._view.final(name)
        content = self._content(name)
        return content is None or content.state != "unknown"

    def current(self, name: str, version: str) -> bool:
        """As the view or the reading says. As with `get`, the name is told from now on."""
        content = self._content(name)
        return content is not None and content.current(name, version)

    def release(self, names: Iterable[str]) -> None:
        """These are not asked for any more."""
        for name in names:
            reading = self._readings.pop(name, None)
            if reading is not None:
                self._rung.pop(name, None)
                reading.content.close()

    def close(self) -> None:
        """Ends all reading."""
        self.release(tuple(self._readings))
        if self._view is not None:
            self._view.close()

    def _content(self, name: str) -> Subscription | None:
        """Where a name is read."""
        if not self._apart(name):
            return self._view
        reading = self._readings.get(name)
        if reading is None:
            if len(self._readings) >= self._most:
                return None
            content = self._open(name, lambda: self._ring(name))
            if content is None:
                return None
            reading = self._readings[name] = _Reading(content, content.state == "unknown")
        return reading.content

    def _ring(self, name: str) -> None:
        self._rung[name] = None
        self._bell()
