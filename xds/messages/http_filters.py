"""HTTP filters of ingress gateways: each is installed once, disabled, and switched on by the routes that need it.

To install one later would change the listener, which drains its connections and throws its certificates away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds import protos
from xds.messages.extension import Extension, extension, write_ads

if TYPE_CHECKING:
    from google.protobuf.message import Message

CLUSTER_TIMEOUT: Final = 2
"""Seconds a request waits for its cluster. Every cluster that a route names is told, so this is for a control plane
that cannot be reached."""

_http = protos.envoy.extensions.filters.http


def http_filters() -> tuple[tuple[str, Message, bool], ...]:
    """Name, configuration and whether it is disabled, of all filters before the router, in their order."""
    on_demand = _http.on_demand.v3.OnDemand()
    write_ads(on_demand.odcds.source)
    on_demand.odcds.timeout.seconds = CLUSTER_TIMEOUT
    return (
        ("envoy.filters.http.cors", _http.cors.v3.Cors(), True),
        ("envoy.filters.http.rbac", _http.rbac.v3.RBAC(), True),
        ("envoy.filters.http.header_mutation", _http.header_mutation.v3.HeaderMutation(), True),
        ("envoy.filters.http.on_demand", on_demand, False),
    )


def switched_on(name: str, config: Message) -> Extension:
    """What a route says to have requests pass a filter that is installed disabled."""
    message = protos.envoy.config.route.v3.FilterConfig()
    message.config.Pack(config, deterministic=True)
    return extension(name, message)
