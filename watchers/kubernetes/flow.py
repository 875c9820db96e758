"""Has clusters wait that use more than `budget` allows: their sockets are not read meanwhile.

In: what was read, chunk by chunk. Out: a pause, where one is due. Costs a few additions per chunk, and no timer unless
a cluster has to wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from watchers.kubernetes.budget import EVENT_WORK, Limits, Rate, Shares
from watchers.metrics import WatchMetrics

log = logging.getLogger(__name__)

_TELL_EVERY = 60.0


class Rounds:
    """The clusters of a process, each with its share of every turn of the event loop."""

    def __init__(self) -> None:
        self._shares = Shares()
        self._running = False
        self._next: asyncio.Future[None] | None = None

    def spend(self, cluster: str, work: int) -> bool:
        """The cluster has worked so much; whether it may go on before the loop has turned."""
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._turn)
        return self._shares.spend(cluster, work)

    async def wait(self, cluster: str) -> None:
        """Waits until it is the cluster's turn again."""
        while not self._shares.may(cluster):
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            # Several wait for it, and one that is cancelled must not take it from the others.
            await asyncio.shield(self._next)

    def _turn(self) -> None:
        self._running = self._shares.next_round()
        if self._running:
            asyncio.get_running_loop().call_soon(self._turn)
        if self._next is not None:
            self._next.set_result(None)
            self._next = None


class Flow:
    """What is read of one cluster, over all its watches and credentials."""

    def __init__(
        self, cluster: str, limits: Limits, rounds: Rounds, metrics: WatchMetrics, now: Callable[[], float]
    ) -> None:
        self.limits = limits
        self._cluster = cluster
        self._rounds = rounds
        self._metrics = metrics
        self._now = now
        self._bytes = Rate(limits.bytes_per_second, now())
        self._events = Rate(limits.events_per_second, now())
        self._told = -_TELL_EVERY

    async def passed(self, size: int, objects: int) -> None:
        """So many bytes and objects were read and worked off; returns when more may be read."""
        now = self._now()
        by_bytes, by_events = self._bytes.spend(size, now), self._events.spend(objects, now)
        if by_bytes or by_events:
            await self._pause(by_bytes, by_events)
        if not self._rounds.spend(self._cluster, size + objects * EVENT_WORK):
            await self._rounds.wait(self._cluster)

    async def _pause(self, by_bytes: float, by_events: float) -> None:
        began = self._now()
        if began - self._told >= _TELL_EVERY:
            self._told = began
            limit = "--cluster-bytes" if by_bytes > by_events else "--cluster-events"
            cause = f"it says more than {limit} allows, and is read more slowly; nothing is lost"
            log.warning("cluster slowed down", extra={"cluster": self._cluster, "cause": cause})
        await asyncio.sleep(max(by_bytes, by_events))
        self._metrics.slowed.add(self._cluster, amount=self._now() - began)
