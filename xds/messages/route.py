"""Routes of HTTP: which requests, what becomes of them, and what the filters on the way are told for them.

Records and their encoders. Each route is encoded by itself and composed into tables by concatenation
(xds.messages.scope); those that say the same for every host are made once.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, encode
from xds.messages.extension import Extension, write_any

_route = protos.envoy.config.route.v3
Comparison: TypeAlias = Literal["exact", "elements", "everything"]

CHALLENGES: Final = "/.well-known/acme-challenge/"
"""Where certificate authorities look for proofs (RFC 8555, 8.3), in plain HTTP."""


class PathMatch(Struct, frozen=True, gc=False):
    """Which paths: exactly `path`, or those that begin with its elements (it does not end in a slash), or all."""

    comparison: Comparison
    path: str = ""


class HashPart(Struct, frozen=True, gc=False):
    """A part of what a request is hashed by, and its name: a header, a cookie, a parameter, the client's address."""

    kind: Literal["header", "cookie", "query", "address"]
    name: str = ""


class ToCluster(Struct, frozen=True, gc=False):
    """Send requests to a cluster, however long the answer takes. `hashed`: what decides on the endpoint of one that
    goes by hashes.
    """

    cluster: str
    hashed: tuple[HashPart, ...] = ()


class Answer(Struct, frozen=True, gc=False):
    """Answer requests with a status and no body."""

    status: int


class Route(Struct, frozen=True, gc=False):
    """One route. Its name must not be empty: that is how one sees in an access log that there was one.

    `filters` are what HTTP filters are told, under their names (xds.messages.http_policies).
    """

    name: str
    match: PathMatch
    action: ToCluster | Answer
    filters: tuple[Extension, ...] = ()


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
        for part in route.action.hashed:
            _write_hash(message.route.hash_policy.add(), part)
    else:
        message.direct_response.status = route.action.status
    for one in route.filters:
        write_any(message.typed_per_filter_config[one.name], one)
    return encode(message)


def encode_error_page(path: str, cluster: str) -> Encoded:
    """The bytes of a Route by which the answer to `/` of a cluster is fetched in the place of another one."""
    message = _route.Route(name="error-page")
    message.match.path = path
    message.route.cluster = cluster
    message.route.prefix_rewrite = "/"
    return encode(message)


def _write_hash(place: protos.envoy.config.route.v3.RouteAction.HashPolicy, part: HashPart) -> None:
    match part.kind:
        case "header":
            place.header.header_name = part.name
        case "cookie":
            place.cookie.name = part.name
        case "query":
            place.query_parameter.name = part.name
        case "address":
            place.connection_properties.source_ip = True


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
