"""The Lease by which one of several processes leads: read, renewed, and let go of at the end.

In: an API server. Out: work that runs while this process leads, and only then. `elections` decides; this carries it
out. A process that cannot reach the API server stops its work before another may begin, and one whose event loop was
blocked finds out before anything else of it runs, because whoever writes asks `leads` first.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from watchers.elections import Create, Election, Pace, Read, Record, Replace, Step
from watchers.kubernetes.events import refusal
from watchers.kubernetes.session import Broken, Reply, Sends
from watchers.metrics import WriteMetrics

log = logging.getLogger(__name__)

_RELEASE_SECONDS = 2.0


class _Spec(msgspec.Struct):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    seconds: int | None = msgspec.field(default=None, name="leaseDurationSeconds")
    acquired: str | None = msgspec.field(default=None, name="acquireTime")
    renewed: str | None = msgspec.field(default=None, name="renewTime")
    transitions: int | None = msgspec.field(default=None, name="leaseTransitions")


class _Lease(msgspec.Struct):
    metadata: dict[str, Any]
    spec: _Spec | None = None


class Leadership:
    """The candidacy of this process for one Lease.

    ``identity`` is to be this process's alone; ``clock`` only grows (seconds), ``wall`` is Unix time.
    """

    def __init__(
        self,
        session: Sends,
        namespace: str,
        name: str,
        identity: str,
        *,
        metrics: WriteMetrics,
        clock: Callable[[], float],
        wall: Callable[[], float],
        chance: Callable[[], float],
        pace: Pace | None = None,
    ) -> None:
        self.pace = pace or Pace()
        self._session = session
        self._namespace = namespace
        self._name = name
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._election = Election(identity, self.pace, chance=chance, stamp=self._stamp)
        self._metadata: dict[str, Any] = {}
        self._trouble = ""
        self._told_holder = ""
        metrics.leader.set(value=0)

    def leads(self) -> bool:
        """Whether this process leads at this moment."""
        return self._election.leads(self._clock())

    @property
    def holder(self) -> str:
        """Who leads, as far as this process has seen."""
        return self._election.holder

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Is a candidate until cancelled; runs ``work`` whenever it leads, and cancels it when it does no more.

        ``work`` never ends by itself; what it raises is raised here. At the end the Lease is let go of, if that is
        quickly done.
        """
        working: asyncio.Task[None] | None = None
        try:
            while True:
                await self._attempt()
                if self.leads() and working is None:
                    working = asyncio.create_task(_run(work), name="lead")
                    self._metrics.leader.set(value=1)
                    log.info("leading", extra={"object_name": self._lease})
                await self._pause(working)
                if not self.leads() and working is not None:
                    await self._end(working)
                    working = None
                    log.warning("leading no more", extra={"object_name": self._lease, "cause": self._trouble})
        finally:
            try:
                if working is not None:
                    await self._end(working)
            finally:
                await self._release()

    async def _pause(self, working: asyncio.Task[None] | None) -> None:
        """Until the next attempt is due, the time as leader is over, or the work ends by itself, which is its fault."""
        moment = self._election.due
        ends = self._election.ends()
        if working is not None and ends is not None:
            moment = min(moment, ends)
        seconds = max(0.0, moment - self._clock())
        if working is None:
            await asyncio.sleep(seconds)
            return
        done, _ = await asyncio.wait((working,), timeout=seconds)
        if done:
            working.result()
            raise RuntimeError("what the leader does has ended")

    async def _end(self, working: asyncio.Task[None]) -> None:
        self._metrics.leader.set(value=0)
        working.cancel()
        await asyncio.wait((working,))
        if not working.cancelled() and (error := working.exception()) is not None:
            raise error

    async def _attempt(self) -> None:
        election = self._election
        step: Step | None = election.begin(self._clock())
        while step is not None:
            try:
                if isinstance(step, Read):
                    step = election.read(self._clock(), await self._read())
                else:
                    record = await self._write(step)
                    election.written(self._clock(), record)
                    step = None
            except Broken as error:
                self._note(str(error))
                election.failed(self._clock())
                return
        self._note("")
        self._tell_holder()

    async def _read(self) -> Record | None:
        reply = await self._send("GET", self._path)
        if reply.status == 404:
            return None
        return self._taken(reply)

    async def _write(self, step: Create | Replace) -> Record:
        if isinstance(step, Create):
            metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
            method, path = "POST", self._path.rpartition("/")[0]
        else:
            metadata, method, path = self._metadata, "PUT", self._path
        return self._taken(await self._send(method, path, self._body(metadata, step.record)))

    async def _send(self, method: Any, path: str, body: bytes = b"") -> Reply:
        return await self._session.send(method, path, {}, body, seconds=self._limit())

    def _limit(self) -> float:
        """Seconds a request may take: half the time there is, and no longer than the process leads."""
        limit, ends = self.pace.deadline / 2, self._election.ends()
        if ends is not None and (left := ends - self._clock()) > 0:
            limit = min(limit, left)
        return limit

    def _taken(self, reply: Reply) -> Record:
        """What an answer says of the Lease; raises Broken if it says anything else."""
        if reply.status not in (200, 201):
            raise Broken("server", str(refusal(reply.status, reply.body)))
        try:
            lease = msgspec.json.decode(reply.body, type=_Lease)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Broken("server", "what answers is no Lease") from None
        self._metadata = lease.metadata
        spec = lease.spec or _Spec()
        return Record(
            spec.holder or "",
            spec.seconds or round(self.pace.duration),
            spec.acquired or "",
            spec.renewed or "",
            spec.transitions or 0,
        )

    def _body(self, metadata: dict[str, Any], record: Record) -> bytes:
        spec: dict[str, Any] = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.seconds,
            "acquireTime": record.acquired,
            "renewTime": record.renewed,
            "leaseTransitions": record.transitions,
        }
        # Times of which nobody knows are left out: an empty one is none.
        spec = {name: value for name, value in spec.items() if value != "" or name == "holderIdentity"}
        document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        return msgspec.json.encode(document)

    async def _release(self) -> None:
        step = self._election.release(self._clock())
        if step is None:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                try:
                    await self._write(step)
                except Broken:
                    # Perhaps a renewal that was under way has come through, and the version is another.
                    record = await self._read()
                    if record is None or record.holder != self._election.identity:
                        return
                    await self._write(step)
        except (Broken, TimeoutError) as error:
            log.warning("lease not let go of", extra={"object_name": self._lease, "cause": str(error) or "no answer"})
        else:
            log.info("lease let go of", extra={"object_name": self._lease})

    @property
    def _lease(self) -> str:
        return f"{self._namespace}/{self._name}"

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{self._name}"

    def _stamp(self) -> str:
        """Kubernetes' MicroTime."""
        return dt.datetime.fromtimestamp(self._wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _note(self, trouble: str) -> None:
        """Says once why the Lease cannot be had, however often it is tried."""
        if trouble and trouble != self._trouble:
            log.warning("lease", extra={"object_name": self._lease, "cause": trouble})
        self._trouble = trouble

    def _tell_holder(self) -> None:
        if self.holder != self._told_holder:
            self._told_holder = self.holder
            log.info("leader", extra={"object_name": self._lease, "holder": self.holder})


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()
