"""Who may read the pages of the admin port: one judge in front of the whole application.

In: every request, before anything of it reaches a page. Out: the request, or an answer that tells the cure: 405, 401,
403, 503. A page is closed unless it says that it is open; what is closed is for those on the loopback of the machine or
pod, as `kubectl port-forward` is, and for service accounts of certain namespaces, by their tokens. Where a request
comes from is what its socket says: no header (X-Forwarded-For, Forwarded) is asked. Whoever proves nothing costs
nothing but the answer, and of those who bring tokens few are judged at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = ("GET", "HEAD")
MOST_AT_A_TIME = 32
"""Requests whose tokens are being judged; more are told to come again."""
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_SIDECAR = ip_address("127.0.0.6")
_CHALLENGE = 'Bearer realm="isthmus"'

Authenticate: TypeAlias = Callable[[str, Sequence[str]], Awaitable[str]]
"""The namespace of the service account whose token is in the Authorization headers of a peer. Raises NotAccepted."""


class NotAccepted(Exception):
    """No token, or none that is accepted; the message says why, and what to do. It is ``undecided`` where nobody could
    tell now.
    """

    def __init__(self, message: str, *, undecided: bool = False) -> None:
        super().__init__(message)
        self.undecided = undecided


class Access(msgspec.Struct, frozen=True):
    """Who may read what is closed: accounts of these namespaces, as told by their tokens, which are made for that
    audience.
    """

    namespaces: Collection[str]
    authenticate: Authenticate
    audience: str


class Guard:
    """An ASGI application in front of another: what it does not let through the other never sees."""

    def __init__(self, app: ASGIApp, is_open: Callable[[str], bool], access: Access) -> None:
        self._app = app
        self._is_open = is_open
        self._access = access
        self._judging = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI. Anything but HTTP is not answered at all."""
        if scope["type"] != "http":
            return
        answer = await self._refusal(scope) or self._app
        await answer(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in METHODS:
            return _refused(405, "pages can only be read: use GET or HEAD", {"allow": ", ".join(METHODS)})
        if self._is_open(scope["path"]) or is_local(scope):
            return None
        authorizations = _headers(scope, b"authorization")
        if not authorizations:
            return self._unknown("this page is not open to everybody")
        if self._judging >= MOST_AT_A_TIME:
            return _later("too many tokens are being judged now; try again")
        self._judging += 1
        try:
            namespace = await self._access.authenticate(_peer(scope), authorizations)
        except NotAccepted as error:
            return _later(str(error)) if error.undecided else self._unknown(str(error))
        finally:
            self._judging -= 1
        if namespace in self._access.namespaces:
            return None
        said = f"accounts of namespace {namespace} may not read this page: use one of {self._named()}, or have"
        return _refused(403, f"{said} {namespace} added to --admin-namespaces")

    def _unknown(self, why: str) -> Response:
        cure = (
            f"{why}; send 'authorization: Bearer TOKEN' with a token of a service account of {self._named()} (kubectl"
            f" create token --audience {self._access.audience}), or ask over loopback, as localhost (kubectl"
            " port-forward)"
        )
        return _refused(401, cure, {"www-authenticate": _CHALLENGE})

    def _named(self) -> str:
        names = sorted(self._access.namespaces)
        return f"namespace {names[0]}" if len(names) == 1 else f"the namespaces {', '.join(names)}"


def is_local(scope: Scope) -> bool:
    """Whether whoever asks is on this machine, or in this pod, and asks for it by an address or as localhost.

    By another name it may be a page of the web that asks, in a browser here which was told that this is its server.
    A sidecar passes on from 127.0.0.6 what comes from anywhere.
    """
    return _is_loopback(_peer(scope)) and all(_is_literal(host) for host in _headers(scope, b"host"))


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback and address != _SIDECAR


def _is_literal(host: str) -> bool:
    if host.startswith("["):
        name, _, _ = host[1:].partition("]")
    else:
        name, _, _ = host.partition(":")
    if name.lower() in ("", "localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _peer(scope: Scope) -> str:
    """The address at the other end of the socket, "" where there is none."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _headers(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted]


def _later(why: str) -> Response:
    return _refused(503, why, {"retry-after": "1"})


def _refused(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode({"error": error}) + b"\n"
    return Response(body, status, headers={**HEADERS, **(headers or {}), "content-type": "application/json"})
