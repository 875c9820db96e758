"""How much one cluster may have of this process: what protects the other clusters, and the proxies, from it.

In: what was read of a cluster, and the time as a number of seconds. Out: how long it has to wait before more of it is
read. Two rules: a cluster may use so many bytes and events a second in the long run, with ten seconds of them at once;
and in one turn of the event loop it may use no more than its share, so clusters that say more than can be worked off
get on equally fast, and those that say little are never behind them. Who has to wait is not read, so TCP slows its API
server down and nothing is lost. Pure; `watchers.kubernetes.flow` does the waiting.
"""

from __future__ import annotations

import msgspec

BURST_SECONDS = 10.0
"""So many seconds' worth may come at once: a new list, or a rollout."""

SHARE = 256 << 10
"""Work of a cluster in one turn of the loop, in bytes: a few milliseconds."""

EVENT_WORK = 4 << 10
"""What the writing of one fact costs beside reading it, as bytes that would take as long to read."""


class Limits(msgspec.Struct, frozen=True):
    """What one cluster may have: objects held, bytes of one object, and bytes and events a second."""

    objects: int = 200_000
    object_bytes: int = 16 << 20
    bytes_per_second: float = 64 << 20
    events_per_second: float = 5_000.0


class Rate:
    """So much a second in the long run, and ten seconds' worth of it at once.

    What was used is used: it is paid for afterwards, by waiting.
    """

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = self._most = per_second * BURST_SECONDS
        self._at = now

    def spend(self, amount: float, now: float) -> float:
        """Uses so much; returns for how many seconds nothing more is to be used."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_second) - amount
        self._at = now
        return max(0.0, -self._left / self._per_second)


class Shares:
    """Turns of work among clusters, by deficit: more than a share in one round is made up for in the next."""

    def __init__(self, share: int = SHARE) -> None:
        self._share = share
        self._used: dict[str, int] = {}

    def spend(self, cluster: str, work: int) -> bool:
        """The cluster has used so much; whether it may go on in this round."""
        used = self._used[cluster] = self._used.get(cluster, 0) + work
        return used < self._share

    def may(self, cluster: str) -> bool:
        """Whether the cluster may work in this round."""
        return self._used.get(cluster, 0) < self._share

    def next_round(self) -> bool:
        """Every cluster has another share; whether any still has to make up for what it used."""
        share = self._share
        self._used = {cluster: used - share for cluster, used in self._used.items() if used > share}
        return bool(self._used)
