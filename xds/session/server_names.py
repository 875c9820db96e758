"""Certificates by the names that clients ask a gateway for: whatever a visitor writes there arrives here.

A view holds certificates under the names of hosts, under `*.<parent>`, and one under no name. What is asked for gets
its own, else that of the wildcard over it (one label), else that under no name; else nothing, at once, since a visitor
waits for it. Where a certificate is about to come, the answer is held for some seconds.

A proxy never forgets what it was given, so it is told to: of names that are no hosts only the last that were asked for
live, and when the certificate behind them changes they all go, to be asked for anew. Pure: time comes from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from xds.encoded import Resource
from xds.messages.downstream_tls import NO_NAME
from xds.messages.secret import renamed
from xds.session.content import Changes, State, Subscription

MOST_LIVE: Final = 5_000
"""Names that are no hosts, and live in a proxy: some 25 KB each there."""
HOLD: Final = 5.0
"""Seconds for which an answer is held: half of what a gateway gives a client for its handshake."""

_SERVER_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*\Z"
)


class Timer(Protocol):
    """What was ordered for later."""

    def cancel(self) -> None:
        """Do not."""


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls something after so many seconds."""


def is_server_name(asked: str) -> bool:
    """Whether a host could be called so: other spellings are refused without looking any further."""
    return _SERVER_NAME.match(asked) is not None


class ServerNames:
    """A Subscription to `view`, in which names get the certificate of a wildcard, or the one under no name.

    `awaited` tells of a host whether its certificate is yet to come; `unknown` is called for every name that gets
    nothing.
    """

    def __init__(
        self,
        view: Subscription,
        awaited: Callable[[str], bool],
        bell: Callable[[], None],
        later: Later,
        unknown: Callable[[], None],
        *,
        most: int = MOST_LIVE,
    ) -> None:
        self._view = view
        self._awaited = awaited
        self._bell = bell
        self._later = later
        self._unknown = unknown
        self._most = most
        self._live: dict[str, str] = {}
        """Names that got the certificate of another, and whose; the longest ago asked for first."""
        self._held: dict[str, Timer] = {}
        self._ending: dict[str, None] = {}
        """Names the client is to be told of that there is nothing under them."""

    @property
    def state(self) -> State:
        """That of the view."""
        return self._view.state

    @property
    def pending(self) -> bool:
        """Whether anything has changed, or is to be forgotten."""
        return bool(self._ending) or self._view.pending

    def take(self) -> Changes:
        """What changed of the view, and what it means for names that live by it."""
        taken = self._view.take()
        changes = dict.fromkeys(self._ending)
        self._ending = {}
        over = {name for name in taken.changes if _is_fallback(name)}
        for name, resource in taken.changes.items():
            changes[name] = resource
            if resource is not None:
                self._drop_held(name)
                source = self._live.pop(name, "")
                if source and source not in over and self._same(resource, source):
                    del changes[name]  # it was given the very same before it was a host
        if over:
            ended = [name for name, source in self._live.items() if source in over or _wildcard(name) in over]
            for name in ended:
                del self._live[name]
                changes.setdefault(name, None)
            for name in [name for name in self._held if self._fallback(name) is not None]:
                self._drop_held(name)
                changes[name] = self.get(name)
        return Changes(changes, taken.causes, taken.revision)

    def get(self, name: str) -> Resource | None:
        """The certificate for that name. Whoever calls was asked for it."""
        own = self._view.get(name)
        if own is not None:
            return own
        if is_server_name(name):
            found = self._fallback(name)
            if found is not None:
                self._live.pop(name, None)
                self._live[name] = found.name
                self._evict()
                return renamed(found, name)
            if self._awaited(name):
                if name not in self._held:
                    self._held[name] = self._later(HOLD, lambda: self._give_up(name))
                return None
        self._unknown()
        return None

    def items(self) -> Iterable[tuple[str, Resource]]:
        """All of the view."""
        return self._view.items()

    def known(self, name: str) -> bool:
        """Whether there is a certificate, or its answer is held."""
        return name in self._held or self._view.known(name)

    def final(self, name: str) -> bool:
        """As the view says."""
        return self._view.final(name)

    def current(self, name: str, version: str) -> bool:
        """Whether it is the version there is. As with `get`, the name lives from now on."""
        if self._view.get(name) is not None or not is_server_name(name):
            return self._view.current(name, version)
        if self._fallback(name) is None:
            return False
        found = self.get(name)
        return found is not None and found.version == version

    def release(self, names: Iterable[str]) -> None:
        """These are not asked for any more."""
        for name in names:
            self._live.pop(name, None)
            self._ending.pop(name, None)
            self._drop_held(name)

    def close(self) -> None:
        """Ends the reading."""
        for timer in self._held.values():
            timer.cancel()
        self._held = {}
        self._view.close()

    def _same(self, resource: Resource, source: str) -> bool:
        found = self._view.get(source)
        return found is not None and renamed(found, resource.name).digest == resource.digest

    def _fallback(self, name: str) -> Resource | None:
        over = self._view.get(_wildcard(name))
        return over if over is not None else self._view.get(NO_NAME)

    def _evict(self) -> None:
        while len(self._live) > self._most:
            oldest = next(iter(self._live))
            del self._live[oldest]
            self._ending[oldest] = None
            self._bell()

    def _give_up(self, name: str) -> None:
        if self._held.pop(name, None) is not None:
            self._ending[name] = None
            self._unknown()
            self._bell()

    def _drop_held(self, name: str) -> None:
        timer = self._held.pop(name, None)
        if timer is not None:
            timer.cancel()


def _wildcard(name: str) -> str:
    return f"*.{name.partition('.')[2]}"


def _is_fallback(name: str) -> bool:
    return name == NO_NAME or name.startswith("*.")
