"""Both halves of a stream's talk: requests go to a session machine, what it wants done is carried out in order.

In: a Transport and the views of an admitted proxy. Out: responses, and records of them. No queue: it waits for its peer
in `transport.write` and nowhere else, and what changes meanwhile waits in the session's subscriptions. When a stream
begins and ends is decided in streams.py.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

from xds.encoded import Resource
from xds.records import Ack, Push, Records, ResourceRejected
from xds.server import refusals
from xds.server.first_answers import Turns
from xds.server.proxies import Proxy
from xds.server.rates import Pace, Rate
from xds.session.actions import Accepted, Action, Rejected, Send
from xds.session.content import Views
from xds.session.delta_session import DeltaSession
from xds.session.machine import Session
from xds.session.ordering import Order
from xds.session.rejections import Rejection
from xds.session.requests import DeltaRequest, SotwRequest, parse_delta, parse_sotw
from xds.session.sotw import SotwSession

Variant: TypeAlias = Literal["delta", "sotw"]
"""The two variants of the protocol: DeltaAggregatedResources and StreamAggregatedResources."""

_PARSERS: Final[Mapping[Variant, Callable[[bytes], DeltaRequest | SotwRequest]]] = {
    "delta": parse_delta,
    "sotw": parse_sotw,
}
_SESSIONS: Final[Mapping[Variant, Callable[[Views, Iterator[str], Order], Session[Any]]]] = {
    "delta": DeltaSession,
    "sotw": SotwSession,
}
_LONGEST_REASON: Final = 1024


class Transport(Protocol):
    """The two directions of one stream."""

    async def read(self) -> bytes | None:
        """The next message of the peer; None once it will send no more."""

    async def write(self, message: bytes) -> None:
        """Returns when the message is off the stream's hands; not before a slow peer makes room."""


class Disconnected(Exception):
    """A transport raises it when the peer is gone in the middle of a read or write."""


def parse(variant: Variant, data: bytes, most: int) -> DeltaRequest | SotwRequest:
    """A request of at most `most` bytes; raises Refusal or ProtocolViolation."""
    if len(data) > most:
        raise refusals.exhausted(f"a request of {len(data)} bytes; {most} are the limit")
    return _PARSERS[variant](data)


class Dialogue:
    """The talk with one admitted proxy, from its first request on. `listen` and `speak` run at the same time."""

    def __init__(
        self,
        proxy: Proxy,
        variant: Variant,
        transport: Transport,
        records: Records,
        *,
        views_for: Callable[[Proxy, Callable[[], None]], Views],
        order: Order,
        request_bytes: int,
        requests: Rate,
        turns: Turns,
    ) -> None:
        self.proxy: Final = proxy
        self._variant: Variant = variant
        self._transport = transport
        self._records = records
        self._most = request_bytes
        self._pace = Pace(requests, clock=asyncio.get_running_loop().time)
        self._turns = turns
        self._new = True
        self._bell = asyncio.Event()
        nonces = map(f"{secrets.token_hex(4)}-{{}}".format, itertools.count(1))
        self._session = _SESSIONS[variant](views_for(proxy, self._bell.set), nonces, order)
        # When the last answer of each type came in: actions that tell of it may have to wait behind a write.
        self._heard_ns: dict[str, int] = {}

    @property
    def acknowledged(self) -> Mapping[str, int]:
        """By type, the newest revision of its content that the proxy holds completely."""
        return self._session.acknowledged

    @property
    def rejected(self) -> Mapping[tuple[str, str], Rejection]:
        """The resources whose present version the proxy refuses, by type and name."""
        return self._session.rejected

    def held(self, type_url: str, present: Mapping[str, Resource]) -> set[str]:
        """Of resources of a type that are the present ones of their names, those that the proxy holds, by name."""
        return self._session.held(type_url, present)

    def refused(self, type_url: str) -> Mapping[str, Rejection]:
        """The resources of a type whose present version the proxy refuses, by name. Not to be kept."""
        return self._session.refused(type_url)

    def hear(self, request: DeltaRequest | SotwRequest) -> None:
        """Takes in a request; raises ProtocolViolation."""
        self._session.receive(request)
        if request.held:
            # Who comes back is told the difference, and that waits for nobody.
            self._new = False
        if request.response_nonce:
            self._heard_ns[request.type_url] = time.time_ns()
        self._bell.set()

    def close(self) -> None:
        """Ends the reading of views."""
        self._session.close()

    async def listen(self) -> None:
        """The reader: hears requests until the peer sends no more. Raises Refusal, ProtocolViolation, Disconnected."""
        while (data := await self._transport.read()) is not None:
            if wait := self._pace.take():
                await asyncio.sleep(wait)
            self.hear(parse(self._variant, data, self._most))

    async def speak(self) -> None:
        """The writer: carries out what the session wants, waits until it may want something again, and never ends."""
        loop = asyncio.get_running_loop()
        while True:
            self._bell.clear()
            if self._new:
                async with self._turns.turn():
                    await self._carry_out(self._session.poll(loop.time()))
                # Until it holds something of every type it has asked for, the next answer may be all there is.
                self._new = not all(self._session.acknowledged.values())
            else:
                await self._carry_out(self._session.poll(loop.time()))
            if self._bell.is_set():
                continue
            moment = self._session.next_moment
            timer = loop.call_at(moment, self._bell.set) if moment is not None else None
            try:
                await self._bell.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    async def _carry_out(self, actions: list[Action]) -> None:
        """Writes the responses among `actions`, and records all; a response is let go as soon as it is written."""
        if not actions:
            return
        for ack in self._acks(actions):
            self._records.append(ack)
        for rejected in self._rejections(actions):
            self._records.append(rejected)
        sends = [action for action in reversed(actions) if isinstance(action, Send)]
        actions.clear()
        while sends:
            send = sends.pop()
            await self._transport.write(send.payload)
            self._records.append(
                Push(
                    proxy=self.proxy.id,
                    type_url=send.type_url,
                    nonce=send.nonce,
                    resources=send.resources,
                    removed=send.removed,
                    size=len(send.payload),
                    causes=send.causes,
                    sent_ns=time.time_ns(),
                )
            )

    def _rejections(self, actions: list[Action]) -> Iterator[ResourceRejected]:
        """One record for each resource found to be refused."""
        for action in actions:
            if isinstance(action, Rejected) and action.name:
                message = action.message[:_LONGEST_REASON]
                yield ResourceRejected(self.proxy, action.type_url, action.name, action.version, message)

    def _acks(self, actions: list[Action]) -> Iterator[Ack]:
        """One record for each answer of the proxy, however many resources it rejects."""
        answers: dict[tuple[str, str], list[str]] = {}
        revisions: dict[tuple[str, str], int] = {}
        for action in actions:
            if isinstance(action, Accepted):
                answers[action.type_url, action.nonce] = []
                revisions[action.type_url, action.nonce] = action.revision
            elif isinstance(action, Rejected):
                why = f"{action.name}: {action.message}" if action.name else action.message
                answers.setdefault((action.type_url, action.nonce), []).append(why)
        for (type_url, nonce), reasons in answers.items():
            reason = "; ".join(reasons)[:_LONGEST_REASON]
            heard, revision = self._heard_ns.get(type_url, 0), revisions.get((type_url, nonce), 0)
            yield Ack(self.proxy.id, type_url, nonce, not reasons, reason, heard, revision)
