"""Parts of routes: matches, redirects, how requests are passed on, headers, filters."""

from __future__ import annotations

import pytest

from xds import protos
from xds.messages.cors import CORS_FILTER, Cors, cors
from xds.messages.forwarding import AS_IT_IS, Forwarding, Mirror, Retries, Rewrite
from xds.messages.header_changes import HeaderChanges
from xds.messages.http_filters import http_filters
from xds.messages.route import (
    PLAIN_HTTP,
    Action,
    HeaderMatch,
    PathMatch,
    QueryMatch,
    Redirect,
    Route,
    ToCluster,
    ToClusters,
    ValueMatch,
    encode_route,
)

proto = protos.envoy.config.route.v3
_ALL = PathMatch("everything")


def decoded(route: Route) -> protos.envoy.config.route.v3.Route:
    return proto.Route.FromString(encode_route(route).data)


def acted(action: Action) -> protos.envoy.config.route.v3.Route:
    return decoded(Route("a", _ALL, action))


def passed(how: Forwarding) -> protos.envoy.config.route.v3.RouteAction:
    return acted(ToCluster("c", how)).route


@pytest.mark.parametrize("comparison", ["exact", "elements"])
def test_paths_in_any_case(comparison: str) -> None:
    match = decoded(Route("a", PathMatch(comparison, "/a", any_case=True), ToCluster("c"))).match  # type: ignore[arg-type]
    assert match.HasField("case_sensitive")
    assert not match.case_sensitive.value
    assert not decoded(Route("a", PathMatch("exact", "/a"), ToCluster("c"))).match.HasField("case_sensitive")


def test_headers_and_parameters_are_matched() -> None:
    headers = (HeaderMatch("x", ValueMatch("regex", "a|b")), HeaderMatch("y", ValueMatch("prefix", "c"), inverted=True))
    match = decoded(Route("a", _ALL, ToCluster("c"), headers, (QueryMatch("q", ValueMatch("exact", "d")),))).match
    first, second = match.headers
    assert (first.name, first.string_match.safe_regex.regex, first.invert_match) == ("x", "a|b", False)
    assert (second.name, second.string_match.prefix, second.invert_match) == ("y", "c", True)
    (parameter,) = match.query_parameters
    assert (parameter.name, parameter.string_match.exact) == ("q", "d")


def test_who_comes_in_plain_http_is_known_by_what_the_gateway_says() -> None:
    assert [(one.name, one.inverted) for one in PLAIN_HTTP] == [("x-forwarded-proto", False), (":path", True)]


def test_shares() -> None:
    action = acted(ToClusters((("a", 3), ("b", 1)), Forwarding(timeout=5))).route
    assert [(one.name, one.weight.value) for one in action.weighted_clusters.clusters] == [("a", 3), ("b", 1)]
    assert action.timeout.seconds == 5


@pytest.mark.parametrize(
    ("redirect", "message"),
    [
        (Redirect(308, "https"), proto.RedirectAction(response_code=4, https_redirect=True)),
        (
            Redirect(301, "https", "b.example", 8443, "/x?y"),
            proto.RedirectAction(
                response_code=0,
                scheme_redirect="https",
                host_redirect="b.example",
                port_redirect=8443,
                path_redirect="/x?y",
                strip_query=True,
            ),
        ),
        (Redirect(303, "http"), proto.RedirectAction(response_code=2, scheme_redirect="http")),
    ],
)
def test_redirects(redirect: Redirect, message: protos.envoy.config.route.v3.RedirectAction) -> None:
    assert acted(redirect).redirect == message


def test_what_stands_before_the_path_of_a_redirect_is_taken_as_it_is() -> None:
    rewrite = acted(Redirect(307, before="/a\\1")).redirect.regex_rewrite
    assert (rewrite.pattern.regex, rewrite.substitution) == ("^", "/a\\\\1")


def test_requests_that_are_passed_on_as_they_are_say_nothing_but_that_there_is_no_limit() -> None:
    assert passed(Forwarding()) == passed(AS_IT_IS)
    assert passed(AS_IT_IS) == proto.RouteAction(cluster="c", timeout=protos.google.protobuf.Duration())


def test_how_requests_are_passed_on() -> None:
    action = passed(Forwarding(7, 5, "b.example", Rewrite("^.*", r"/\1"), None, Mirror("m", 3)))
    assert (action.timeout.seconds, action.idle_timeout.seconds, action.host_rewrite_literal) == (7, 5, "b.example")
    assert (action.regex_rewrite.pattern.regex, action.regex_rewrite.substitution) == ("^.*", r"/\1")
    (mirror,) = action.request_mirror_policies
    assert (mirror.cluster, mirror.runtime_fraction.default_value.numerator) == ("m", 3)
    assert mirror.runtime_fraction.default_value.denominator == protos.envoy.type.v3.FractionalPercent.HUNDRED
    assert mirror.disable_shadow_host_suffix_append


def test_no_idle_time_is_another_thing_than_none_said() -> None:
    assert passed(Forwarding(idle=0)).HasField("idle_timeout")
    assert not passed(Forwarding(timeout=1)).HasField("idle_timeout")


def test_what_is_tried_again() -> None:
    how = Forwarding(retries=Retries(("reset", "retriable-status-codes"), 3, (502, 503), 60, ("POST", "PATCH")))
    policy = passed(how).retry_policy
    assert (policy.retry_on, policy.num_retries.value) == ("reset,retriable-status-codes", 2)
    assert list(policy.retriable_status_codes) == [502, 503]
    assert policy.per_try_idle_timeout.seconds == 60
    (methods,) = policy.retriable_request_headers
    assert (methods.name, methods.string_match.safe_regex.regex) == (":method", "POST|PATCH")
    assert methods.invert_match


def test_nothing_that_is_tried_again_is_another_thing_than_none_said() -> None:
    action = passed(Forwarding(retries=Retries()))
    assert action.HasField("retry_policy")
    assert action.retry_policy == proto.RetryPolicy()


def test_headers_are_changed_and_values_are_no_commands() -> None:
    changes = HeaderChanges(("x-a",), (("x-b", "100%"),), (("x-c", "%REQ(x)%"),))
    route = decoded(Route("a", _ALL, ToCluster("c"), request=changes, response=HeaderChanges(removed=("x-d",))))
    added, put = route.request_headers_to_add
    option = protos.envoy.config.core.v3.HeaderValueOption
    assert list(route.request_headers_to_remove) == ["x-a"]
    assert (added.header.key, added.header.value) == ("x-b", "100%%")
    assert added.append_action == option.APPEND_IF_EXISTS_OR_ADD
    assert (put.header.value, put.append_action) == ("%%REQ(x)%%", option.OVERWRITE_IF_EXISTS_OR_ADD)
    assert list(route.response_headers_to_remove) == ["x-d"]
    assert not route.response_headers_to_add


def test_the_filter_of_a_route_is_one_that_is_installed() -> None:
    one = cors(Cors((ValueMatch("exact", "https://a.example"),), "GET", "X-A", "X-B", 9, credentials=True))
    assert one.name == CORS_FILTER
    assert CORS_FILTER in [name for name, _, _ in http_filters()]
    route = decoded(Route("a", _ALL, ToCluster("c"), filters=(one,)))
    config = proto.FilterConfig()
    assert route.typed_per_filter_config[CORS_FILTER].Unpack(config)
    policy = protos.envoy.extensions.filters.http.cors.v3.CorsPolicy()
    assert config.config.Unpack(policy)
    (origin,) = policy.allow_origin_string_match
    assert (origin.exact, policy.allow_methods, policy.allow_headers) == ("https://a.example", "GET", "X-A")
    assert (policy.expose_headers, policy.max_age, policy.allow_credentials.value) == ("X-B", "9", True)
