"""ScopedRouteConfiguration of Envoy's SRDS: the routes of one host, as a resource of their own.

Records and their encoders. A scope is found by its key, a text for each fragment that the listener makes of a request
(xds.messages.http_connection_manager); the routes are inside it, so that a host is one resource and its change no
other's. Routes (xds.messages.route) are composed by concatenation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, concatenate

SCOPED_ROUTE_TYPE: Final = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"

_route = protos.envoy.config.route.v3
_DISABLED: Final = _route.FilterConfig(disabled=True)
# Field numbers, for composing by concatenation.
_CONFIGURATION: Final = 5  # ScopedRouteConfiguration.route_configuration
_VIRTUAL_HOSTS: Final = 2  # RouteConfiguration.virtual_hosts
_ROUTES: Final = 3  # VirtualHost.routes


class Scope(Struct, frozen=True, gc=False):
    """The routes of one host, in the order of matching; `key` has a text for each fragment, and stands for the scope
    wherever people read of it. `name` is the resource's.

    `hidden_headers` are those the listener made the key of, which nobody behind it should see. `disabled_filters` are
    HTTP filters that requests for it do not pass.
    """

    name: str
    key: tuple[str, ...]
    host: str
    routes: tuple[Encoded, ...]
    hidden_headers: tuple[str, ...] = ()
    disabled_filters: tuple[str, ...] = ()


def encode_scope(scope: Scope) -> Encoded:
    """The bytes of a ScopedRouteConfiguration."""
    virtual_host = encode_virtual_host(scope.host, ("*",), scope.routes)  # the scope has chosen the host
    head = _route.RouteConfiguration(name="|".join(scope.key), request_headers_to_remove=scope.hidden_headers)
    for name in scope.disabled_filters:
        head.typed_per_filter_config[name].Pack(_DISABLED)
    # Clusters come on demand, after the routes that name them.
    head.validate_clusters.SetInParent()
    configuration = concatenate(head.SerializeToString(deterministic=True), [(_VIRTUAL_HOSTS, virtual_host)])
    return concatenate(_key(scope.name, scope.key), [(_CONFIGURATION, configuration)])


def encode_virtual_host(name: str, domains: Iterable[str], routes: Iterable[Encoded]) -> Encoded:
    """The bytes of a VirtualHost, whose routes are in the order of matching."""
    message = _route.VirtualHost(name=name, domains=domains)
    message.retry_policy.retry_on = "connect-failure,refused-stream"
    message.retry_policy.num_retries.value = 2
    head = message.SerializeToString(deterministic=True)
    return concatenate(head, [(_ROUTES, route) for route in routes])


def _key(name: str, fragments: Iterable[str]) -> bytes:
    message = _route.ScopedRouteConfiguration(name=name)
    for fragment in fragments:
        message.key.fragments.add(string_key=fragment)
    return message.SerializeToString(deterministic=True)
