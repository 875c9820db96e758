"""What a rule of an Ingress does with requests, in terms of routes: where to, how, and what the filters are told.

In: rules (traffic.rules) with the settings of their Ingresses. Out: records for `ingress_routes`, which makes the
routes of them. A rule without settings yields the same few objects every time.
"""

from __future__ import annotations

import re
from typing import Final

from aggregator.traffic import path_regexes
from aggregator.traffic.annotations import cors as wanted_cors
from aggregator.traffic.annotations import rewrites
from aggregator.traffic.annotations.conditions import NONE as NO_CONDITIONS
from aggregator.traffic.annotations.conditions import Conditions
from aggregator.traffic.annotations.headers import Changes
from aggregator.traffic.annotations.retries import Retries as WantedRetries
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings
from aggregator.traffic.annotations.timeouts import Timeouts
from aggregator.traffic.backend_keys import destination_keys, mirror_key
from aggregator.traffic.ingresses import REGEX
from aggregator.traffic.rules import Rule
from xds.messages.cors import Cors, cors
from xds.messages.extension import Extension
from xds.messages.forwarding import AS_IT_IS, Forwarding, HashPart, Mirror, Retries, Rewrite
from xds.messages.header_changes import UNCHANGED, HeaderChanges
from xds.messages.route import (
    Action,
    Answer,
    HeaderMatch,
    QueryMatch,
    Redirect,
    ToCluster,
    ToClusters,
    ValueMatch,
)

STALL: Final = 60
"""Seconds without anything moving after which an attempt is tried again, where the Ingress says none."""
_NOT_IDEMPOTENT: Final = ("POST", "LOCK", "PATCH")
_SAFE: Final = ("connect-failure", "refused-stream")


def action(rule: Rule) -> Action:
    """What becomes of requests, whatever a canary takes of them."""
    elsewhere = rule.settings.redirects.elsewhere
    if elsewhere is not None:
        return Redirect(
            elsewhere.status, elsewhere.scheme, elsewhere.host, elsewhere.port, elsewhere.path, elsewhere.before
        )
    if rule.settings.answer:
        return Answer(rule.settings.answer)
    return shared(rule, 0, 1)


def shared(rule: Rule, weight: int, total: int) -> Action:
    """Sends requests on, `weight` of `total` of them to the rule's canary."""
    destination = destination_keys(rule.origin[2], rule.settings)
    if not destination:
        if not rule.backend:
            return Answer(503)
        destination = ((rule.backend, 1),)
    whole = sum(share for _, share in destination)
    shares = [(key, share * (total - weight)) for key, share in destination]
    if rule.canary is not None:
        shares.append((rule.canary.backend, whole * weight))
    first, *others = (one for one in shares if one[1])
    how = forwarding(rule)
    return ToClusters((first, *others), how) if others else ToCluster(first[0], how)


def canary(rule: Rule) -> Action:
    """Sends all requests to the rule's canary."""
    return ToCluster(rule.canary.backend if rule.canary is not None else "", forwarding(rule))


def forwarding(rule: Rule) -> Forwarding:
    """How requests of a rule are passed on."""
    asked = rule.settings
    if asked is NO_SETTINGS:
        return AS_IT_IS
    mirror = mirror_key(rule.origin[2], asked)
    found = Forwarding(
        timeout=asked.timeouts.whole,
        idle=_idle(asked.timeouts, asked.retries),
        host=_host(rule, asked.rewrites),
        rewrite=_rewrite(rule, asked.rewrites),
        retries=_retries(asked.timeouts, asked.retries),
        mirror=Mirror(mirror, asked.services.percent) if mirror else None,
        hashed=tuple(HashPart(kind, name) for kind, name in asked.policies.hashed),
    )
    return found if found != AS_IT_IS else AS_IT_IS


def request_headers(asked: Settings) -> HeaderChanges:
    """What is done to the headers of requests."""
    found = _changes(asked.headers.request)
    prefix = asked.rewrites.prefix
    if not prefix:
        return found
    return HeaderChanges(found.removed, found.added, (*found.put, ("x-forwarded-prefix", prefix)))


def response_headers(asked: Settings) -> HeaderChanges:
    """What is done to the headers of answers."""
    return _changes(asked.headers.response)


def cross_origin(asked: Settings) -> tuple[Extension, ...]:
    """What the filter that answers pages of other origins is told."""
    return () if asked.cors is None else (cors(_cors(asked.cors)),)


def conditions(asked: Conditions) -> tuple[tuple[HeaderMatch, ...], tuple[QueryMatch, ...]]:
    """Which requests a rule is for, beside their path."""
    if asked is NO_CONDITIONS:
        return (), ()
    methods = asked.methods
    headers = [HeaderMatch(one.name, ValueMatch(one.comparison, one.value)) for one in asked.headers]
    if len(methods) == 1:
        headers.append(HeaderMatch(":method", ValueMatch("exact", methods[0])))
    elif methods:
        headers.append(HeaderMatch(":method", ValueMatch("regex", "|".join(map(re.escape, methods)))))
    query = tuple(QueryMatch(one.name, ValueMatch(one.comparison, one.value)) for one in asked.query)
    return tuple(headers), query


def _idle(timeouts: Timeouts, retries: WantedRetries | None) -> int | None:
    """Seconds a request may stall; as long as all its attempts may, where a stalled one is tried again."""
    if retries is not None and retries.stalls:
        return (timeouts.idle or STALL) * retries.tries
    return timeouts.idle or None


def _retries(timeouts: Timeouts, wanted: WantedRetries | None) -> Retries | None:
    if wanted is None:
        return None
    on = list(_SAFE) if wanted.errors else []
    if wanted.errors or wanted.stalls:
        on.append("reset")
    if wanted.statuses:
        on.append("retriable-status-codes")
    if not on:
        return Retries()
    never = () if wanted.all_methods else _NOT_IDEMPOTENT
    idle = (timeouts.idle or STALL) if wanted.stalls else 0
    return Retries(tuple(on), wanted.tries, wanted.statuses, idle, never)


def _host(rule: Rule, asked: rewrites.Rewrites) -> str:
    if not asked.host or not rule.backend:
        return asked.host if "$" not in asked.host else ""
    _, namespace, service, port = rule.backend.split("|")[:4]
    return rewrites.host_of(asked.host, namespace, service, port)


def _rewrite(rule: Rule, asked: rewrites.Rewrites) -> Rewrite | None:
    if not asked.path:
        return None
    if rule.kind == REGEX:
        groups = path_regexes.groups(rule.path)
        return Rewrite(path_regexes.pattern(rule.path), rewrites.replacement(asked.path, groups))
    return Rewrite("^.*", rewrites.replacement(asked.path, 0))


def _changes(asked: Changes) -> HeaderChanges:
    if not (asked.removed or asked.added or asked.put):
        return UNCHANGED
    return HeaderChanges(asked.removed, asked.added, asked.put)


def _cors(asked: wanted_cors.Cors) -> Cors:
    origins = tuple(map(_origin, asked.origins))
    return Cors(origins, asked.methods, asked.headers, asked.exposed, asked.max_age, asked.credentials)


def _origin(text: str) -> ValueMatch:
    if text == wanted_cors.ANY:
        return ValueMatch("regex", ".*")
    if "*" in text:
        return ValueMatch("regex", re.escape(text).replace(r"\*", "[A-Za-z0-9-]+"))
    return ValueMatch("exact", text)
