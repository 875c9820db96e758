"""Scopes: the routes of one host as bytes, composed of parts that are made once."""

from __future__ import annotations

import pytest

from xds import protos
from xds.encoded import encode
from xds.messages.route import NOT_FOUND, TO_HTTPS, Answer, Comparison, PathMatch, Route, ToCluster, encode_route
from xds.messages.scope import Scope, encode_scope

proto = protos.envoy.config.route.v3


def route(comparison: Comparison = "everything", path: str = "", action: ToCluster | Answer | None = None) -> Route:
    return Route("a", PathMatch(comparison, path), action or ToCluster("ing|shop|web|80"))


def decoded(one: Route) -> protos.envoy.config.route.v3.Route:
    return proto.Route.FromString(encode_route(one).data)


@pytest.mark.parametrize(
    ("comparison", "path", "match"),
    [
        ("exact", "/foo/", proto.RouteMatch(path="/foo/")),
        ("elements", "/foo", proto.RouteMatch(path_separated_prefix="/foo")),
        ("everything", "", proto.RouteMatch(prefix="/")),
    ],
)
def test_comparisons(comparison: Comparison, path: str, match: protos.envoy.config.route.v3.RouteMatch) -> None:
    assert decoded(route(comparison, path)).match == match


def test_a_route_to_a_cluster_has_no_time_limit() -> None:
    action = decoded(route()).route
    assert action.cluster == "ing|shop|web|80"
    assert action.HasField("timeout")
    assert action.timeout.ToSeconds() == 0


def test_an_answer() -> None:
    assert decoded(route(action=Answer(503))).direct_response == proto.DirectResponseAction(status=503)


def test_what_no_route_matches_is_not_found() -> None:
    message = proto.Route.FromString(NOT_FOUND.data)
    assert (message.name, message.match.prefix, message.direct_response.status) == ("not-found", "/", 404)


def test_plain_http_is_sent_to_https_but_for_challenges() -> None:
    message = proto.Route.FromString(TO_HTTPS.data)
    scheme, challenges = message.match.headers
    assert (scheme.name, scheme.string_match.exact, scheme.invert_match) == ("x-forwarded-proto", "http", False)
    assert (challenges.name, challenges.string_match.prefix) == (":path", "/.well-known/acme-challenge/")
    assert challenges.invert_match
    assert message.redirect.https_redirect
    assert message.redirect.response_code == proto.RedirectAction.PERMANENT_REDIRECT


def test_a_scope_in_full() -> None:
    first, second = encode_route(route("exact", "/a")), encode_route(route())
    scope = Scope("#1", ("default", "a.example"), "a.example", (first, second), ("x-a", "x-b"))
    message = proto.ScopedRouteConfiguration.FromString(encode_scope(scope).data)
    assert message == proto.ScopedRouteConfiguration(
        name="#1",
        key=proto.ScopedRouteConfiguration.Key(
            fragments=[
                proto.ScopedRouteConfiguration.Key.Fragment(string_key="default"),
                proto.ScopedRouteConfiguration.Key.Fragment(string_key="a.example"),
            ]
        ),
        route_configuration=proto.RouteConfiguration(
            name="default|a.example",
            validate_clusters=protos.google.protobuf.BoolValue(value=False),
            request_headers_to_remove=["x-a", "x-b"],
            virtual_hosts=[
                proto.VirtualHost(
                    name="a.example",
                    domains=["*"],
                    routes=[decoded(route("exact", "/a")), decoded(route())],
                    retry_policy=proto.RetryPolicy(
                        retry_on="connect-failure,refused-stream",
                        num_retries=protos.google.protobuf.UInt32Value(value=2),
                    ),
                )
            ],
        ),
    )


def test_a_composed_scope_has_a_size_of_its_own() -> None:
    """Parts are copied as they are: what is composed reads back as what would have been serialised at once."""
    scope = Scope("n", ("k",), "h", tuple(encode_route(route("exact", f"/{number}")) for number in range(300)))
    data = encode_scope(scope).data
    message = proto.ScopedRouteConfiguration.FromString(data)
    assert len(data) == len(encode(message).data)
    assert [one.match.path for one in message.route_configuration.virtual_hosts[0].routes] == [
        f"/{number}" for number in range(300)
    ]


def test_scopes_differ_in_digest_when_any_part_does() -> None:
    one, other = encode_route(route("exact", "/a")), encode_route(route("exact", "/b"))
    scopes = [
        Scope("n", ("k",), "h", (one, other)),
        Scope("n", ("k",), "h", (other, one)),
        Scope("n", ("k",), "h", (one,)),
        Scope("n", ("k",), "i", (one, other)),
        Scope("n", ("l",), "h", (one, other)),
        Scope("m", ("k",), "h", (one, other)),
        Scope("n", ("k",), "h", (one, other), ("x",)),
    ]
    assert len({encode_scope(scope).digest for scope in scopes}) == len(scopes)
    assert encode_scope(scopes[0]) == encode_scope(Scope("n", ("k",), "h", (one, other)))
