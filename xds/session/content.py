"""What a session reads: the views of one proxy, one subscription per type. Protocols, for the embedding to implement.

Content flows one way, through `take`; nothing here calls the session back. The embedding polls the session when a
subscription has something pending or its state moved on. Besides the protocols there is the content of a type that a
proxy is not served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol, runtime_checkable

from msgspec import Struct

from xds.encoded import Resource

State = Literal["unknown", "partial", "settled"]
"""How complete a view is. Absence of knowledge is not knowledge of absence:

unknown: no complete pass yet, so nothing may be answered, not even that there is nothing;
partial: what is there may be sent and what was seen to go be removed, but some source has not reported, so a client
  that holds more than is here keeps it, and keeps its version of what is here unless that is final;
settled: what is not here does not exist.
"""


class Changes(Struct, frozen=True):
    """What changed in a view since the last `take`: the newest resource per name, None for one that is gone.

    Where a resource comes to be or admits more than it did, those that join it are among the changes, changed or not
    (see xds.encoded.Ties).

    `causes` are what led to it, for telemetry. `revision` is the newest revision of the content that is covered; a
    client that has acknowledged it holds everything up to there.
    """

    changes: Mapping[str, Resource | None]
    causes: tuple[object, ...] = ()
    revision: int = 0


class Subscription(Protocol):
    """One stream's reading of one view."""

    @property
    def state(self) -> State:
        """How complete the view is at present."""

    @property
    def pending(self) -> bool:
        """Whether `take` would return changes. Never turns false by itself."""

    def take(self) -> Changes:
        """The changes since the last call, or since the subscription was opened, and marks them taken.

        The first call may also return the content there was at opening; it may come with nothing pending, to learn the
        revision. Everything published so far is included, so that within one poll the subscriptions of one proxy show
        the same state of the world.
        """

    def get(self, name: str) -> Resource | None:
        """The resource of that name as it is now."""

    def items(self) -> Iterable[tuple[str, Resource]]:
        """All resources as they are now. Not to be kept across calls of anything else."""

    def known(self, name: str) -> bool:
        """Whether the name exists, though its resource may only be made now that it was asked for."""

    def final(self, name: str) -> bool:
        """Whether what is there under a name, or that nothing is, is certain though the view as a whole is partial.

        A client that holds something else under it is told so at once.
        """

    def current(self, name: str, version: str) -> bool:
        """Whether a client that holds this version of a resource needs no other at present.

        Where content is a function of what it is made from, that is whether it is the version there is. Content that is
        made anew each time (a certificate and its key) is current for as long as it is good.
        """

    def close(self) -> None:
        """Ends the reading; nothing else is called afterwards."""


@runtime_checkable
class Directory(Protocol):
    """What a Subscription is beside that, whose resources are also asked for by other names than their own.

    It is consulted for clients that name what they want. All it says is of the content as it is when it is called.
    """

    def consult(self) -> None:
        """Will be asked from now on. Called once."""

    @property
    def ready(self) -> bool:
        """Whether it can be asked. Not before `consult`; when it turns true, the embedding polls the session."""

    def find(self, asked: str) -> tuple[str, ...]:
        """The names of the resources that an asked name stands for, the best first; none if there are none."""

    def members(self, name: str) -> Iterable[str]:
        """The resources that belong to a resource: who asks for it is told them too, now and when they come to be."""

    def needs(self, name: str) -> Iterable[str]:
        """The resources that a resource names and that a client does not ask for by itself."""

    def sought(self, name: str) -> Iterable[str]:
        """Other names under which one asks for a resource, or of that of which it is a member."""

    def spans(self, name: str) -> bool:
        """Whether there are more such names than can be listed: then `find` says it."""

    def aliases(self, name: str) -> tuple[str, ...]:
        """Other names of a resource, as the protocol has them."""

    def stands(self, name: str) -> bool:
        """Whether this client is told of a resource unasked."""

    def standing(self) -> Iterable[str]:
        """All resources of which it is."""


@runtime_checkable
class Releases(Protocol):
    """What a Subscription is beside that, which keeps something for every name that it is asked for."""

    def release(self, names: Iterable[str]) -> None:
        """The client does not want these any more."""


@runtime_checkable
class Untaken(Protocol):
    """What a Subscription is beside that, which can say of a single name whether it has changed."""

    def untaken(self, name: str) -> bool:
        """Whether the name is among the changes that `take` would return now."""


class Views(Protocol):
    """What one proxy may read."""

    def open(self, type_url: str) -> Subscription | None:
        """Begin to read a type; None: this proxy is not served that type."""


class Unserved:
    """The content of a type a proxy is not served: there is nothing, and there never will be."""

    state: Final[State] = "settled"
    pending: Final = False

    def take(self) -> Changes:
        """Nothing."""
        return Changes({})

    def get(self, name: str) -> Resource | None:
        """Nothing."""
        return None

    def items(self) -> Iterable[tuple[str, Resource]]:
        """Nothing."""
        return ()

    def known(self, name: str) -> bool:
        """No."""
        return False

    def final(self, name: str) -> bool:
        """Yes: there is nothing."""
        return True

    def current(self, name: str, version: str) -> bool:
        """No: there is nothing."""
        return False

    def close(self) -> None:
        """Nothing to end."""
