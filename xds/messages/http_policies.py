"""What a route tells the HTTP filters on the way: configurations that switch a filter on, each as an extension.

Records of what is wanted in, extensions under the names of the filters out (xds.messages.http_filters). Equal ones are
made once. Envoy refuses a whole answer for one bad configuration, so values are checked before they come here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from xds import protos
from xds.encoded import varint
from xds.messages.extension import Extension, extension, write_extension
from xds.messages.http_filters import (
    AROUND_EXT_AUTHZ,
    BASIC_AUTH,
    BODY_SIZE,
    CUSTOM_RESPONSE,
    EXT_AUTHZ,
    RATE_LIMIT,
    RBAC,
    STATEFUL_SESSION,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

_http = protos.envoy.extensions.filters.http
_rbac = protos.envoy.config.rbac.v3
_core = protos.envoy.config.core.v3

MOST_CLIENTS: Final = 4_096
"""Clients a route counts at a time: beyond, the one that was seen least lately is forgotten."""
AUTHORIZATION_TIMEOUT: Final = 10
"""Seconds a service may take to say who may come."""
_PATH_OVERRIDE: Final = b"\x52"  # HttpService.path_override = 10, which the package with the API does not know yet
_PASSED_TO_CLIENTS: Final = (
    "cache-control",
    "content-type",
    "location",
    "retry-after",
    "set-cookie",
    "www-authenticate",
)
"""Headers of an answer that does not let in which clients see."""


class Cookie(Struct, frozen=True, gc=False):
    """A cookie; `attributes` are (name, value), the value "" for those that have none."""

    name: str
    path: str
    max_age: int = 0
    attributes: tuple[tuple[str, str], ...] = ()


@lru_cache(1_024)
def source_ranges(allowed: Sequence[str], denied: Sequence[str]) -> Extension:
    """Clients from one of `allowed` (none: from anywhere) and from none of `denied`, each `<address>/<bits>`."""
    config = _http.rbac.v3.RBACPerRoute()
    policy = config.rbac.rules.policies["clients"]
    config.rbac.rules.action = _rbac.RBAC.ALLOW
    policy.permissions.add().any = True
    both = policy.principals.add().and_ids
    if allowed:
        _write_ranges(both.ids.add(), allowed)
    if denied:
        _write_ranges(both.ids.add().not_id, denied)
    return _named(RBAC, config)


def _write_ranges(place: protos.envoy.config.rbac.v3.Principal, ranges: Sequence[str]) -> None:
    for one in ranges:
        address, _, bits = one.partition("/")
        into = place.or_ids.ids.add().remote_ip
        into.address_prefix = address
        into.prefix_len.value = int(bits)


@lru_cache(1_024)
def rate_limits(per_second: int, per_minute: int, burst: int) -> Extension:
    """Requests of each client address: so many a second and a minute (0: as many as it likes), `burst` times that at
    once; more are answered 503.
    """
    config = _http.local_ratelimit.v3.LocalRateLimit(stat_prefix="http_local_rate_limiter")
    config.status.code = protos.envoy.type.v3.ServiceUnavailable
    for enabled in (config.filter_enabled, config.filter_enforced):
        enabled.default_value.numerator = 100
    # What all clients together may do, which has to be said.
    config.token_bucket.max_tokens = (1 << 32) - 1
    config.token_bucket.tokens_per_fill.value = (1 << 32) - 1
    config.token_bucket.fill_interval.seconds = 1
    config.always_consume_default_token_bucket.value = False
    config.max_dynamic_descriptors.value = MOST_CLIENTS
    for name, requests, seconds in (("second", per_second, 1), ("minute", per_minute, 60)):
        if not requests:
            continue
        actions = config.rate_limits.add().actions
        actions.add().remote_address.SetInParent()
        actions.add().generic_key.descriptor_value = name
        counted = config.descriptors.add()
        counted.entries.add(key="remote_address")  # without a value: each by itself
        counted.entries.add(key="generic_key", value=name)
        counted.token_bucket.max_tokens = requests * burst
        counted.token_bucket.tokens_per_fill.value = requests
        counted.token_bucket.fill_interval.seconds = seconds
    return _named(RATE_LIMIT, config)


def basic_auth(users: str) -> Extension:
    """Users by name and password; `users` are lines `<name>:{SHA}<base64>`, none of them twice."""
    config = _http.basic_auth.v3.BasicAuthPerRoute()
    config.users.inline_string = users
    return _named(BASIC_AUTH, config)


def authorization(cluster: str, url: str, path: str, headers: Sequence[str]) -> Extension:
    """The service behind `cluster` is asked, at `path` (with its query): 2xx lets in, and `headers` of that answer are
    passed on; all else is the answer. `url` is for people.
    """
    config = _http.ext_authz.v3.ExtAuthzPerRoute()
    service = config.check_settings.http_service
    service.server_uri.uri = url
    service.server_uri.cluster = cluster
    service.server_uri.timeout.seconds = AUTHORIZATION_TIMEOUT
    for key, value in (
        ("x-original-url", "%REQ(x-forwarded-proto)%://%REQ(:authority)%%REQ(:path)%"),
        ("x-original-method", "%REQ(:method)%"),
        ("x-auth-request-redirect", "%REQ(:path)%"),
    ):
        service.authorization_request.headers_to_add.add(key=key, value=value)
    response = service.authorization_response
    for name in headers:
        response.allowed_upstream_headers.patterns.add(exact=name, ignore_case=True)
    for name in _PASSED_TO_CLIENTS:
        response.allowed_client_headers.patterns.add(exact=name, ignore_case=True)
    service.MergeFromString(_PATH_OVERRIDE + varint(len(path)) + path.encode())
    return _named(EXT_AUTHZ, config)


@lru_cache(1_024)
def around_authorization(to: Sequence[str], dropped: Sequence[str]) -> Extension:
    """Who is refused with 401 is sent there (empty: nowhere): texts, and `$host`, `$scheme`, `$path`, `$escaped-path`
    of the request, from which the headers `dropped` are taken before.
    """
    config = _http.lua.v3.LuaPerRoute()
    config.filter_context.update({"to": list(to), "drop": list(dropped)})
    return _named(AROUND_EXT_AUTHZ, config)


@lru_cache(1_024)
def body_size(most: int) -> Extension:
    """Bodies of at most so many bytes; longer ones are answered 413 as soon as that shows."""
    limit = _http.body_size_limit.v3.BodySizeLimit()
    limit.max_request_bytes.value = most
    action = _http.composite.v3.ExecuteFilterAction()
    write_extension(action.typed_config, extension("body_size_limit", limit))
    config = protos.envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute()
    write_extension(config.xds_matcher.on_no_match.action, extension("composite-action", action))
    return _named(BODY_SIZE, config)


@lru_cache(1_024)
def session_cookie(cookie: Cookie) -> Extension:
    """The endpoint a client had first, as long as it is there."""
    state = protos.envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState()
    state.cookie.name, state.cookie.path = cookie.name, cookie.path
    state.cookie.ttl.seconds = cookie.max_age
    for name, value in cookie.attributes:
        state.cookie.attributes.add(name=name, value=value)
    config = _http.stateful_session.v3.StatefulSessionPerRoute()
    write_extension(
        config.stateful_session.session_state, extension("envoy.http.stateful_session.cookie", state)
    )
    return _named(STATEFUL_SESSION, config)


@lru_cache(1_024)
def error_pages(codes: Sequence[int], path: str, headers: Sequence[tuple[str, str]]) -> Extension:
    """Answers with these codes are replaced by that of the same host for `path`, which is asked for with `headers` and
    the code as `x-code`.
    """
    config = _http.custom_response.v3.CustomResponse()
    tree = config.custom_response_matcher.matcher_tree
    write_extension(
        tree.input, extension("status", protos.envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput())
    )
    for code in codes:
        policy = protos.envoy.extensions.http.custom_response.redirect_policy.v3.RedirectPolicy()
        policy.redirect_action.path_redirect = path
        for key, value in (("x-code", str(code)), *headers):
            added = policy.request_headers_to_add.add(
                append_action=_core.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
            )
            added.header.key, added.header.value = key, value
        write_extension(tree.exact_match_map.map[str(code)].action, extension(str(code), policy))
    return _named(CUSTOM_RESPONSE, config)


def _named(name: str, config: Message) -> Extension:
    return extension(name, config)
