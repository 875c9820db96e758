"""All that the annotations of one Ingress say, put together.

In: an Ingress. Out: its settings, equal ones as one object, and what is wrong with them. An annotation that nobody
reads is a problem too, unless it asks for something that is so anyhow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from aggregator.traffic.annotations import services
from aggregator.traffic.annotations.authentication import SecretRef
from aggregator.traffic.annotations.canary import Canary, canary
from aggregator.traffic.annotations.conditions import Conditions, conditions
from aggregator.traffic.annotations.connections import DEFAULT as DEFAULT_CONNECTIONS
from aggregator.traffic.annotations.connections import Connections, connections
from aggregator.traffic.annotations.cors import Cors, cors
from aggregator.traffic.annotations.given import UNPROTECTED, Given, Problem
from aggregator.traffic.annotations.hashing import hash_parts
from aggregator.traffic.annotations.headers import Headers, headers, together
from aggregator.traffic.annotations.matching import Matching, matching
from aggregator.traffic.annotations.names import names
from aggregator.traffic.annotations.policies import NO_POLICIES, Policies, policies
from aggregator.traffic.annotations.redirects import Redirects, redirects
from aggregator.traffic.annotations.refused import WITHOUT_EFFECT, unsupported
from aggregator.traffic.annotations.retries import Retries, retries
from aggregator.traffic.annotations.rewrites import Rewrites, rewrites
from aggregator.traffic.annotations.snippets import Snippet, snippet
from aggregator.traffic.annotations.timeouts import Timeouts, timeouts
from aggregator.traffic.annotations.tls import CLOSED, Tls, tls
from watchers.facts.keys import Labels

MOST_KEPT: Final = 8192
"""Characters of an Ingress's annotations up to which what they say is kept beyond the Ingress, for others like it."""


class Settings(msgspec.Struct, frozen=True, gc=False):
    """What an Ingress asks for beside its hosts and paths, by subject.

    `client_secret` is the Secret that its connections use, as the Ingress names it.
    """

    redirects: Redirects
    connections: Connections
    matching: Matching
    rewrites: Rewrites
    timeouts: Timeouts
    retries: Retries | None
    cors: Cors | None
    headers: Headers
    conditions: Conditions
    services: services.Services
    canary: Canary | None
    names: tuple[str, ...]
    tls: Tls
    policies: Policies = NO_POLICIES
    client_secret: SecretRef | None = None
    answer: int = 0
    """The status that requests are answered with in place of a backend; 0: none."""


def read(given: Given) -> Settings:
    """The settings of an Ingress, whatever its snippet says; what is wrong with them stands in `given`."""
    rewritten = rewrites(given)
    asked = tls(given)
    hashed = hash_parts(given)
    spoken, secret = connections(given, hashed=bool(hashed))
    protecting = policies(given, hashed)
    if asked.passthrough:
        spoken, secret = DEFAULT_CONNECTIONS, None  # whatever the client and the backend speak
        if protecting.protected:
            detail = "leaves requests to the backend, and the gateway could keep nobody away from it"
            given.refuse("ssl-passthrough", detail, UNPROTECTED)
            asked = CLOSED
    return Settings(
        redirects=redirects(given),
        connections=spoken,
        matching=matching(given, rewritten=bool(rewritten.path)),
        rewrites=rewritten,
        timeouts=timeouts(given),
        retries=retries(given),
        cors=cors(given),
        headers=headers(given),
        conditions=conditions(given),
        services=services.services(given),
        canary=canary(given),
        names=names(given),
        tls=asked,
        policies=protecting,
        client_secret=secret,
    )


NO_SETTINGS: Final = read(Given(()))
"""Those of an Ingress that asks for nothing."""


def settings(annotations: Labels, *, snippets: bool = False) -> tuple[Settings, tuple[Problem, ...]]:
    """The settings of an Ingress with these annotations, and what is wrong with them. With `snippets`, those count."""
    if sum(len(value) for _, value in annotations) > MOST_KEPT:
        return _settings(annotations, snippets)
    return _kept(annotations, snippets)


def _settings(annotations: Labels, snippets: bool) -> tuple[Settings, tuple[Problem, ...]]:
    given = Given(annotations)
    found = read(given)
    if snippets:
        found = _with(found, snippet(given))
    for name, key in given.unread():
        refusal = unsupported(name)
        if refusal:
            given.problems.append(Problem("AnnotationUnsupported", key, refusal))
        elif name not in WITHOUT_EFFECT:
            given.problems.append(Problem("AnnotationUnknown", key, "has no meaning here"))
    return found if found != NO_SETTINGS else NO_SETTINGS, tuple(given.problems)


def _with(asked: Settings, said: Snippet | None) -> Settings:
    """Settings, and what a snippet says; it is about headers besides, and about what becomes of requests before all."""
    if said is None:
        return asked
    redirects = asked.redirects
    if said.elsewhere is not None or said.answer:
        redirects = msgspec.structs.replace(redirects, elsewhere=said.elsewhere)
    both = together(asked.headers, said.headers)
    return msgspec.structs.replace(asked, redirects=redirects, headers=both, answer=said.answer)


_kept = lru_cache(maxsize=1024)(_settings)
