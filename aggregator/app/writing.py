"""What this process writes to home: the applier, and the election that says whether it is the one to write.

In: the settings, the Table of writes, home's credential. Out: statuses, renewed tokens of remotes, and the Lease. Joins
what `watchers` has for that; decides nothing itself. There is nothing of it where home is a directory.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
import time
from collections.abc import Callable

from aggregator.app.metrics import Readable
from aggregator.app.settings import Settings
from aggregator.cache.table import Table
from watchers.applier import Applier
from watchers.kubernetes.newest import NewestSession
from watchers.kubernetes.token_renewal import Lives, TokenRenewal
from watchers.leases import Leadership
from watchers.metrics import WriteMetrics
from watchers.write_queue import Manner
from watchers.writes import Write, WriteKey

log = logging.getLogger(__name__)

LEASE = "isthmus-leader"
_SHOWN = 1000
_STOP_SECONDS = 5.0


class Writing:
    """The writes of a process. `now` is Unix time in seconds; `session` is closed when `run` ends."""

    def __init__(
        self,
        settings: Settings,
        writes: Table[WriteKey, Write],
        session: NewestSession,
        lives: Lives,
        *,
        now: Callable[[], float],
    ) -> None:
        self._writes = writes
        self._session = session
        self._task: asyncio.Task[None] | None = None
        metrics = self._metrics = WriteMetrics()
        self.leadership: Leadership | None = None
        """None where this process always leads."""
        if settings.leader_elect:
            self.leadership = Leadership(
                session,
                settings.system_namespace,
                LEASE,
                # Two processes of one host, or one that was restarted, must not take each other for themselves.
                f"{socket.gethostname()}_{secrets.token_hex(4)}",
                metrics=metrics,
                clock=time.monotonic,
                wall=now,
                chance=random.random,
            )
        self._renewal = TokenRenewal(session, lives, leads=self.leads, wall=now, chance=random.random)
        self._applier: Applier | None = None
        if settings.write_status:
            self._applier = Applier(
                writes,
                session,
                leads=self.leads,
                metrics=metrics,
                clock=time.monotonic,
                wall=now,
                chance=random.random,
                manner=Manner(rate=settings.write_rate, burst=max(1, round(2 * settings.write_rate))),
            )

    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self.leadership is None or self.leadership.leads()

    def metrics(self) -> tuple[Readable, ...]:
        """Every metric."""
        self._metrics.pending.set(value=len(self._writes))
        return self._metrics.all()

    def page(self, _request: object) -> dict[str, object]:
        """What is still to be written, for people."""
        leader = self.leadership.holder if self.leadership is not None else socket.gethostname()
        pending = {f"{key[1]} {key[2]}/{key[3]}" if key[2] else f"{key[1]} {key[3]}" for key, _ in self._writes.scan()}
        return {"leader": leader, "leading": self.leads(), "count": len(pending), "pending": sorted(pending)[:_SHOWN]}

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Starts the task that writes."""
        self._task = tasks.create_task(self.run(), name="write")

    def stop(self) -> None:
        """Stops writing, and begins to let others lead; `stopped` waits for that."""
        # Once: a second time would cut off what the first began.
        if self._task is not None and not self._task.cancelling():
            self._task.cancel()

    async def stopped(self) -> None:
        """Waits until others may lead, some seconds at most."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_STOP_SECONDS)

    async def run(self) -> None:
        """Writes while it leads, until cancelled; then lets others lead."""
        try:
            if self.leadership is not None:
                await self.leadership.run(self._lead)
            else:
                self._metrics.leader.set(value=1)
                await self._lead()
        finally:
            await self._session.close()

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renewal.run(), name="renew tokens")
            if self._applier is not None:
                tasks.create_task(self._applier.run(), name="apply")
