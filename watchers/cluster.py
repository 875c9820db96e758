"""One cluster read through its API server: all its kinds over one credential, and the state the cluster is in.

In: credentials, one after another, and what a connection made of one reads. Out: facts under the cluster's id and its
Cluster fact. A new credential reads everything into a stage of its own while the old one goes on; then it takes over,
and the table sees the difference as one revision. A credential that has not read anything yet is dropped at once when a
newer one comes. What a generation that was replaced or removed still says is heard by nobody. Knows no HTTP, and never
ends by itself: whatever fails is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from watchers.facts import Answered, Cluster, Fact, ObjectKey
from watchers.generation import Connection, Generation, KindState, ReadKind, Report, Unidentified, Unusable
from watchers.sink import Cause
from watchers.staging import Sink, Stage
from watchers.status import STATES, Access, ClusterStatus

log = logging.getLogger(__name__)

C = TypeVar("C")
"""What a connection is opened with."""
K = TypeVar("K", bound=ReadKind)

_AWAITED = frozenset({"MeshConfig", "Namespace"})
"""Kinds on whose content it depends what is read of others."""
_MADE = frozenset({"RootCertificates", "ServiceImport"})
"""Kinds of which objects are made, where they are served."""
_TURN_SECONDS = 10.0


class Turns:
    """So many clusters at a time read everything, so that many which come together do not fill the memory.

    A turn ends after ten seconds at the latest: one that is slow holds nobody up.
    """

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def take(self) -> Callable[[], None]:
        """Waits for a turn; returns what ends it, however often that is called."""
        await self._free.acquire()
        held = [self._free]

        def end() -> None:
            while held:
                held.pop().release()
                timer.cancel()

        timer = asyncio.get_running_loop().call_later(_TURN_SECONDS, end)
        return end


class ClusterWatch(Generic[C, K]):
    """Keeps the facts of one cluster equal to what its API server says; `use` gives it credentials, `run` is its life.

    ``connect`` makes a connection of a credential, or raises Unusable. ``delays`` yields, for each row of failures to
    identify, how many seconds to wait, jittered and capped. ``identified`` hears which API server a credential leads to
    (the uid of its namespace kube-system) before anything is read, and may call `remove`. ``kinds`` are what is read,
    each with the sink of its facts; ``turns`` bounds how many clusters read everything at a time. ``deadline`` is
    handed on in the Cluster fact; ``now`` is the time in nanoseconds of Unix time.
    """

    def __init__(
        self,
        cluster: str,
        facts: Sink,
        *,
        home: bool,
        deadline: float,
        kinds: Sequence[tuple[K, Sink]],
        connect: Callable[[C], Connection[K]],
        delays: Callable[[], Iterator[float]],
        now: Callable[[], int],
        identified: Callable[[C, str], None] = lambda _credential, _uid: None,
        turns: Turns | None = None,
    ) -> None:
        self.cluster = cluster
        self._facts = facts
        self._home = home
        self._deadline = deadline
        self._kinds = kinds
        self._connect = connect
        self._delays = delays
        self._now = now
        self._identified = identified
        self._turns = turns
        self._tasks: asyncio.TaskGroup | None = None
        self._credential: C | None = None
        self._trust_domain = ""
        self._fault = ""
        self._current: Generation[K] | None = None
        self._incoming: Generation[K] | None = None
        self._written = False
        self._removed = False
        self._told = ("", False)
        self._answered: frozenset[str] = frozenset()
        self._read: frozenset[str] = frozenset()
        self._answering = False
        self._fact = Cluster("connecting", home, deadline, "", self._seconds())
        self._tell()

    def use(self, credential: C, trust_domain: str = "") -> None:
        """Read the cluster with this credential from now on; what an older one has not finished yet is dropped.

        Its identities are of that trust domain, "" for home's.
        """
        changed, self._fault = credential != self._credential, ""
        self._credential, self._trust_domain = credential, trust_domain
        if changed:
            self._begin()
        self._tell()

    def refuse(self, fault: str) -> None:
        """The newest credential cannot be used, for this reason: what there is goes on."""
        self._fault = fault
        self._tell()

    def remove(self) -> None:
        """The cluster is none any more: its facts go at once, and nothing it still says is heard. `run` is to be
        cancelled by whoever removes it.
        """
        self._removed = True
        for generation in (self._incoming, self._current):
            if generation is not None:
                generation.end()
        self._facts.replace((self.cluster,), (), self._cause(0))

    async def confirm(self, seconds: float) -> None:
        """Asks the API server now whether it is there, and waits at most so long for the answer."""
        seen = self._current or self._incoming
        if seen is not None and seen.connection is not None:
            await seen.connection.confirm(seconds)

    def status(self) -> ClusterStatus:
        """How the cluster is doing now, for people. A question that is open for long makes it stale here at once."""
        now, fact, current = self._seconds(), self._fact, self._current
        seen = current or self._incoming
        state, reason, since, lag = STATES[fact.state], fact.reason, fact.since, -1.0
        if current is not None:
            confirmed, lost = current.confirmed(), fact.unconfirmed
            doubt = 0.0 if lost else current.doubt(now)
            if doubt:
                state, reason, since, lost = "Stale", f"no answer for {now - doubt:.1f} s", doubt, doubt
            elif state == "Synced" and (self._fault or (self._incoming and self._incoming.summary()[1])):
                state = "UpdatePending"
            # It was lost some time between the last proof and the first question without an answer.
            lag = max(0.0, now - ((confirmed + max(lost, confirmed)) / 2 if lost else confirmed))
        access = seen.connection.access if seen is not None and seen.connection is not None else Access()
        held: dict[int, Counter[str]] = {}
        for _, sink in self._kinds:
            if id(sink) not in held:
                held[id(sink)] = Counter(key[1] for key, _ in sink.scan((self.cluster,)))
        sinks = {kind.fact: held[id(sink)] for kind, sink in self._kinds}
        return ClusterStatus(
            cluster=self.cluster,
            home=self._home,
            state=state,
            reason=reason,
            since=since,
            lag=lag,
            server=access.server,
            uid=seen.uid if seen is not None else "",
            token_expires=access.token_expires,
            certificate_expires=access.certificate_expires,
            server_certificate_expires=access.server_certificate_expires,
            kinds=seen.kinds(lambda kind: sinks[kind.fact][kind.fact]) if seen is not None else (),
        )

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    self._begin()
                    await asyncio.Event().wait()
                finally:
                    # Nothing begins any more, though a credential may still come while the rest ends.
                    self._tasks = None
        finally:
            for generation in (self._incoming, self._current):
                if generation is not None:
                    generation.end()

    def _begin(self) -> None:
        if self._tasks is None or self._credential is None or self._removed:
            return
        if self._incoming is not None:
            self._written = self._written or self._incoming.written
            self._incoming.end()
        # While the table holds nothing of the cluster there is nothing to be consistent with.
        stages: dict[int, Stage] = {}
        for _, sink in self._kinds:
            stages.setdefault(id(sink), Stage(self.cluster, sink, aside=self._written))
        self._incoming = Generation([(kind, stages[id(sink)]) for kind, sink in self._kinds])
        living = _until_cancelled(partial(self._live, self._incoming, self._credential))
        self._incoming.task = self._tasks.create_task(living, name=f"read {self.cluster}")

    async def _live(self, generation: Generation[K], credential: C) -> None:
        try:
            connection = self._connect(credential)
        except Unusable as error:
            generation.trouble = "denied", str(error)
            self._tell()
            return
        generation.connection = connection
        try:
            await self._identify(generation, connection, credential)
            if self._turns is not None:
                generation.end_turn = await self._turns.take()
            async with asyncio.TaskGroup() as reflectors:
                attending = _until_cancelled(partial(connection.attend, lambda: self._judge(generation)))
                reflectors.create_task(attending, name=f"attend {self.cluster}")
                for kind, stage in generation.stages:
                    report = self._reporter(generation, kind, stage)
                    work = _until_cancelled(partial(connection.reflect, kind, stage, report))
                    reflectors.create_task(work, name=f"reflect {kind.fact} of {self.cluster}")
        finally:
            generation.end_turn()
            await connection.close()

    async def _identify(self, generation: Generation[K], connection: Connection[K], credential: C) -> None:
        delays = self._delays()
        while True:
            try:
                uid = await connection.identify()
                break
            except Unidentified as error:
                generation.trouble = ("denied" if error.denied else "connecting"), str(error)
                self._tell()
            await asyncio.sleep(next(delays))
        generation.trouble = None
        generation.uid = uid
        self._tell()
        self._identified(credential, uid)
        # If that was one too many, this is where it ends.
        await asyncio.sleep(0)

    def _reporter(self, generation: Generation[K], kind: K, stage: Stage) -> Report:
        def report(state: KindState, reason: str) -> None:
            generation.report(kind, state, reason, self._seconds())
            # What is kept aside answers nobody yet.
            if kind.fact in _AWAITED and state in ("synced", "absent", "denied") and not stage.aside:
                self._answered |= {kind.fact}
            if kind.fact in _MADE and not stage.aside:
                self._read = generation.read(_MADE)
            self._judge(generation)

        return report

    def _judge(self, generation: Generation[K]) -> None:
        if generation is self._incoming and generation.complete:
            self._take_over(generation)
        self._tell()

    def _take_over(self, generation: Generation[K]) -> None:
        """All it may read has been read: what it holds is what there is, and what is older goes."""
        old, self._current, self._incoming = self._current, generation, None
        self._written = True
        self._answered |= {kind.fact for kind, _ in generation.stages if kind.fact in _AWAITED}
        self._read = generation.read(_MADE)
        generation.end_turn()
        if old is not None:
            old.end()
        for stage in dict.fromkeys(stage for _, stage in generation.stages):
            besides: list[tuple[ObjectKey, Fact]] = []
            if stage.writes_to(self._facts):
                besides = [self._state(), *self._answers()]
            stage.open(generation.denied(), besides, self._cause(stage.held))

    def _tell(self) -> None:
        if self._removed:
            return
        key, fact = self._state()
        told = fact.state, bool(fact.reason)
        if told != self._told:
            self._told = told
            level = logging.WARNING if fact.reason else logging.INFO
            log.log(level, "cluster state", extra={"cluster": self.cluster, "state": fact.state, "cause": fact.reason})
        self._facts.apply([(key, fact), *self._answers()], self._cause(0))

    def _answers(self) -> list[tuple[ObjectKey, Fact]]:
        key = (self.cluster, "Answered", "", self.cluster)
        answered = Answered(tuple(sorted(self._answered)), tuple(sorted(self._read)))
        # Once something was told, that it holds no more is to be told as well.
        self._answering = self._answering or bool(self._answered or self._read)
        return [(key, answered)] if self._answering else []

    def _state(self) -> tuple[ObjectKey, Cluster]:
        """Key and fact of the cluster now. Its moments change with its state alone."""
        state: str = "connecting"
        reasons = [self._fault] if self._fault else []
        seen = self._current or self._incoming
        if seen is not None:
            state, reason = seen.summary()
            if reason:
                reasons.insert(0, reason)
        elif self._fault:
            state = "denied"
        if self._current is not None:
            if self._home and state == "denied":
                # What was read of home stands, and goes on being served.
                state = "stale"
            if self._incoming is not None and (reason := self._incoming.summary()[1]):
                reasons.append(f"the new credential: {reason}")
        before = self._fact
        since = before.since if state == before.state else self._seconds()
        unconfirmed = 0.0
        if self._current is not None and state != "synced":
            unconfirmed = before.unconfirmed or self._current.health.lost or self._seconds()
        self._fact = Cluster(
            state, self._home, self._deadline, "; ".join(reasons), since, unconfirmed, self._trust_domain
        )
        return (self.cluster, "Cluster", "", self.cluster), self._fact

    def _seconds(self) -> float:
        return self._now() / 1e9

    def _cause(self, objects: int) -> Cause:
        return Cause(self._now(), f"cluster {self.cluster}", objects)


async def _until_cancelled(work: Callable[[], Awaitable[None]]) -> None:
    """Work of a task that nothing but its cancellation ends.

    That goes no further. A task keeps the exception it ended with, and a TaskGroup's frame the one that it passed on,
    and so all frames on the way and what was read there: circles that only a collection of everything would find.
    """
    try:
        await work()
    except asyncio.CancelledError as cancelled:
        cancelled.__traceback__ = None
