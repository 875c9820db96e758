"""How often something may happen: per second in the long run, and how much of it at once.

Pure but for a clock. Used where a peer is to be refused, or made to wait, before what it sent costs anything.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Hashable

import msgspec
from cachetools import LRUCache

MOST_KEYS = 20_000
"""How many keys are remembered, those that were seen last. Whoever is forgotten has all again."""


class Rate(msgspec.Struct, frozen=True):
    """`burst` times at once, and `per_second` in the long run."""

    per_second: float
    burst: int


class Pace:
    """One rate, for something that is made to wait and never refused."""

    def __init__(self, rate: Rate, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        # When all that was taken will be made up for.
        self._even = 0.0

    def take(self) -> float:
        """Counts it once more; returns how many seconds it is to wait."""
        now = self._clock()
        wait = max(0.0, self._even - now - _in_hand(self._rate))
        self._even = max(self._even, now) + 1 / self._rate.per_second
        return wait


class Rates:
    """One rate for each key of many, by the generic cell rate algorithm (ITU-T I.371): a single moment a key."""

    def __init__(self, rate: Rate, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        # When all that was taken will be made up for.
        self._even: LRUCache[Hashable, float] = LRUCache(MOST_KEYS)

    def take(self, key: Hashable) -> bool:
        """Whether it may happen once more now; then it is counted."""
        if self.spent(key):
            return False
        now = self._clock()
        self._even[key] = max(self._even.get(key, now), now) + 1 / self._rate.per_second
        return True

    def spent(self, key: Hashable) -> bool:
        """Whether it may not happen now."""
        ahead = self._even.get(key, 0.0) - self._clock()
        return ahead > _in_hand(self._rate)


def _in_hand(rate: Rate) -> float:
    """How far ahead of its rate something may be, in seconds; a little more, so that no rounding takes one away."""
    return (rate.burst - 1) / rate.per_second + 1e-6


def host_of(peer: str) -> str:
    """The host of a peer as gRPC names it (`ipv4:10.0.0.1:1000`, `ipv6:[fd00::1]:1000`); of IPv6 the /64, since a host
    has all of that. Another form is its own host.
    """
    family, _, address = peer.partition(":")
    if family == "ipv4":
        return address.rpartition(":")[0]
    if family == "ipv6":
        host = address.rpartition(":")[0].strip("[]")
        try:
            return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
        except ValueError:
            return peer
    return peer
