"""Routes of ingress gateways: what a host's rules are as a scope, whatever the gateway listens on.

In: hosts (traffic.hosts). Out: bytes. A host's scope reads that host and nothing else.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Final

from aggregator.traffic.hosts import Host, Rule
from aggregator.traffic.ingresses import EXACT
from aggregator.traffic.tls_classes import COMMON
from xds.encoded import Encoded
from xds.messages.http_connection_manager import SCOPE_HEADERS
from xds.messages.route import (
    CHALLENGES,
    MISDIRECTED,
    NOT_FOUND,
    TO_HTTPS,
    Answer,
    PathMatch,
    Route,
    ToCluster,
    encode_route,
)
from xds.messages.scope import Scope, encode_scope

LONGEST_NAME: Final = 22
"""Characters of a text that Envoy keeps without memory of its own."""


def scope_name(host: str, scope_class: str = COMMON) -> str:
    """The name of a host's routes: `<class>|<host>` where that is short, else a digest of it.

    Envoy copies the names of all scopes with every change of one. Up to LONGEST_NAME characters that costs it 50 ns a
    scope, beyond three times as much.
    """
    name = f"{scope_class}|{host}"
    if len(name) <= LONGEST_NAME:
        return name
    # No digest that could be steered to another's, as hosts are chosen by many. "#" is in no host.
    digest = urlsafe_b64encode(blake2b(name.encode(), digest_size=18).digest()).decode()
    return f"#{digest[: LONGEST_NAME - 1]}"


def scope(name: str, host: Host, scope_class: str = COMMON) -> Encoded:
    """The scope of a host, as bytes: what is served in the chains of a class."""
    routes = [_route(rule) for rule in host.rules]
    if host.tls is not None:
        routes.insert(0, TO_HTTPS)
    if not host.rules or (host.rules[-1].kind, host.rules[-1].path) != ("Prefix", "/"):
        routes.append(NOT_FOUND)
    return encode_scope(Scope(name, (scope_class, host.host), host.host, tuple(routes), SCOPE_HEADERS))


def guard(name: str, host: Host) -> Encoded:
    """The scope of a host in the common class that is not of it: who comes there in plain HTTP is sent to HTTPS, and
    who comes with a connection that was made for another host, to one of its own. Proofs that authorities look for are
    public.
    """
    proofs = [_route(rule) for rule in host.rules if f"{rule.path}/".startswith(CHALLENGES)]
    routes = (TO_HTTPS, *proofs, MISDIRECTED)
    return encode_scope(Scope(name, (COMMON, host.host), host.host, routes, SCOPE_HEADERS))


def _route(rule: Rule) -> Encoded:
    if rule.kind == EXACT:
        match = PathMatch("exact", rule.path)
    else:
        match = PathMatch("everything") if rule.path == "/" else PathMatch("elements", rule.path)
    action = ToCluster(rule.backend) if rule.backend else Answer(503)
    return encode_route(Route(f"{rule.kind} {rule.path}", match, action))
