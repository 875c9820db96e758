"""ADS streams: how each one begins, and how it ends.

In: a Transport (gRPC's in listener.py, one in memory in tests) and the Caller behind it. A stream is taken in if there
is a place; the server hears who the proxy is and lets the two halves of a Dialogue run until the peer goes, one of them
fails, or the server drains. It ends with a Refusal, or quietly when its peer has ended it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

import msgspec

from xds.records import Records, StreamClosed, StreamOpened
from xds.server import refusals
from xds.server.access import Access
from xds.server.authentication import Caller, Proof
from xds.server.dialogue import Dialogue, Disconnected, Transport, Variant, parse
from xds.server.first_answers import Turns
from xds.server.proxies import Claims, Proxy, claims_of
from xds.server.rates import Rate, Rates
from xds.server.rechecks import Recheck, Rechecks
from xds.server.refusals import Refusal
from xds.session.content import Subscription, Views
from xds.session.ordering import MAKE_BEFORE_BREAK, Order
from xds.session.requests import ProtocolViolation

logger = logging.getLogger(__name__)

ViewsFor: TypeAlias = Callable[[Proxy, Callable[[], None]], Views]
"""What the server needs of its surroundings to have something to say: the views of a proxy, which call the given bell
when a subscription of theirs goes from nothing pending to pending, or its state moves on."""


class Limits(msgspec.Struct, frozen=True):
    """What one peer, and all together, may take of the server. Each limit has a status whose message names it.

    `streams_per_account` counts the streams of one service account, `streams_per_pod` those of one pod of it, where
    the token says which, `opened` how often one pod may open one, and `opened_from_host` all pods of an account that
    cannot be told apart. `first_request` is how long a stream may stay
    silent after opening, in seconds; `requests` is how fast one is read, the rest waits in the peer's own buffers.
    """

    streams: int = 10_000
    streams_per_account: int = 5_000
    streams_per_pod: int = 16
    opened: Rate = Rate(per_second=1.0, burst=60)
    opened_from_host: Rate = Rate(per_second=20.0, burst=1000)
    request_bytes: int = 64 << 20
    first_request: float = 10.0
    requests: Rate = Rate(per_second=1000.0, burst=10_000)


class Streams:
    """All ADS streams of this server: takes them in within limits, and ends them when the server drains."""

    def __init__(
        self,
        access: Access,
        views_for: ViewsFor,
        records: Records,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        order: Order = MAKE_BEFORE_BREAK,
        rechecks: Rechecks | None = None,
    ) -> None:
        self.access: Final = access
        self._views_for = views_for
        self.records: Final = records
        self.limits: Final = limits
        self.order: Final = order
        self.rechecks: Final = rechecks or Rechecks()
        self.turns: Final = Turns()
        self._opened = Rates(limits.opened)
        self._opened_from_host = Rates(limits.opened_from_host)
        self._open: dict[Stream, None] = {}
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._draining = False
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def __iter__(self) -> Iterator[Stream]:
        """Those that are open now."""
        return iter(tuple(self._open))

    async def serve(
        self, variant: Variant, transport: Transport, caller: Caller, proof: Proof | None = None
    ) -> None:
        """Serves one stream to its end. Returns when the peer has ended it; raises Refusal in every other case.

        `proof` is how the caller has proven who it is; None where nothing was proven.
        """
        with self._place(caller):
            stream = Stream(self, variant, transport, caller, proof)
            self._open[stream] = None
            try:
                await stream.run()
            finally:
                del self._open[stream]
                if not self._open:
                    self._emptied.set()

    def look_at(self, pods: Set[tuple[str, str]]) -> None:
        """Ends the streams of those of these pods (namespace, name) whose proxies are to be served in another mode.

        They connect again at once, and are told the difference. Whatever else is known of a pod is asked about when
        the stream is: it may change for all of them together.
        """
        for stream in self:
            dialogue = stream.dialogue
            if dialogue is None or (dialogue.proxy.namespace, stream.pod) not in pods:
                continue
            if self.access.mode_changed(dialogue.proxy, stream.pod):
                stream.end(refusals.unavailable("the mode in which the proxy is served has changed: connect again"))

    def permitted_views(self, proxy: Proxy, bell: Callable[[], None]) -> Views:
        """The views of a proxy, without those it may not read."""
        return _Permitted(self._views_for(proxy, bell), self.access, proxy)

    async def drain(self, seconds: float) -> None:
        """Takes no new streams, and ends those there are with UNAVAILABLE, evenly over `seconds`.

        Spread, since each of the proxies connects elsewhere at once and is served from nothing there. Returns when
        the last stream has ended.
        """
        self._draining = True
        streams = list(self._open)
        for number, stream in enumerate(streams):
            if number:
                await asyncio.sleep(seconds / len(streams))
            stream.end(_draining())
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()

    @contextmanager
    def _place(self, caller: Caller) -> Iterator[None]:
        """One of the places for streams, for as long as the context lasts; raises Refusal if none is left."""
        if self._draining:
            raise _draining()
        limits = self.limits
        places: list[tuple[tuple[str, ...], int, str]] = [((), limits.streams, "streams of this server")]
        if caller.identity is not None:
            account = (caller.identity.namespace, caller.identity.service_account)
            places.append((account, limits.streams_per_account, f"streams of service account {'/'.join(account)}"))
            if caller.identity.pod:
                pod = (*account, caller.identity.pod)
                places.append((pod, limits.streams_per_pod, f"streams of pod {caller.identity.pod}"))
        if caller.identity is not None:
            rates = self._opened if caller.identity.pod else self._opened_from_host
            if not rates.take(caller.source):
                raise refusals.exhausted(f"{caller.source} opens streams too often: wait longer before each")
        for key, most, what in places:
            if self._counts[key] >= most:
                raise refusals.exhausted(f"{most} {what} are open, which is the limit: end some, or raise the limit")
        for key, _, _ in places:
            self._counts[key] += 1
        try:
            yield
        finally:
            for key, _, _ in places:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]


def _draining() -> Refusal:
    return refusals.unavailable("server is draining: connect again, to another replica if there is one")


class Stream:
    """One stream; `run` is its whole life. `dialogue` is there once the proxy is admitted."""

    def __init__(
        self, streams: Streams, variant: Variant, transport: Transport, caller: Caller, proof: Proof | None
    ) -> None:
        self.dialogue: Dialogue | None = None
        self.pod = ""
        """The name of the proxy's pod, as it has proven or, if it cannot, says."""
        self._streams = streams
        self._variant: Variant = variant
        self._transport = transport
        self._caller = caller
        self._proof = proof
        self._recheck: Recheck | None = None
        # The one device that cuts a stream short wherever it stands, be it in a write to a peer that does not read.
        self._keeper: asyncio.Timeout | None = None
        self._ended = False
        self._outcome: Refusal | None = None

    def end(self, outcome: Refusal | None) -> None:
        """Ends the stream, with a status or (None) quietly, whatever it is doing. The first end counts."""
        if self._keeper is not None and not self._ended and not self._keeper.expired():
            self._ended = True
            self._outcome = outcome
            self._keeper.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Returns when the peer has ended the stream, else raises Refusal; lets cancellation through.

        Cancellation is how gRPC tells that the peer is gone; a handler that swallows it leaks native memory.
        """
        reader: asyncio.Task[None] | None = None
        outcome: Refusal | None = None
        reason = "cancelled by the peer"
        self._keeper = asyncio.timeout(self._streams.limits.first_request)
        try:
            async with self._keeper:
                dialogue = await self._begin()
                if dialogue is not None:
                    reader = asyncio.create_task(self._listen(dialogue), name=f"xds reader of {self._caller.peer}")
                    await dialogue.speak()
            reason = "ended by the peer"
        except Exception as failure:  # noqa: BLE001 - told apart there; a fault of one stream ends that one only.
            outcome = self._judge(failure)
            reason = str(outcome) if outcome is not None else "ended by the peer"
        finally:
            self._keeper = None  # It refers to the task, which refers to the error it ends with, which refers to here.
            if reader is not None:
                reader.cancel()
            if self._recheck is not None:
                self._recheck.close()
                self._recheck = None  # It refers to here.
            if self.dialogue is not None:
                self.dialogue.close()
                proxy = self.dialogue.proxy
                self._streams.records.append(StreamClosed(proxy.id, proxy.peer, self._variant, time.time_ns(), reason))
            if reader is not None:
                await asyncio.wait((reader,))
        if outcome is not None:
            try:
                raise outcome
            finally:
                outcome = self._outcome = None  # An exception whose frames refer to it would wait for the collector.

    async def _begin(self) -> Dialogue | None:
        """Hears the first request, which says who the proxy is; None if the peer goes without one."""
        data = await self._transport.read()
        if data is None:
            return None
        if self._keeper is not None and not self._ended:
            self._keeper.reschedule(None)
        streams = self._streams
        await streams.access.expect(self._caller)
        request = parse(self._variant, data, streams.limits.request_bytes)
        claims = claims_of(request.node, incremental=self._variant == "delta")
        proxy = await streams.access.admit(self._caller, claims)
        self.pod = (proxy.identity.pod if proxy.identity is not None else "") or claims.pod
        self.dialogue = Dialogue(
            proxy,
            self._variant,
            self._transport,
            streams.records,
            views_for=streams.permitted_views,
            order=streams.order,
            request_bytes=streams.limits.request_bytes,
            requests=streams.limits.requests,
            turns=streams.turns,
        )
        proof = self._proof
        if proof is not None:
            ask = partial(_standing, proof, streams.access, self._caller, claims, proxy)
            self._recheck = streams.rechecks.begin(ask, self.end, proof.ends)
        streams.records.append(StreamOpened(proxy.id, proxy.peer, self._variant, time.time_ns()))
        self.dialogue.hear(request)
        return self.dialogue

    async def _listen(self, dialogue: Dialogue) -> None:
        try:
            await dialogue.listen()
            self.end(None)
        except Exception as failure:  # noqa: BLE001 - told apart there, and handed to the stream's own task.
            self.end(self._judge(failure))

    def _judge(self, failure: Exception) -> Refusal | None:
        """How the stream ends after `failure`; None: quietly."""
        if isinstance(failure, Refusal):
            return failure
        if isinstance(failure, Disconnected):
            return None
        if isinstance(failure, ProtocolViolation):
            return refusals.invalid(str(failure))
        if isinstance(failure, TimeoutError) and self._keeper is not None and self._keeper.expired():
            if self._ended:
                return self._outcome
            return refusals.late(
                f"no request within {self._streams.limits.first_request:g} s: send the first one when the stream opens"
            )
        proxy = self.dialogue.proxy.id if self.dialogue is not None else ""
        logger.error("stream failed", exc_info=failure, extra={"proxy": proxy, "peer": self._caller.peer})
        return refusals.internal("the server failed; its log says why")


async def _standing(proof: Proof, access: Access, caller: Caller, claims: Claims, proxy: Proxy) -> Refusal | None:
    """Why a stream may not go on: its caller is not who it was, or is not the proxy it was admitted as."""
    refusal = await proof.refusal()
    if refusal is not None:
        return refusal
    try:
        present = await access.admit(caller, claims)
    except Refusal as denied:
        return denied
    if present != proxy:
        return refusals.unavailable("what is known of the proxy's pod has changed: connect again")
    return None


class _Permitted:
    """The views of a proxy, as far as it may read them."""

    def __init__(self, views: Views, access: Access, proxy: Proxy) -> None:
        self._views = views
        self._access = access
        self._proxy = proxy

    def open(self, type_url: str) -> Subscription | None:
        """Begins to read a type; None: the proxy is not served it."""
        return self._views.open(type_url) if self._access.may_read(self._proxy, type_url) else None
