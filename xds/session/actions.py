"""What a session wants done or known: the output of a poll, to be carried out in order by whoever drives it."""

from __future__ import annotations

from msgspec import Struct


class Send(Struct, frozen=True):
    """Write a response to the stream.

    `payload` are the bytes of the whole message; `resources` and `removed` count what is in it. `causes` are those of
    the content's changes that went into it. `revision` is the newest revision of the content it was made from.
    """

    type_url: str
    nonce: str
    payload: bytes
    resources: int
    removed: int
    causes: tuple[object, ...]
    revision: int


class Accepted(Struct, frozen=True):
    """The client has accepted the response with that nonce.

    `revision` is the newest revision of the content that the client holds completely, apart from what it rejected and
    has been reported as such; 0 before there is one.
    """

    type_url: str
    nonce: str
    revision: int = 0


class Rejected(Struct, frozen=True):
    """The client has rejected a resource, which stays at its last good version there and is not sent again.

    Without a name the client rejected the response but it is not known yet because of which resource: the rest of it
    is being sent in parts to find out.
    """

    type_url: str
    name: str
    version: str
    message: str
    nonce: str = ""


Action = Send | Accepted | Rejected
