"""What a client is interested in, of one type: names, everything, or both.

The rules for wildcards of the xDS protocol ("How the client specifies what resources to return", "Unsubscribing From
Resources"), for both variants. Pure bookkeeping: requests go in, what they newly ask for and no longer want comes out;
what to send for it is the session's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from xds.session.requests import MAX_NAMES, ProtocolViolation

WILDCARD: Final = "*"


class Asked(Struct, frozen=True):
    """What a request changed.

    `everything`: all resources of the type are to be sent. `names` are to be answered; those in `new` were not covered
    before, so the client holds nothing under them. `dropped` are no longer wanted. `narrowed`: the wildcard ended.
    """

    everything: bool = False
    names: tuple[str, ...] = ()
    new: frozenset[str] = frozenset()
    dropped: tuple[str, ...] = ()
    narrowed: bool = False


_NOTHING: Final = Asked()


class Interest:
    """The subscription of one client to one type. `names` are those asked for by name, `wildcard` is beside them.

    `implied` are names that count as asked for because of others; None where only what is named is told.
    """

    __slots__ = ("_begun", "_legacy", "implied", "names", "wildcard")

    def __init__(self) -> None:
        self.wildcard = False
        self.names: set[str] = set()
        self.implied: set[str] | None = None
        self._begun = False
        self._legacy = False
        """A wildcard that was never asked for: the client has named nothing yet, not even "*"."""

    @property
    def begun(self) -> bool:
        """Whether there was any request."""
        return self._begun

    def covers(self, name: str) -> bool:
        """Whether a resource of that name is wanted."""
        return self.wildcard or name in self.names or (self.implied is not None and name in self.implied)

    @property
    def empty(self) -> bool:
        """Whether nothing is wanted, nor told unasked."""
        return not self.wildcard and not self.names and self.implied is None

    def change(self, subscribe: Iterable[str], unsubscribe: Iterable[str], held: Iterable[str] = ()) -> Asked:
        """Apply an incremental request, subscriptions before their opposite: "*" in both is to begin with nothing.

        `held` are names the client says it holds on a first request: without a wildcard it is subscribed to them.
        Raises ProtocolViolation.
        """
        wanted, unwanted = dict.fromkeys(subscribe), dict.fromkeys(unsubscribe)
        if self._begun and not (wanted or unwanted or held):
            return _NOTHING  # as acknowledgements do
        first, self._begun = not self._begun, True
        was_wildcard = self.wildcard
        if (first and not wanted) or WILDCARD in wanted:
            self.wildcard = True
        if WILDCARD in unwanted:
            self.wildcard = False
        asked = [name for name in wanted if name not in unwanted and name != WILDCARD]
        new = frozenset() if was_wildcard else frozenset(name for name in asked if name not in self.names)
        self.names.update(asked)
        if not self.wildcard:
            self.names.update(held)
        dropped = tuple(name for name in unwanted if name in self.names)
        self.names.difference_update(unwanted)
        _check_count(self.names)
        if self.wildcard:
            # The client cannot know whether the wildcard still gives it what it has given up by name: it is told.
            return Asked(everything=not was_wildcard or WILDCARD in wanted, names=(*asked, *dropped), new=new)
        return Asked(names=tuple(asked), new=new, dropped=dropped, narrowed=was_wildcard)

    def replace(self, names: Iterable[str]) -> Asked:
        """Apply a state-of-the-world request, which always names all that is wanted. Raises ProtocolViolation."""
        wanted = set(names)
        _check_count(wanted)
        self._legacy = not wanted and (self._legacy or not self._begun)
        self._begun = True
        was_wildcard, before = self.wildcard, self.names
        self.wildcard = self._legacy or WILDCARD in wanted
        wanted.discard(WILDCARD)
        self.names = wanted
        new = wanted - before
        return Asked(
            everything=self.wildcard and not was_wildcard,
            names=tuple(new),
            new=frozenset(new),
            dropped=tuple(before - wanted),
            narrowed=was_wildcard and not self.wildcard,
        )


def _check_count(names: set[str]) -> None:
    if len(names) > MAX_NAMES:
        raise ProtocolViolation(f"a subscription to {len(names)} names; {MAX_NAMES} are the limit")
