"""HTTP filters of ingress gateways: each is installed once, disabled, and switched on by the routes that need it.

To install one later would change the listener, which drains its connections and throws its certificates away. A route
switches a filter on by a configuration of its own under the filter's name (xds.messages.http_policies). The order is
that of requests; answers pass in reverse:

| filter | does | why there |
|---|---|---|
| custom_response | replaces answers with some codes | last to see an answer, whoever gave it |
| cors | answers preflights, which carry no credentials | before all that refuses |
| rbac | lets in by address and by certificate | the cheapest way to refuse |
| local_ratelimit | counts requests by client | before the work of looking at passwords |
| basic_auth | name and password | |
| around_ext_authz (Lua) | drops headers that only the next one may set, and sends those away to sign in whom it \
refuses | around it |
| ext_authz | asks a service | |
| body_size | refuses long bodies, and keeps none (match_delegate around body_size_limit, which routes cannot set) | \
once it is known who sends |
| stateful_session | keeps to an endpoint by cookie | |
| header_mutation | changes headers | after all that reads them |
| on_demand | fetches the cluster | |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from xds import protos
from xds.messages.extension import Extension, extension, write_ads, write_extension

if TYPE_CHECKING:
    from google.protobuf.message import Message

ON_DEMAND: Final = "envoy.filters.http.on_demand"
"""The filter that fetches the cluster of a route when it is needed, where clusters are not told unasked."""
CLUSTER_TIMEOUT: Final = 2
"""Seconds a request waits for its cluster. Every cluster that a route names is told, so this is for a control plane
that cannot be reached."""

CUSTOM_RESPONSE: Final = "envoy.filters.http.custom_response"
CORS: Final = "envoy.filters.http.cors"
RBAC: Final = "envoy.filters.http.rbac"
RATE_LIMIT: Final = "envoy.filters.http.local_ratelimit"
BASIC_AUTH: Final = "envoy.filters.http.basic_auth"
AROUND_EXT_AUTHZ: Final = "around_ext_authz"
EXT_AUTHZ: Final = "envoy.filters.http.ext_authz"
BODY_SIZE: Final = "body_size"
STATEFUL_SESSION: Final = "envoy.filters.http.stateful_session"
HEADER_MUTATION: Final = "envoy.filters.http.header_mutation"

UPSTREAM_TIME: Final = "x-envoy-upstream-service-time"
"""A header that every answer of a backend has, and none that a filter gives."""

PROTECTING: Final = frozenset(
    {RBAC, RATE_LIMIT, BASIC_AUTH, AROUND_EXT_AUTHZ, EXT_AUTHZ, BODY_SIZE}
)
"""The filters without which a request would get where it must not."""

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    CUSTOM_RESPONSE: (
        CUSTOM_RESPONSE,
        "envoy.extensions.http.custom_response.redirect_policy",
        "envoy.matching.inputs.status_code_input",
    ),
    AROUND_EXT_AUTHZ: ("envoy.filters.http.lua",),
    BODY_SIZE: (
        "envoy.filters.http.match_delegate",
        "envoy.filters.http.composite",
        "envoy.filters.http.body_size_limit",
    ),
    STATEFUL_SESSION: (STATEFUL_SESSION, "envoy.http.stateful_session.cookie"),
}
"""The extensions that a filter is made of, where it is not the one of its name alone."""

_http = protos.envoy.extensions.filters.http
_matching = protos.envoy.extensions.common.matching.v3

_AROUND_CODE: Final = f"""
function envoy_on_request(handle)
  local headers = handle:headers()
  local seen = handle:streamInfo():dynamicMetadata()
  for name, header in pairs({{scheme = "x-forwarded-proto", host = ":authority", path = ":path"}}) do
    seen:set("isthmus.asked", name, headers:get(header) or "")
  end
  for _, name in ipairs(handle:filterContext():get("drop") or {{}}) do
    headers:remove(name)
  end
end

function envoy_on_response(handle)
  local headers = handle:headers()
  if headers:get(":status") ~= "401" or headers:get("{UPSTREAM_TIME}") then
    return
  end
  local asked = handle:streamInfo():dynamicMetadata():get("isthmus.asked")
  local to = handle:filterContext():get("to") or {{}}
  if asked == nil or #to == 0 then
    return
  end
  local parts = {{}}
  for _, part in ipairs(to) do
    if part == "$escaped-path" then
      part = string.gsub(asked["path"], "[^%w%-._~]", function(one)
        return string.format("%%%02X", string.byte(one))
      end)
    elseif string.sub(part, 1, 1) == "$" then
      part = asked[string.sub(part, 2)]
    end
    table.insert(parts, part)
  end
  headers:replace(":status", "302")
  headers:replace("location", table.concat(parts))
  headers:remove("www-authenticate")
end
"""


Filters: TypeAlias = "tuple[tuple[str, Message, bool], ...]"
"""Name, configuration and whether it is disabled, of each."""


def http_filters() -> Filters:
    """Name, configuration and whether it is disabled, of all filters before the router, in their order."""
    on_demand = _http.on_demand.v3.OnDemand()
    write_ads(on_demand.odcds.source)
    on_demand.odcds.timeout.seconds = CLUSTER_TIMEOUT
    return (
        (CUSTOM_RESPONSE, _http.custom_response.v3.CustomResponse(), True),
        (CORS, _http.cors.v3.Cors(), True),
        (RBAC, _http.rbac.v3.RBAC(), True),
        (RATE_LIMIT, _http.local_ratelimit.v3.LocalRateLimit(stat_prefix="http_local_rate_limiter"), True),
        (BASIC_AUTH, _nobody(), True),
        (AROUND_EXT_AUTHZ, _around(), True),
        (EXT_AUTHZ, _asking_nobody(), True),
        (BODY_SIZE, _any_length(), True),
        (STATEFUL_SESSION, _http.stateful_session.v3.StatefulSession(), True),
        (HEADER_MUTATION, _http.header_mutation.v3.HeaderMutation(), True),
        (ON_DEMAND, on_demand, False),
    )


def extensions_of_filters() -> frozenset[str]:
    """The names of all extensions that an Envoy has to be built with to have all filters."""
    return frozenset(part for name, _, _ in http_filters() for part in _PARTS.get(name, (name,)))


@lru_cache(256)
def lacking_filters(extensions: frozenset[str]) -> frozenset[str]:
    """The filters, by the names under which they are installed, that an Envoy with these extensions cannot have."""
    return frozenset(name for name, _, _ in http_filters() if not extensions.issuperset(_PARTS.get(name, (name,))))


def switched_on(name: str, config: Message) -> Extension:
    """What a route says to have requests pass a filter that is installed disabled."""
    message = protos.envoy.config.route.v3.FilterConfig()
    message.config.Pack(config, deterministic=True)
    return extension(name, message)


def _nobody() -> Message:
    """Users have to be named: one whose password nobody has."""
    config = _http.basic_auth.v3.BasicAuth()
    config.users.inline_string = f"nobody:{{SHA}}{'A' * 27}="
    return config


def _around() -> Message:
    config = _http.lua.v3.Lua()
    config.default_source_code.inline_string = _AROUND_CODE
    return config


def _asking_nobody() -> Message:
    """A service has to be named: routes name theirs. It sees the headers of requests, and if it cannot be asked, the
    answer is 503.
    """
    config = _http.ext_authz.v3.ExtAuthz()
    config.http_service.server_uri.uri = "http://nobody"
    config.http_service.server_uri.cluster = "nobody"
    config.http_service.server_uri.timeout.seconds = 1
    config.allowed_headers.patterns.add().safe_regex.regex = ".*"
    config.disallowed_headers.patterns.add().prefix = "x-isthmus-"  # of the scope
    config.status_on_error.code = protos.envoy.type.v3.ServiceUnavailable
    return config


def _any_length() -> Message:
    config = _matching.ExtensionWithMatcher()
    write_extension(config.extension_config, extension("composite", _http.composite.v3.Composite()))
    skip = protos.envoy.extensions.filters.common.matcher.action.v3.SkipFilter()
    write_extension(config.xds_matcher.on_no_match.action, extension("skip", skip))
    return config
