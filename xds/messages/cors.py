"""Cross-origin requests: which pages of other origins may read answers, for the CORS filter of a route.

The filter is installed with all others (xds.messages.http_filters); this is what switches it on.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from xds import protos
from xds.messages.extension import Extension
from xds.messages.http_filters import switched_on
from xds.messages.route import ValueMatch, write_value_match

CORS_FILTER: Final = "envoy.filters.http.cors"


class Cors(Struct, frozen=True, gc=False):
    """Origins that are allowed, and what the answer to their browsers says; lists as they stand in the header.

    `max_age` is how many seconds a browser keeps it.
    """

    origins: tuple[ValueMatch, ...]
    methods: str
    headers: str
    exposed: str
    max_age: int
    credentials: bool


def cors(policy: Cors) -> Extension:
    """The configuration of a route's filter."""
    message = protos.envoy.extensions.filters.http.cors.v3.CorsPolicy(
        allow_methods=policy.methods,
        allow_headers=policy.headers,
        expose_headers=policy.exposed,
        max_age=str(policy.max_age),
    )
    for origin in policy.origins:
        write_value_match(message.allow_origin_string_match.add(), origin)
    message.allow_credentials.value = policy.credentials
    return switched_on(CORS_FILTER, message)
