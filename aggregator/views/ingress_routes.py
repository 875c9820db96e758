"""Routes of ingress gateways: what a host's rules are as a scope, whatever the gateway listens on.

In: hosts (traffic.hosts). Out: bytes. A host's scope reads that host and nothing else. What becomes of the requests of
one rule is made in `ingress_actions`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from aggregator.traffic import path_regexes
from aggregator.traffic.hosts import Host
from aggregator.traffic.ingresses import EXACT, PREFIX, REGEX
from aggregator.traffic.rules import Canary, Rule
from aggregator.traffic.tls_classes import COMMON
from aggregator.views import ingress_actions as actions
from aggregator.views.ingress_filters import ALL_ABLE, Able, error_pages, filters
from xds.encoded import Encoded
from xds.messages.fallback import AGAIN, AGAIN_CLIENT, AGAIN_HOST, ALL_HOSTS, FALLBACK_FILTERS
from xds.messages.forwarding import Forwarding
from xds.messages.header_changes import HeaderChanges
from xds.messages.http_connection_manager import SCOPE_HEADERS
from xds.messages.route import (
    CHALLENGES,
    MISDIRECTED,
    NOT_FOUND,
    PLAIN_HTTP,
    TO_HTTPS,
    Action,
    Answer,
    HeaderMatch,
    PathMatch,
    Redirect,
    Route,
    ToCluster,
    ValueMatch,
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
    name = f"{scope_class}|{host or ALL_HOSTS}"
    if len(name) <= LONGEST_NAME:
        return name
    # No digest that could be steered to another's, as hosts are chosen by many. "#" is in no host.
    digest = urlsafe_b64encode(blake2b(name.encode(), digest_size=18).digest()).decode()
    return f"#{digest[: LONGEST_NAME - 1]}"


def scope(name: str, host: Host, scope_class: str = COMMON, able: Able = ALL_ABLE) -> Encoded:
    """The scope of a host, as bytes: what is served in the chains of a class."""
    key = host.host or ALL_HOSTS
    found = routes(host, scope_class, able)
    return encode_scope(Scope(name, (scope_class, key), key, found, SCOPE_HEADERS, FALLBACK_FILTERS))


def routes(host: Host, scope_class: str = COMMON, able: Able = ALL_ABLE) -> tuple[Encoded, ...]:
    """The routes of a host in the order of matching, the same in every form of telling them to gateways that are as
    `able`.
    """
    return tuple(_routes(host, scope_class, able))


def guard(name: str, host: Host, able: Able = ALL_ABLE) -> Encoded:
    """The scope of a host in the common class that is not of it: who comes there in plain HTTP is sent to HTTPS, and
    who comes with a connection that was made for another host, to one of its own. Proofs that authorities look for are
    public.
    """
    key = host.host or ALL_HOSTS
    return encode_scope(Scope(name, (COMMON, key), key, guard_routes(host, able), SCOPE_HEADERS, FALLBACK_FILTERS))


def guard_routes(host: Host, able: Able = ALL_ABLE) -> tuple[Encoded, ...]:
    """The routes of such a scope."""
    place = (COMMON, host.host or ALL_HOSTS)
    proofs = [route for rule in host.rules if _proves(rule) for route in _routes_of(rule, place, able, secured=False)]
    return (TO_HTTPS, *proofs, MISDIRECTED)


def _proves(rule: Rule) -> bool:
    return rule.kind != REGEX and f"{rule.path}/".startswith(CHALLENGES)


def scope_again(name: str) -> Encoded:
    """The scope that sends requests through the gateway once more (xds.messages.fallback), whatever they are for."""
    client = HeaderChanges(formatted=((AGAIN_CLIENT, "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),))
    again = Route(AGAIN, PathMatch("everything"), ToCluster(AGAIN, Forwarding(idle=0)), request=client)
    return encode_scope(Scope(name, (AGAIN, AGAIN_HOST), AGAIN, (encode_route(again),), (), FALLBACK_FILTERS))


def _routes(host: Host, scope_class: str, able: Able) -> Iterator[Encoded]:
    yield from error_pages(host)
    place = (scope_class, host.host or ALL_HOSTS)
    secured = [_secured(host, rule) for rule in host.rules]
    # One route that all hosts share, where all rules agree.
    together = all(secured) and (bool(secured) or host.tls is not None) and not host.sent_to
    if together:
        yield TO_HTTPS
    if host.root:
        root = Redirect(302, path=host.root)
        yield encode_route(Route("root", PathMatch("exact", "/"), root))
    for rule, apart in zip(host.rules, secured, strict=True):
        yield from _routes_of(rule, place, able, secured=apart and not together)
    if host.sent_to:
        sent = Redirect(308, "https" if host.tls is not None else "", host.sent_to)
        yield encode_route(Route("to-host", PathMatch("everything"), sent))
    elif not host.rules or not _is_for_everything(host.rules[-1]):
        yield NOT_FOUND


def _secured(host: Host, rule: Rule) -> bool:
    """Whether requests of a rule that come in plain HTTP are sent to HTTPS."""
    redirects = rule.settings.redirects
    return redirects.forced or (redirects.to_https and host.tls is not None)


def _is_for_everything(rule: Rule) -> bool:
    return (rule.kind, rule.path) == (PREFIX, "/") and not rule.settings.conditions.count


def _routes_of(rule: Rule, place: tuple[str, str], able: Able, *, secured: bool) -> Iterator[Encoded]:
    """The routes of one rule in the scope with the key `place`, in the order of matching."""
    name, asked = f"{rule.kind} {rule.path}", rule.settings
    headers, query = actions.conditions(asked.conditions)
    told = filters(rule, place, able)
    all_of_it = Route(
        name,
        _match(rule),
        actions.action(rule) if told is not None else Answer(503),
        headers,
        query,
        actions.request_headers(asked),
        actions.response_headers(asked),
        told or (),
    )
    if secured:
        https = Redirect(308, "https")
        yield encode_route(Route(f"{name} to-https", all_of_it.match, https, (*headers, *PLAIN_HTTP), query))
    if rule.canary is None or isinstance(all_of_it.action, Redirect) or asked.answer or told is None:
        yield encode_route(all_of_it)
        return
    for header, action in _ways(rule, rule.canary, all_of_it.action):
        more = (*headers, header) if header is not None else headers
        yield encode_route(msgspec.structs.replace(all_of_it, headers=more, action=action))


def _ways(rule: Rule, canary: Canary, main: Action) -> Iterator[tuple[HeaderMatch | None, Action]]:
    """What decides between a rule and its canary, one after the other: a header, a cookie, and weight for the rest."""
    terms, all_to_it = canary.terms, actions.canary(rule)
    if terms.header and terms.value:
        yield HeaderMatch(terms.header, ValueMatch("exact", terms.value)), all_to_it
    elif terms.header and terms.pattern:
        yield HeaderMatch(terms.header, ValueMatch("regex", terms.pattern)), all_to_it
    elif terms.header:
        yield HeaderMatch(terms.header, ValueMatch("exact", "always")), all_to_it
        yield HeaderMatch(terms.header, ValueMatch("exact", "never")), main
    if terms.cookie:
        yield HeaderMatch("cookie", _cookie(terms.cookie, "always")), all_to_it
        yield HeaderMatch("cookie", _cookie(terms.cookie, "never")), main
    yield None, actions.shared(rule, terms.weight, terms.total) if terms.weight else main


def _cookie(name: str, value: str) -> ValueMatch:
    """Cookies stand in one header, between `; `."""
    return ValueMatch("regex", rf"(?:.*;\s*)?{re.escape(name)}={value}\s*(?:;.*)?")


def _match(rule: Rule) -> PathMatch:
    any_case = rule.settings.conditions.any_case
    if rule.kind == EXACT:
        return PathMatch("exact", rule.path, any_case)
    if rule.kind == REGEX:
        return PathMatch("regex", path_regexes.pattern(rule.path))
    return PathMatch("everything") if rule.path == "/" else PathMatch("elements", rule.path, any_case)
