"""Routes of HTTP: which requests, what becomes of them, and what the filters on the way are told for them.

Records and their encoders. Each route is encoded by itself and composed into tables by concatenation
(xds.messages.scope); those that say the same for every host are made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, encode
from xds.messages.extension import Extension, write_any
from xds.messages.fallback import FILTERED
from xds.messages.forwarding import AS_IT_IS, Forwarding, write_forwarding
from xds.messages.header_changes import UNCHANGED, HeaderChanges, write_headers

_route = protos.envoy.config.route.v3
Comparison: TypeAlias = Literal["exact", "elements", "regex", "everything"]

CHALLENGES: Final = "/.well-known/acme-challenge/"
"""Where certificate authorities look for proofs (RFC 8555, 8.3), in plain HTTP."""


class PathMatch(Struct, frozen=True, gc=False):
    """Which paths: exactly `path`, those that begin with its elements (it does not end in a slash), those that it
    matches from end to end as a regular expression (RE2), or all. The first two may be in `any_case`.
    """

    comparison: Comparison
    path: str = ""
    any_case: bool = False


class ValueMatch(Struct, frozen=True, gc=False):
    """Which values: exactly `value`, those that begin with it, or those it matches from end to end (RE2)."""

    comparison: Literal["exact", "prefix", "regex"]
    value: str


class HeaderMatch(Struct, frozen=True, gc=False):
    """Requests with a header of such a value; with `inverted`, those without."""

    name: str
    value: ValueMatch
    inverted: bool = False


class QueryMatch(Struct, frozen=True, gc=False):
    """Requests with a parameter of such a value in their query."""

    name: str
    value: ValueMatch


PLAIN_HTTP: Final = (
    HeaderMatch("x-forwarded-proto", ValueMatch("exact", "http")),
    HeaderMatch(":path", ValueMatch("prefix", CHALLENGES), inverted=True),
)
"""Requests in plain HTTP, but for those that look for the proofs that certificates need."""


class ToCluster(Struct, frozen=True, gc=False):
    """Send requests to a cluster; `how` says more, by default that the answer may take as long as it wants."""

    cluster: str
    how: Forwarding = AS_IT_IS


class ToClusters(Struct, frozen=True, gc=False):
    """Send requests to one of several clusters, to each by its share in the sum of all."""

    shares: tuple[tuple[str, int], ...]
    how: Forwarding = AS_IT_IS


class Answer(Struct, frozen=True, gc=False):
    """Answer requests with a status and no body."""

    status: int


class Redirect(Struct, frozen=True, gc=False):
    """Answer requests with where to go instead; parts that are empty stay as in the request.

    `path` takes the place of path and query. `before` is put before the path, of which the query stays.
    """

    status: int
    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    before: str = ""


Action: TypeAlias = ToCluster | ToClusters | Answer | Redirect


class Route(Struct, frozen=True, gc=False):
    """One route. Its name must not be empty: that is how one sees in an access log that there was one.

    It is for requests whose path and all `headers` and `query` match. `filters` are configurations of the filters on
    the way, by the names under which they are installed, of which its name tells (xds.messages.fallback); `request` and
    `response` what is done to headers.
    """

    name: str
    match: PathMatch
    action: Action
    headers: tuple[HeaderMatch, ...] = ()
    query: tuple[QueryMatch, ...] = ()
    request: HeaderChanges = UNCHANGED
    response: HeaderChanges = UNCHANGED
    filters: tuple[Extension, ...] = ()


_STATUSES: Final = {
    301: _route.RedirectAction.MOVED_PERMANENTLY,
    302: _route.RedirectAction.FOUND,
    303: _route.RedirectAction.SEE_OTHER,
    307: _route.RedirectAction.TEMPORARY_REDIRECT,
    308: _route.RedirectAction.PERMANENT_REDIRECT,
}


def encode_route(route: Route) -> Encoded:
    """The bytes of a Route."""
    message = _route.Route(name=route.name + FILTERED if route.filters else route.name)
    _write_match(message.match, route)
    match route.action:
        case ToCluster(cluster, how):
            message.route.cluster = cluster
            write_forwarding(message.route, how)
        case ToClusters(shares, how):
            for cluster, share in shares:
                message.route.weighted_clusters.clusters.add(name=cluster).weight.value = share
            write_forwarding(message.route, how)
        case Redirect():
            _write_redirect(message.redirect, route.action)
        case Answer(status):
            message.direct_response.status = status
    if route.request:
        message.request_headers_to_remove.extend(route.request.removed)
        write_headers(message.request_headers_to_add, route.request)
    if route.response:
        message.response_headers_to_remove.extend(route.response.removed)
        write_headers(message.response_headers_to_add, route.response)
    for one in route.filters:
        write_any(message.typed_per_filter_config[one.name], one)
    return encode(message)


def write_value_match(place: protos.envoy.type.matcher.v3.StringMatcher, match: ValueMatch) -> None:
    """Fill an empty message."""
    match match.comparison:
        case "exact":
            place.exact = match.value
        case "prefix":
            place.prefix = match.value
        case "regex":
            place.safe_regex.regex = match.value


def _write_match(place: protos.envoy.config.route.v3.RouteMatch, route: Route) -> None:
    match route.match.comparison:
        case "exact":
            place.path = route.match.path
        case "elements":
            place.path_separated_prefix = route.match.path
        case "regex":
            place.safe_regex.regex = route.match.path
        case "everything":
            place.prefix = "/"
    if route.match.any_case:
        place.case_sensitive.SetInParent()
    for header in route.headers:
        write_value_match(
            place.headers.add(name=header.name, invert_match=header.inverted).string_match, header.value
        )
    for parameter in route.query:
        write_value_match(place.query_parameters.add(name=parameter.name).string_match, parameter.value)


def encode_error_page(path: str, cluster: str, internal: Iterable[str]) -> Encoded:
    """The bytes of a Route by which the answer to `/` of a cluster is fetched in the place of another one; `internal`
    are headers of the request for it that are not passed on.
    """
    message = _route.Route(name="error-page")
    message.match.path = path
    message.route.cluster = cluster
    message.route.prefix_rewrite = "/"
    message.request_headers_to_remove.extend(internal)
    return encode(message)


def _write_redirect(place: protos.envoy.config.route.v3.RedirectAction, redirect: Redirect) -> None:
    place.response_code = _STATUSES[redirect.status]
    if redirect.scheme == "https" and not redirect.host:
        place.https_redirect = True
    elif redirect.scheme:
        place.scheme_redirect = redirect.scheme
    place.host_redirect = redirect.host
    place.port_redirect = redirect.port
    if redirect.path:
        place.path_redirect = redirect.path
        # Of a path that brings no query the request's would stay.
        place.strip_query = True
    elif redirect.before:
        place.regex_rewrite.pattern.regex = "^"
        place.regex_rewrite.substitution = redirect.before.replace("\\", "\\\\")


TO_HTTPS: Final = encode_route(Route("to-https", PathMatch("everything"), Redirect(308, "https"), PLAIN_HTTP))
"""Sends everybody who came in plain HTTP to HTTPS, but for those who look for the proofs that certificates need."""
NOT_FOUND: Final = encode_route(Route("not-found", PathMatch("everything"), Answer(404)))
"""What no other route matches. Without it a bad path could not be told from a host that is not served."""
MISDIRECTED: Final = encode_route(Route("misdirected", PathMatch("everything"), Answer(421)))
"""For a host whose connections need another filter chain than the one this came by."""
