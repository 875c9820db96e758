"""Resources on demand: a view of which a client that asks for everything is told a few, and the others by name.

An Envoy subscribes to all clusters there are, and besides to those that a request needs; were it told all, each would
cost it memory and statistics. So "everything" is what stands here as such (the protocol leaves it to the server what a
wildcard means), and a name is told from the moment on that it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xds.encoded import Resource
from xds.session.content import Changes, State, Subscription


class OnDemand:
    """A Subscription to `view` in which the names that are `standing` are everything. Others exist for who asks for
    them.
    """

    def __init__(self, view: Subscription, standing: Callable[[str], bool]) -> None:
        self._view = view
        self._standing = standing
        self._asked: set[str] = set()

    @property
    def state(self) -> State:
        """That of the view."""
        return self._view.state

    @property
    def pending(self) -> bool:
        """Whether there are changes to take, if only of names nobody asked for."""
        return self._view.pending

    def take(self) -> Changes:
        """What changed of the standing names and those asked for."""
        taken = self._view.take()
        told = {
            name: resource for name, resource in taken.changes.items() if self._standing(name) or name in self._asked
        }
        return Changes(told, taken.causes if told else (), taken.revision)

    def get(self, name: str) -> Resource | None:
        """The resource of that name. Whoever calls was asked for it, and is told its changes from now on."""
        if not self._standing(name):
            self._asked.add(name)
        return self._view.get(name)

    def items(self) -> Iterable[tuple[str, Resource]]:
        """The standing resources."""
        yield from sorted((one for one in self._view.items() if self._standing(one[0])), key=lambda one: one[0])

    def known(self, name: str) -> bool:
        """Whether the name exists."""
        return self._view.known(name)

    def final(self, name: str) -> bool:
        """As the view says."""
        return self._view.final(name)

    def current(self, name: str, version: str) -> bool:
        """As the view says. As with `get`, the name is told from now on."""
        if not self._standing(name):
            self._asked.add(name)
        return self._view.current(name, version)

    def close(self) -> None:
        """Ends the reading."""
        self._view.close()
