"""When the tokens of readers are renewed, and when a person is warned that one ends. Pure; seconds of Unix time.

In: tokens as they say themselves when they were made and end, what came of attempts, the time. Out: which to renew
now, and which to warn of. A token is renewed at two thirds of its life, as kubelets do with those of pods, so that a
third is left for a person to act in if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

DAY = 86_400.0
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 3600.0
WARNINGS = ((7 * DAY, 1 / 4), (DAY, 1 / 12))
"""How long before its end a token is warned of, and at most which part of its life that is: one that lives for a day
is not warned of for all of it, and one that is renewed in time is never.
"""


class TokenLife(msgspec.Struct, frozen=True):
    """A token of a service account, as it says itself. ``audiences`` are whom it is for."""

    issued: float
    expires: float
    namespace: str = ""
    account: str = ""
    audiences: tuple[str, ...] = ()

    @property
    def length(self) -> float:
        """How long it lives."""
        return self.expires - self.issued

    @property
    def renewed_at(self) -> float:
        """When it is to be renewed."""
        return self.issued + self.length * 2 / 3


class _Claims(msgspec.Struct):
    """RFC 7519; ``sub`` of a service account is system:serviceaccount:NAMESPACE:NAME."""

    iat: float
    exp: float
    sub: str = ""
    aud: str | list[str] = []


def read_life(payload: bytes) -> TokenLife | None:
    """What a token claims; None if it does not say when it was made and ends, or is no service account's."""
    try:
        claims = msgspec.json.decode(payload, type=_Claims)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    system, kind, namespace, account = (*claims.sub.split(":"), "", "", "", "")[:4]
    if (system, kind) != ("system", "serviceaccount") or not namespace or not account:
        return None
    if not 0.0 <= claims.iat < claims.exp:
        return None
    audiences = (claims.aud,) if isinstance(claims.aud, str) else tuple(claims.aud)
    return TokenLife(claims.iat, claims.exp, namespace, account, audiences)


class _Tried(NamedTuple):
    life: TokenLife
    failures: int
    again: float


class Renewals:
    """Which tokens are to be renewed. ``chance`` gives numbers from 0 to 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._tried: dict[str, _Tried] = {}

    def due(self, lives: Mapping[str, TokenLife], now: float) -> Sequence[str]:
        """The clusters whose tokens are to be renewed now, those that end first before others."""
        self._tried = {
            cluster: tried for cluster, tried in self._tried.items() if lives.get(cluster) == tried.life
        }
        due = [
            cluster
            for cluster, life in lives.items()
            if life.renewed_at <= now < life.expires
            and (cluster not in self._tried or self._tried[cluster].again <= now)
        ]
        return sorted(due, key=lambda cluster: (lives[cluster].expires, cluster))

    def tried(self, cluster: str, life: TokenLife, now: float, *, forbidden: bool = False) -> None:
        """It was tried; until the cluster has another token it is tried again, more and more seldom.

        What is ``forbidden`` may be granted later, but hardly within seconds.
        """
        before = self._tried.get(cluster)
        failures = before.failures + 1 if before is not None and before.life == life else 1
        pause = LONGEST_PAUSE if forbidden else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 16))
        # A short life leaves less time to try in.
        pause = min(pause, max(FIRST_PAUSE, life.length / 24))
        self._tried[cluster] = _Tried(life, failures, now + pause * (1 + self._chance()) / 2)


class ExpiryWarnings:
    """Which tokens to warn of: each at most once for every step of WARNINGS."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[TokenLife, int]] = {}

    def due(self, lives: Mapping[str, TokenLife], now: float) -> Sequence[tuple[str, float]]:
        """The clusters to warn of now, sorted, and how many seconds are left; 0 for what has ended."""
        due: list[tuple[str, float]] = []
        told: dict[str, tuple[TokenLife, int]] = {}
        for cluster, life in sorted(lives.items()):
            left = max(0.0, life.expires - now)
            steps = [left <= min(before, life.length * part) for before, part in WARNINGS]
            step = sum((*steps, left == 0.0))
            known, last = self._told.get(cluster, (life, 0))
            last = last if known == life else 0
            if step > last:
                due.append((cluster, left))
            told[cluster] = (life, max(step, last))
        self._told = told
        return due
