"""The way of a request whose host has no scope of its own: to that of the host in small letters, to that of the
wildcard over it, then to that of all hosts.

Scopes are found by exact keys (xds.messages.scope), so a wildcard is asked for by its own name: `*.example` for
`a.example`, since a wildcard of an Ingress stands for one label. What is asked for last is `*`, the rules for all
hosts. A script can have a route chosen and look at it once, so there is one for each step. They run where no route was
found at first and nowhere else: each scope disables them for requests that found it, which spares those some 4 us.

Which filters a request passes is settled when it comes, so those that a route of a later step switches on would not be
there. Names of such routes end in FILTERED. Whoever gets to one is sent on to the same scope through the internal
listener AGAIN of the same Envoy, where that is the first.
"""

from __future__ import annotations

from typing import Final

from xds import protos
from xds.messages.extension import Extension, extension

ALL_HOSTS: Final = "*"
"""The key of the scope for hosts that no other scope is for."""
FILTERED: Final = " with filters"
"""How names of routes end that switch filters on."""

AGAIN: Final = "again"
"""The internal listener, its cluster, and the class of the scope that leads there."""
AGAIN_HOST: Final = "again/"
"""The host of that scope; none that a client can name."""
AGAIN_HEADERS: Final = ("x-isthmus-again-class", "x-isthmus-again-host")
"""The headers in which the listener AGAIN is told the key of the scope."""
AGAIN_CLIENT: Final = "x-isthmus-again-client"
"""The header in which it is told the client's address. X-Forwarded-For names another for one of the gateway's host."""

_STEPS: Final = {
    "capitals": 'host:find("%u") and host:lower()',
    "wildcards": 'host:find("^[^.]+%..") and host:gsub("^[^.]+", "*", 1)',
    "all-hosts": f'"{ALL_HOSTS}"',
}
"""Expressions for the key that a filter asks for, nil or false for none."""
FALLBACK_FILTERS: Final = tuple(_STEPS)
"""Names of the filters, by which scopes disable them."""

# metadata() has a route chosen for the keys of now; it does so the first time only.
_SCRIPT: Final = """
function envoy_on_request(request)
  local info = request:streamInfo()
  if info:routeName() ~= "" then
    return
  end
  local headers = request:headers()
  local host = headers:get("{host}") or ""
  local key = {step}
  if not key then
    return
  end
  headers:replace("{host}", key)
  request:clearRouteCache()
  request:metadata()
  if info:routeName():sub(-{length}) == "{filtered}" then
    headers:replace("{again_class}", headers:get("{scope_class}"))
    headers:replace("{again_host}", key)
    headers:replace("{scope_class}", "{again}")
    headers:replace("{host}", "{again}/")
    request:clearRouteCache()
  end
end
"""


def fallback(class_header: str, host_header: str) -> tuple[Extension, ...]:
    """The HTTP filters that do so, where scopes are found by these headers. They go before all others."""
    return tuple(
        _lua(
            name,
            _SCRIPT.format(
                step=step,
                scope_class=class_header,
                host=host_header,
                filtered=FILTERED,
                length=len(FILTERED),
                again=AGAIN,
                again_class=AGAIN_HEADERS[0],
                again_host=AGAIN_HEADERS[1],
            ),
        )
        for name, step in _STEPS.items()
    )


def _lua(name: str, script: str) -> Extension:
    config = protos.envoy.extensions.filters.http.lua.v3.Lua()
    config.default_source_code.inline_string = script
    return extension(name, config)
