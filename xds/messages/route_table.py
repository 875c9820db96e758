"""RouteConfiguration of Envoy's RDS: the routes of all hosts in one resource, for proxies that cannot take single ones.

Virtual hosts (xds.messages.scope) are encoded one by one, joined into parts of a table, and the parts into the table,
so that a host that changes costs its part and one copy of the rest, and no encoding of any neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xds import protos
from xds.encoded import Encoded, concatenate, encode, merge

ROUTE_TYPE: Final = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

_route = protos.envoy.config.route.v3
# Field numbers, for composing by concatenation.
_VIRTUAL_HOSTS: Final = 2  # RouteConfiguration.virtual_hosts
_MATCH: Final = 1  # Route.match


def encode_virtual_hosts(hosts: Iterable[Encoded]) -> Encoded:
    """Virtual hosts as a part of a table, for `compose_table`."""
    return concatenate(b"", [(_VIRTUAL_HOSTS, host) for host in hosts])


def compose_table(name: str, parts: Iterable[Encoded]) -> Encoded:
    """The bytes of a RouteConfiguration. No domain may be in it twice."""
    head = _route.RouteConfiguration(name=name)
    # Clusters may come after the routes that name them.
    head.validate_clusters.SetInParent()
    return merge([encode(head), *parts])


def within_one_label(route: Encoded, parent: str) -> Encoded:
    """The same route for requests only whose host is one label before `parent`.

    A virtual host for `*.parent` also gets those with more labels, which Ingress does not give it.
    """
    match = _route.RouteMatch()
    header = match.headers.add(name=":authority")
    header.string_match.safe_regex.regex = rf"(?i)[^.]+\.{parent.replace('.', '[.]')}"
    # Fields that come twice are merged: the route is not taken apart for it.
    return concatenate(route.data, [(_MATCH, encode(match))])
