"""Rules: what is served under a path of a host, and the canary that takes part in it."""

from __future__ import annotations

import msgspec

from aggregator.traffic.annotations.canary import Canary as Terms
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings
from aggregator.traffic.ingresses import PathKind
from watchers.facts.keys import ObjectKey


class Canary(msgspec.Struct, frozen=True, gc=False):
    """The key of the backend that takes some of a rule's requests, and which (`terms`)."""

    backend: str
    terms: Terms


class Rule(msgspec.Struct, frozen=True, gc=False):
    """A path of a host and the key of the backend it leads to ("": one that is not supported); see PathClaim.

    `settings` are what its Ingress asks for in annotations. With a `canary`, not all requests are the backend's.
    """

    path: str
    kind: PathKind
    backend: str
    origin: ObjectKey
    settings: Settings = NO_SETTINGS
    canary: Canary | None = None
