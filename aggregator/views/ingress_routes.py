"""Routes of ingress gateways: what a host's rules are as a scope, whatever the gateway listens on.

In: hosts (traffic.hosts). Out: bytes. A host's scope reads that host and nothing else.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Final

from aggregator.traffic.hosts import Host, Rule
from aggregator.traffic.ingresses import EXACT
from aggregator.views.ingress_filters import NO_USERS, UsersByName, error_pages, filters, is_closed
from xds.encoded import Encoded
from xds.messages.http_connection_manager import SCOPE_HEADERS
from xds.messages.route import NOT_FOUND, TO_HTTPS, Answer, HashPart, PathMatch, Route, ToCluster, encode_route
from xds.messages.scope import Scope, encode_scope

DEFAULT_CLASS: Final = "default"
"""The class of TLS settings of all hosts: a certificate of their own, no demands on clients."""
LONGEST_NAME: Final = 22
"""Characters of a text that Envoy keeps without memory of its own."""


def scope_name(host: str) -> str:
    """The name of a host's routes: `<class>|<host>` where that is short, else a digest of it.

    Envoy copies the names of all scopes with every change of one. Up to LONGEST_NAME characters that costs it 50 ns a
    scope, beyond three times as much.
    """
    name = f"{DEFAULT_CLASS}|{host}"
    if len(name) <= LONGEST_NAME:
        return name
    # No digest that could be steered to another's, as hosts are chosen by many. "#" is in no host.
    digest = urlsafe_b64encode(blake2b(name.encode(), digest_size=18).digest()).decode()
    return f"#{digest[: LONGEST_NAME - 1]}"


def scope(name: str, host: Host, users: UsersByName = NO_USERS) -> Encoded:
    """The scope of a host, as bytes; `users` are those of the Secrets its rules name."""
    routes = [_route(rule, users) for rule in host.rules]
    if host.tls is not None:
        routes.insert(0, TO_HTTPS)
    if not host.rules or (host.rules[-1].kind, host.rules[-1].path) != ("Prefix", "/"):
        routes.append(NOT_FOUND)
    routes[:0] = error_pages(host)
    return encode_scope(Scope(name, (DEFAULT_CLASS, host.host), host.host, tuple(routes), SCOPE_HEADERS))


def _route(rule: Rule, users: UsersByName) -> Encoded:
    if rule.kind == EXACT:
        match = PathMatch("exact", rule.path)
    else:
        match = PathMatch("everything") if rule.path == "/" else PathMatch("elements", rule.path)
    name = f"{rule.kind} {rule.path}"
    if not rule.backend or is_closed(rule, users):
        return encode_route(Route(name, match, Answer(503)))
    hashed = tuple(HashPart(kind, part) for kind, part in rule.settings.policies.hashed)
    return encode_route(Route(name, match, ToCluster(rule.backend, hashed), filters(rule, users, DEFAULT_CLASS)))
