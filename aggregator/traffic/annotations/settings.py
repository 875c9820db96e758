"""All that the annotations of one Ingress say, put together.

In: an Ingress. Out: its settings, equal ones as one object, and what is wrong with them. An annotation that nobody
reads is a problem too, unless it asks for something that is so anyhow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from aggregator.traffic.annotations.authentication import SecretRef
from aggregator.traffic.annotations.connections import Connections, connections
from aggregator.traffic.annotations.given import Given, Problem
from aggregator.traffic.annotations.hashing import hash_parts
from aggregator.traffic.annotations.policies import NO_POLICIES, Policies, policies
from aggregator.traffic.annotations.redirects import Redirects, redirects
from watchers.facts.keys import Labels

WITHOUT_EFFECT: Final = frozenset(
    {
        "client-body-buffer-size",
        "enable-rewrite-log",
        "http2-push-preload",
        "proxy-buffer-size",
        "proxy-buffering",
        "proxy-buffers-number",
        "proxy-max-temp-file-size",
        "proxy-request-buffering",
    }
)
"""Annotations about the insides of another proxy, which nobody misses here."""


class Settings(msgspec.Struct, frozen=True, gc=False):
    """What an Ingress asks for beside its hosts and paths, by subject.

    `client_secret` is the Secret that its connections use, as the Ingress names it.
    """

    redirects: Redirects
    connections: Connections
    policies: Policies = NO_POLICIES
    client_secret: SecretRef | None = None


@lru_cache(maxsize=1024)
def settings(annotations: Labels) -> tuple[Settings, tuple[Problem, ...]]:
    """The settings of an Ingress with these annotations, and what is wrong with them."""
    given = Given(annotations)
    hashed = hash_parts(given)
    spoken, secret = connections(given, hashed=bool(hashed))
    found = Settings(redirects(given), spoken, policies(given, hashed), secret)
    for name, key in given.unread():
        if name not in WITHOUT_EFFECT:
            given.problems.append(Problem("AnnotationUnknown", key, "has no meaning here"))
    return found, tuple(given.problems)


NO_SETTINGS: Final = settings(())[0]
"""Those of an Ingress that asks for nothing."""
