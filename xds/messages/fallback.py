"""The way of a request whose host has no scope of its own: to that of the wildcard over it, then to that of all hosts.

Scopes are found by exact keys (xds.messages.scope), so a wildcard is asked for by its own name: `*.example` for
`a.example`, since a wildcard of an Ingress stands for one label. What is asked for last is `*`, the rules for all
hosts. A host in capitals is first looked for in small letters. A script can have a route chosen and look at it once, so
there are two. They are asked where no route was found at first and nowhere else: each scope disables them for those it
was found by, which spares them some 4 us.
"""

from __future__ import annotations

from typing import Final

from xds import protos
from xds.messages.extension import Extension, extension

ALL_HOSTS: Final = "*"
"""The key of the scope for hosts that no other scope is for."""

_CAPITALS: Final = "capitals"
_WILDCARDS: Final = "wildcards"
FALLBACK_FILTERS: Final = (_CAPITALS, _WILDCARDS)
"""Names of the filters, by which scopes disable them."""

# metadata() has a route chosen for the keys of now; it does so the first time only.
_SCRIPTS: Final = {
    _CAPITALS: """
function envoy_on_request(request)
  local headers = request:headers()
  local host = headers:get("{header}")
  if host and host:find("%u") then
    headers:replace("{header}", host:lower())
    request:clearRouteCache()
    request:metadata()
  end
end
""",
    _WILDCARDS: """
function envoy_on_request(request)
  local info = request:streamInfo()
  if info:routeName() ~= "" then
    return
  end
  local headers = request:headers()
  local parent = (headers:get("{header}") or ""):match("^[^.]+(%..+)$")
  if parent then
    headers:replace("{header}", "*" .. parent)
    request:clearRouteCache()
    request:metadata()
    if info:routeName() ~= "" then
      return
    end
  end
  headers:replace("{header}", "{all}")
  request:clearRouteCache()
end
""",
}


def fallback(header: str) -> tuple[Extension, ...]:
    """The HTTP filters that do so, where scopes are found by the host in `header`. They go before all others."""
    return tuple(_lua(name, script.format(header=header, all=ALL_HOSTS)) for name, script in _SCRIPTS.items())


def _lua(name: str, script: str) -> Extension:
    config = protos.envoy.extensions.filters.http.lua.v3.Lua()
    config.default_source_code.inline_string = script
    return extension(name, config)
