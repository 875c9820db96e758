"""A credential at work: which kinds it has read, whether its API server still answers, and what state that makes.

In: reports of `Connection`s, the hands of `cluster`. Out: one state, its reason, and the moments that belong to it.
Knows no HTTP and no tasks but the one it ends; time comes in as numbers, seconds of Unix time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from watchers.staging import Sink, Stage
from watchers.status import Access, KindStatus

KindState = Literal["connecting", "syncing", "synced", "absent", "stale", "denied"]
"""What is known of one kind: "absent" is a kind the API server does not serve, which is an answer like "synced"; of
"stale" ones the last content stands; "denied" ones may not be read."""

Report = Callable[[KindState, str], None]
"""Takes the state of a kind and why it is not a better one."""

K = TypeVar("K", bound="ReadKind")
Kr = TypeVar("Kr", bound="ReadKind", contravariant=True)

_ANSWERED = ("synced", "absent")
_MOST_REASONS = 3
_DOUBTFUL = 0.5
"""Seconds without an answer: no API server that is well needs as long to say its version."""


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


class Health(msgspec.Struct, frozen=True):
    """Whether the API server answers and accepts the credential, as far as questions have shown.

    ``confirmed`` is when it last did, ``lost`` when the first question was asked that found no good answer since, and
    ``asked`` when the one was asked that is still open; 0 where there is none. ``reason`` tells why it is not alive.
    """

    state: Literal["alive", "silent", "denied"] = "alive"
    reason: str = ""
    confirmed: float = 0.0
    lost: float = 0.0
    asked: float = 0.0


class Connection(Protocol[Kr]):
    """One credential in use, with all sockets it holds."""

    async def identify(self) -> str:
        """The uid of the API server's namespace kube-system, "" if that may not be read; raises Unidentified."""

    async def reflect(self, kind: Kr, facts: Sink, report: Report) -> None:
        """Keeps the facts of a kind equal to what the API server says, until cancelled, and reports their state.

        What was read completely is written before "synced" is reported.
        """

    async def attend(self, changed: Callable[[], None]) -> None:
        """Asks again and again whether the API server is there, until cancelled; `changed` hears of a new state."""

    async def confirm(self, seconds: float) -> None:
        """Has it asked now, and waits at most so long for the answer."""

    @property
    def health(self) -> Health:
        """What the questions have shown up to now."""

    @property
    def access(self) -> Access:
        """Where it leads to, and how long its credentials last."""

    def heard(self, kind: Kr) -> float:
        """When the watch of a kind last said something, 0 for never."""

    async def close(self) -> None:
        """Closes every socket."""


class _Known:
    """What is known of one kind: ``began`` is when it was last read, ``confirmed`` the last proof before it failed."""

    def __init__(self, *, required: bool) -> None:
        self.required = required
        self.state: KindState = "connecting"
        self.reason = ""
        self.began = 0.0
        self.confirmed = 0.0

    @property
    def answered(self) -> bool:
        return self.state in _ANSWERED

    @property
    def needed(self) -> bool:
        """What may be missing and may not be read holds nothing up."""
        return self.required or self.state != "denied"


class Generation(Generic[K]):
    """A credential at work: what it writes, and how far it has come."""

    def __init__(self, stages: Sequence[tuple[K, Stage]]) -> None:
        self.stages = stages
        self.trouble: tuple[KindState, str] | None = None
        self.connection: Connection[K] | None = None
        self.uid = ""
        self.task: asyncio.Task[None] | None = None
        self.end_turn: Callable[[], None] = lambda: None
        self._kinds = {kind.fact: _Known(required=kind.required) for kind, _ in stages}

    @property
    def complete(self) -> bool:
        """Whether all it may read has been read, by a credential that is still accepted."""
        return self.summary()[0] == "synced"

    @property
    def written(self) -> bool:
        """Whether anything of it may have reached the table."""
        return any(stage.written for _, stage in self.stages)

    @property
    def health(self) -> Health:
        """Whether its API server answers."""
        return self.connection.health if self.connection is not None else Health()

    def report(self, kind: K, state: KindState, reason: str, now: float) -> None:
        """A kind is in this state now."""
        known = self._kinds[kind.fact]
        if state in _ANSWERED and not known.answered:
            known.began = now
        elif known.answered and state not in _ANSWERED:
            known.confirmed = self._confirmed(known)
        known.state, known.reason = state, reason

    def summary(self) -> tuple[KindState, str]:
        """The state of a cluster that is read by it, and why it is not a better one."""
        if self.trouble is not None:
            return self.trouble
        kinds = self._kinds.items()
        reasons = [f"{fact}: {one.reason}" for fact, one in kinds if one.reason and one.state != "absent"]
        health = self.health
        if health.state != "alive":
            reasons.insert(0, health.reason)
        reason = "; ".join(reasons[:_MOST_REASONS])
        needed = {one.state for one in self._kinds.values() if one.needed}
        if "denied" in needed or health.state == "denied":
            return "denied", reason
        read = needed.issubset(_ANSWERED)
        if "stale" in needed or (read and health.state == "silent"):
            return "stale", reason
        if read:
            return "synced", reason
        return ("connecting" if needed == {"connecting"} else "syncing"), reason

    def read(self, kinds: frozenset[str]) -> frozenset[str]:
        """Those of the kinds whose objects it has read."""
        read = (fact for fact, known in self._kinds.items() if known.state in ("synced", "stale"))
        return kinds.intersection(read)

    def denied(self) -> list[str]:
        """The kinds it may not read."""
        return [fact for fact, one in self._kinds.items() if one.state == "denied"]

    def confirmed(self) -> float:
        """When all that is needed was last known to be what the API server holds; 0 if it never was."""
        return min((self._confirmed(one) for one in self._kinds.values() if one.needed), default=0.0)

    def doubt(self, now: float) -> float:
        """When the question was asked that has no answer for so long that people should know; 0 if there is none.

        It may still be answered, so no proxy is told.
        """
        health, connection = self.health, self.connection
        if connection is None or not health.asked or now - health.asked < _DOUBTFUL:
            return 0.0
        return 0.0 if any(connection.heard(kind) >= health.asked for kind, _ in self.stages) else health.asked

    def kinds(self, objects: Callable[[K], int]) -> tuple[KindStatus, ...]:
        """Every kind as it is."""
        connection = self.connection
        return tuple(
            KindStatus(
                kind.fact,
                known.state,
                known.reason,
                objects(kind),
                connection.heard(kind) if connection is not None else 0.0,
                self._confirmed(known),
            )
            for kind, known in ((kind, self._kinds[kind.fact]) for kind, _ in self.stages)
        )

    def end(self) -> None:
        """It is heard no more, and stops."""
        for _, stage in self.stages:
            stage.close()
        self.end_turn()
        if self.task is not None:
            self.task.cancel()

    def _confirmed(self, known: _Known) -> float:
        return max(known.began, self.health.confirmed) if known.answered else known.confirmed
