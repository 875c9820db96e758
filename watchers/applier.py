"""The applier: carries writes out, as server-side applies on the home cluster, while this process leads.

In: a Table of writes, through a cursor. Out: requests, few at a time and at a bounded rate, over a connection of their
own. The Table holds only what the objects do not say yet, so nothing is written twice, not even by a process that has
just started. What waits here is the key alone, of about a page of objects: all else is coalesced in the Table.
`write_queue` decides what is sent when. Nothing here is ever waited for by those who serve proxies.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from watchers.kubernetes.events import refusal
from watchers.kubernetes.session import Broken, Reply, Sends
from watchers.metrics import WriteMetrics
from watchers.write_queue import Manner, WriteQueue
from watchers.writes import Write, WriteKey, request

log = logging.getLogger(__name__)

PAGE = 256
"""Keys taken at a time."""


class Changes(Protocol):
    """A batch of a cursor."""

    @property
    def changes(self) -> Mapping[WriteKey, Write | None]:
        """The newest write of every key that changed; None: nothing is to be written any more."""


class Cursor(Protocol):
    """A place in the Table; see `aggregator.cache.cursor`."""

    @property
    def pending(self) -> bool:
        """Whether there is something to take."""

    def take(self, limit: int | None = None) -> Changes:
        """What changed, about so many keys of it."""

    def close(self) -> None:
        """Ends it."""


class Writes(Protocol):
    """The Table of writes."""

    def get(self, key: WriteKey) -> Write | None:
        """What is to be written now."""

    def cursor(self, *, bell: Callable[[], None]) -> Cursor:
        """A cursor that begins with all there is."""


class Applier:
    """Carries out the writes of a Table; `run` while this process leads.

    ``leads`` is asked right before every request: a process that was held up must not write on the strength of what it
    was a while ago. ``clock`` only grows (seconds), ``wall`` is Unix time, ``chance`` gives numbers from 0 to 1.
    """

    def __init__(
        self,
        writes: Writes,
        session: Sends,
        *,
        leads: Callable[[], bool],
        metrics: WriteMetrics,
        clock: Callable[[], float],
        wall: Callable[[], float],
        chance: Callable[[], float],
        manner: Manner | None = None,
    ) -> None:
        self._writes = writes
        self._session = session
        self._leads = leads
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._chance = chance
        self._manner = manner or Manner()
        self._told: set[tuple[str, str, str]] = set()

    async def run(self) -> None:
        """Writes until cancelled. What was learned of single objects is forgotten with every call."""
        queue = WriteQueue(self._manner, self._writes.get, now=self._clock(), chance=self._chance)
        bell = asyncio.Event()
        cursor = self._writes.cursor(bell=bell.set)
        running: set[asyncio.Task[None]] = set()

        def ended(task: asyncio.Task[None]) -> None:
            running.discard(task)
            bell.set()

        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    bell.clear()
                    if cursor.pending and queue.waiting < PAGE:
                        for key in cursor.take(PAGE).changes:
                            queue.add(key)
                    while len(running) < self._manner.in_flight and self._leads():
                        following = queue.next(self._clock())
                        if following is None:
                            break
                        task = tasks.create_task(self._apply(queue, *following), name="apply")
                        running.add(task)
                        task.add_done_callback(ended)
                    if cursor.pending and queue.waiting < PAGE:
                        await asyncio.sleep(0)
                    elif not self._leads():
                        # Whoever runs this is about to end it.
                        await asyncio.sleep(self._manner.first_pause)
                    else:
                        full = len(running) >= self._manner.in_flight
                        await self._ring(bell, None if full else queue.moment(self._clock()))
        finally:
            cursor.close()

    async def _ring(self, bell: asyncio.Event, moment: float | None) -> None:
        try:
            async with asyncio.timeout(None if moment is None else max(0.0, moment - self._clock())):
                await bell.wait()
        except TimeoutError:
            pass

    async def _apply(self, queue: WriteQueue, key: WriteKey, write: Write) -> None:
        if not self._leads():
            # The loop was held up since this was its turn.
            queue.trouble(key, self._clock())
            return
        now = dt.datetime.fromtimestamp(self._wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            asked = request(key, write, now)
            reply = await self._session.send(
                asked.method,
                asked.path,
                asked.query,
                asked.body,
                content_type=asked.content_type,
                seconds=self._manner.limit,
            )
        except Broken as error:
            self._count("failed", key, error.reason, str(error))
            queue.trouble(key, self._clock())
        else:
            self._judge(queue, key, write, reply)

    def _judge(self, queue: WriteQueue, key: WriteKey, write: Write, reply: Reply) -> None:
        status, now = reply.status, self._clock()
        if status in (200, 201, 202):
            self._count("done", key)
            queue.done(key, now, write)
            return
        said = refusal(status, reply.body, reply.headers)
        if status == 404:
            self._count("gone", key)
            queue.done(key, now)
        elif said.namespace_ends:
            # Nothing follows for other objects of the kind; and the namespace may be made again.
            self._count("gone", key)
            queue.again(key, now)
        elif status == 409:
            self._count("conflict", key)
            queue.again(key, now)
        elif status == 429 or (status >= 500 and said.retry_after is not None):
            self._count("throttled", key)
            queue.trouble(key, now, said.retry_after)
        elif status == 401:
            # The session reads its token again; perhaps a new credential is on its way.
            self._count("failed", key, str(status), str(said))
            queue.trouble(key, now)
        elif status == 403:
            self._count("forbidden", key, str(status), str(said))
            queue.forbidden(key, now)
        elif status >= 500:
            self._count("failed", key, str(status), str(said))
            queue.again(key, now)
        else:
            self._count("refused", key, f"{status} {said.reason}", str(said))
            queue.done(key, now)

    def _count(self, outcome: str, key: WriteKey, reason: str = "", cause: str = "") -> None:
        """A reason is told once per kind, until a write of the kind is done."""
        self._metrics.writes.add(outcome)
        kind = key[1]
        if outcome == "done":
            self._told = {told for told in self._told if told[0] != kind}
        elif reason and (kind, outcome, reason) not in self._told:
            self._told.add((kind, outcome, reason))
            extra = {"namespace": key[2], "object_name": key[3], "kind": kind, "cause": cause}
            log.warning(f"write {outcome}", extra=extra)
