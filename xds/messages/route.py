"""Routes of HTTP: which requests, what becomes of them, and what the filters on the way are told for them.

Records and their encoders. Each route is encoded by itself and composed into tables by concatenation
(xds.messages.scope); those that say the same for every host are made once.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, encode

_route = protos.envoy.config.route.v3
Comparison: TypeAlias = Literal["exact", "elements", "everything"]

CHALLENGES: Final = "/.well-known/acme-challenge/"
"""Where certificate authorities look for proofs (RFC 8555, 8.3), in plain HTTP."""


class PathMatch(Struct, frozen=True, gc=False):
    """Which paths: exactly `path`, or those that begin with its elements (it does not end in a slash), or all."""

    comparison: Comparison
    path: str = ""


class ToCluster(Struct, frozen=True, gc=False):
    """Send requests to a cluster, however long the answer takes."""

    cluster: str


class Answer(Struct, frozen=True, gc=False):
    """Answer requests with a status and no body."""

    status: int


class Route(Struct, frozen=True, gc=False):
    """One route. Its name must not be empty: that is how one sees in an access log that there was one."""

    name: str
    match: PathMatch
    action: ToCluster | Answer


def encode_route(route: Route) -> Encoded:
    """The bytes of a Route."""
    message = _route.Route(name=route.name)
    match route.match.comparison:
        case "exact":
            message.match.path = route.match.path
        case "elements":
            message.match.path_separated_prefix = route.match.path
        case "everything":
            message.match.prefix = "/"
    if isinstance(route.action, ToCluster):
        message.route.cluster = route.action.cluster
        message.route.timeout.SetInParent()
    else:
        message.direct_response.status = route.action.status
    return encode(message)


def _redirect() -> Encoded:
    message = _route.Route(name="to-https")
    message.match.prefix = "/"
    message.match.headers.add(name="x-forwarded-proto").string_match.exact = "http"
    challenges = message.match.headers.add(name=":path", invert_match=True)
    challenges.string_match.prefix = CHALLENGES
    message.redirect.https_redirect = True
    message.redirect.response_code = _route.RedirectAction.PERMANENT_REDIRECT
    return encode(message)


TO_HTTPS: Final = _redirect()
"""Sends everybody who came in plain HTTP to HTTPS, but for those who look for the proofs that certificates need."""
NOT_FOUND: Final = encode_route(Route("not-found", PathMatch("everything"), Answer(404)))
"""What no other route matches. Without it a bad path could not be told from a host that is not served."""
MISDIRECTED: Final = encode_route(Route("misdirected", PathMatch("everything"), Answer(421)))
"""For a host whose connections need another filter chain than the one this came by."""
