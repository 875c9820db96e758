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
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, Protocol, TypeVar

from watchers.facts import Cluster, ObjectKey
from watchers.sink import Cause
from watchers.staging import Rows, Sink, Stage

KindState = Literal["connecting", "syncing", "synced", "absent", "stale", "denied"]
"""What is known of one kind: "absent" is a kind the API server does not serve, which is an answer like "synced"; of
"stale" ones the last content stands; "denied" ones may not be read."""

Report = Callable[[KindState, str], None]
"""Takes the state of a kind and why it is not a better one."""

log = logging.getLogger(__name__)

C = TypeVar("C")
"""What a connection is opened with."""
K = TypeVar("K", bound="ReadKind")
Kr = TypeVar("Kr", bound="ReadKind", contravariant=True)

_ANSWERED = ("synced", "absent")
_MOST_REASONS = 3
_TURN_SECONDS = 10.0


class ReadKind(Protocol):
    """A kind of objects that is read of a cluster."""

    @property
    def fact(self) -> str:
        """The kind in the keys of its facts."""

    @property
    def required(self) -> bool:
        """Whether a cluster is of no use without it."""


class Unidentified(Exception):
    """The API server did not say which it is; ``denied`` if it does not accept the credential. May be asked again."""

    def __init__(self, reason: str, *, denied: bool) -> None:
        super().__init__(reason)
        self.denied = denied


class Unusable(Exception):
    """A credential that cannot be used at all; the message says why, and shows nothing of it."""


class Connection(Protocol[Kr]):
    """One credential in use, with all sockets it holds."""

    async def identify(self) -> str:
        """The uid of the API server's namespace kube-system, "" if that may not be read; raises Unidentified."""

    async def reflect(self, kind: Kr, facts: Rows, report: Report) -> None:
        """Keeps the facts of a kind equal to what the API server says, until cancelled, and reports their state.

        What was read completely is written before "synced" is reported.
        """

    async def close(self) -> None:
        """Closes every socket."""


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


class _Generation(Generic[K]):
    """A credential at work: what it writes, and how far it has come."""

    def __init__(self, stages: Sequence[tuple[K, Stage]]) -> None:
        self.stages = stages
        self.states: dict[str, tuple[KindState, str]] = {kind.fact: ("connecting", "") for kind, _ in stages}
        self.trouble: tuple[KindState, str] | None = None
        self.task: asyncio.Task[None] | None = None
        self.end_turn: Callable[[], None] = lambda: None

    @property
    def complete(self) -> bool:
        """Whether all it may read has been read."""
        return self.summary()[0] == "synced"

    @property
    def written(self) -> bool:
        """Whether anything of it may have reached the table."""
        return any(stage.written for _, stage in self.stages)

    def summary(self) -> tuple[KindState, str]:
        """The state of a cluster that is read by it, and why it is not a better one."""
        if self.trouble is not None:
            return self.trouble
        states = {kind.fact: (*self.states[kind.fact], kind.required) for kind, _ in self.stages}
        reasons = [f"{fact}: {reason}" for fact, (state, reason, _) in states.items() if reason and state != "absent"]
        reason = "; ".join(reasons[:_MOST_REASONS])
        # What may be missing and may not be read holds nothing up.
        needed = {state for state, _, required in states.values() if required or state != "denied"}
        if "denied" in needed:
            return "denied", reason
        if "stale" in needed:
            return "stale", reason
        if needed.issubset(_ANSWERED):
            return "synced", reason
        return ("connecting" if needed == {"connecting"} else "syncing"), reason

    def denied(self) -> list[str]:
        """The kinds it may not read."""
        return [fact for fact, (state, _) in self.states.items() if state == "denied"]

    def end(self) -> None:
        """It is heard no more, and stops."""
        for _, stage in self.stages:
            stage.close()
        self.end_turn()
        if self.task is not None:
            self.task.cancel()


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
        self._fault = ""
        self._current: _Generation[K] | None = None
        self._incoming: _Generation[K] | None = None
        self._written = False
        self._removed = False
        self._told = ("", False)
        self._tell()

    def use(self, credential: C) -> None:
        """Read the cluster with this credential from now on; what an older one has not finished yet is dropped."""
        changed, self._fault = credential != self._credential, ""
        self._credential = credential
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
        self._incoming = _Generation([(kind, stages[id(sink)]) for kind, sink in self._kinds])
        living = self._live(self._incoming, self._credential)
        self._incoming.task = self._tasks.create_task(living, name=f"read {self.cluster}")

    async def _live(self, generation: _Generation[K], credential: C) -> None:
        try:
            connection = self._connect(credential)
        except Unusable as error:
            generation.trouble = "denied", str(error)
            self._tell()
            return
        try:
            await self._identify(generation, connection, credential)
            if self._turns is not None:
                generation.end_turn = await self._turns.take()
            async with asyncio.TaskGroup() as reflectors:
                for kind, stage in generation.stages:
                    work = connection.reflect(kind, stage, self._reporter(generation, kind))
                    reflectors.create_task(work, name=f"reflect {kind.fact} of {self.cluster}")
        finally:
            generation.end_turn()
            await connection.close()

    async def _identify(self, generation: _Generation[K], connection: Connection[K], credential: C) -> None:
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
        self._tell()
        self._identified(credential, uid)
        # If that was one too many, this is where it ends.
        await asyncio.sleep(0)

    def _reporter(self, generation: _Generation[K], kind: ReadKind) -> Report:
        def report(state: KindState, reason: str) -> None:
            generation.states[kind.fact] = state, reason
            if generation is self._incoming and generation.complete:
                self._take_over(generation)
            self._tell()

        return report

    def _take_over(self, generation: _Generation[K]) -> None:
        """All it may read has been read: what it holds is what there is, and what is older goes."""
        old, self._current, self._incoming = self._current, generation, None
        self._written = True
        generation.end_turn()
        if old is not None:
            old.end()
        for stage in dict.fromkeys(stage for _, stage in generation.stages):
            besides = [self._state()] if stage.writes_to(self._facts) else []
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
        self._facts.apply([(key, fact)], self._cause(0))

    def _state(self) -> tuple[ObjectKey, Cluster]:
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
        return (self.cluster, "Cluster", "", self.cluster), Cluster(
            state, self._home, self._deadline, "; ".join(reasons)
        )

    def _cause(self, objects: int) -> Cause:
        return Cause(self._now(), f"cluster {self.cluster}", objects)
