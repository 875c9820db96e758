"""ScopedRouteConfiguration of Envoy's SRDS: the routes of one host, as a resource of their own.

Records and their encoders. A scope is found by its key, a text for each fragment that the listener makes of a request
(xds.messages.http_connection_manager); the routes are inside it, so that a host is one resource and its change no
other's. Routes are encoded one by one and composed by concatenation; those that say the same for every host are made
once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, concatenate, encode

SCOPED_ROUTE_TYPE: Final = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"

_route = protos.envoy.config.route.v3
# Field numbers, for composing by concatenation.
_CONFIGURATION: Final = 5  # ScopedRouteConfiguration.route_configuration
_VIRTUAL_HOSTS: Final = 2  # RouteConfiguration.virtual_hosts
_ROUTES: Final = 3  # VirtualHost.routes

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


class Scope(Struct, frozen=True, gc=False):
    """The routes of one host, in the order of matching; `key` has a text for each fragment, and stands for the scope
    wherever people read of it. `name` is the resource's.

    `hidden_headers` are those the listener made the key of, which nobody behind it should see.
    """

    name: str
    key: tuple[str, ...]
    host: str
    routes: tuple[Encoded, ...]
    hidden_headers: tuple[str, ...] = ()


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


def encode_scope(scope: Scope) -> Encoded:
    """The bytes of a ScopedRouteConfiguration."""
    virtual_host = concatenate(_virtual_host(scope.host), [(_ROUTES, route) for route in scope.routes])
    head = _route.RouteConfiguration(name="|".join(scope.key), request_headers_to_remove=scope.hidden_headers)
    # Clusters come on demand, after the routes that name them.
    head.validate_clusters.SetInParent()
    configuration = concatenate(head.SerializeToString(deterministic=True), [(_VIRTUAL_HOSTS, virtual_host)])
    return concatenate(_key(scope.name, scope.key), [(_CONFIGURATION, configuration)])


def _virtual_host(host: str) -> bytes:
    message = _route.VirtualHost(name=host, domains=["*"])  # the scope has chosen the host
    message.retry_policy.retry_on = "connect-failure,refused-stream"
    message.retry_policy.num_retries.value = 2
    return message.SerializeToString(deterministic=True)


def _key(name: str, fragments: Iterable[str]) -> bytes:
    message = _route.ScopedRouteConfiguration(name=name)
    for fragment in fragments:
        message.key.fragments.add(string_key=fragment)
    return message.SerializeToString(deterministic=True)
