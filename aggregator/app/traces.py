"""Puts traces together from records, after the fact: receive -> aggregate -> push -> settle, one trace per pass.

In: Batch, Pass, Push, Ack and StreamClosed (records.py, xds/records.py), joined by the causes they carry and by
nonces. Out: finished Traces as plain data, when every proxy has answered or patience has run out; only then is it
decided whether to keep one, so slow and failed ones always are. Pure: no clock, no I/O, no telemetry library;
telemetry.py makes real spans of it.

The receive of the earliest cause is the root; the receives of the others are roots of their own traces, to which the
pass links. A push of a new stream belongs to no pass: it becomes a trace only if the proxy rejects it or is slow.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

import msgspec

from aggregator.app.records import Batch, Pass
from watchers.sink import Cause
from xds.records import Ack, Push, StreamClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SLOW_SECONDS = 1.0
"""From the first cause to the last answer; a trace that took so long is kept whatever the sampling."""

_SECOND = 1_000_000_000
_LINKS = 32  # of a pass to receives; the SDK itself stops at 128
_SHOWN = 10  # spans of single proxies in a trace
_MESSAGE = 256  # characters of a rejection


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the usual variables ask for traces. They are off unless an endpoint or an exporter is named."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter:
        return exporter != "none"
    return bool(environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


class Span(msgspec.Struct):
    """A span to be. `parent` and `links` are places of earlier spans in the same Trace.

    Without a parent it begins a trace of its own.
    """

    name: str
    kind: Literal["consumer", "producer", "internal"]
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int | float]
    parent: int | None = None
    links: tuple[int, ...] = ()
    error: str = ""  # a low-cardinality word: nack, timeout
    message: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a pass (`of_pass`), or of an answer to a new stream: enough to decide whether to keep the trace.

    `seconds` is from the first cause to the last answer; `spans` about how many spans the trace has.
    """

    seconds: float
    failed: bool
    of_pass: bool
    spans: int


class Trace(msgspec.Struct):
    """The spans of one pass, parents before children, and what became of it."""

    spans: list[Span]
    outcome: Outcome


class TailDecision:
    """Keeps every failed or slow trace, and of the other passes the share `ratio`.

    Of these others at most `ceiling` spans a second; `random` gives numbers in [0, 1).
    """

    def __init__(
        self,
        random: Callable[[], float],
        *,
        ratio: float = 1.0,
        slow_seconds: float = SLOW_SECONDS,
        ceiling: int = 1000,
    ) -> None:
        self._random = random
        self._ratio = ratio
        self._slow_seconds = slow_seconds
        self._ceiling = ceiling
        self._second = 0
        self._spent = 0

    def __call__(self, outcome: Outcome, now_ns: int) -> bool:
        """Whether to keep a trace that is finished at `now_ns`."""
        if outcome.failed or outcome.seconds >= self._slow_seconds:
            return True
        if not outcome.of_pass or self._random() >= self._ratio:
            return False
        if now_ns // _SECOND != self._second:
            self._second, self._spent = now_ns // _SECOND, 0
        self._spent += outcome.spans
        return self._spent <= self._ceiling


class Traces:
    """Records in, finished traces out. When more than `limit` are open, the oldest is finished early."""

    def __init__(
        self,
        keep: Callable[[Outcome, int], bool],
        *,
        patience_seconds: float = 10.0,
        quiet_seconds: float = 0.5,
        limit: int = 1000,
    ) -> None:
        self._keep = keep
        self._patience_ns = int(patience_seconds * _SECOND)
        self._quiet_ns = int(quiet_seconds * _SECOND)
        self._limit = limit
        self._open: OrderedDict[int, _Open] = OrderedDict()  # by number, oldest first
        self._number = 0
        self._by_cause: dict[int, _Open] = {}  # by identity of passes and causes; the open trace keeps these alive
        self._taken: OrderedDict[int, tuple[object, int]] = OrderedDict()
        self._in_flight: dict[str, dict[tuple[str, str], tuple[_Open, _Answer]]] = {}

    def add(self, records: Iterable[object]) -> None:
        """Takes records in the order in which they were left; of kinds it does not know it takes no notice."""
        for record in records:
            if isinstance(record, Push):
                self._push(record)
            elif isinstance(record, Ack):
                self._ack(record)
            elif isinstance(record, Pass):
                self._pass(record)
            elif isinstance(record, Batch):
                self._batch(record)
            elif isinstance(record, StreamClosed):
                for opened, answer in self._in_flight.pop(record.proxy, {}).values():
                    answer.closed = True
                    opened.waiting -= 1
                    opened.last_ns = max(opened.last_ns, record.at_ns)

    def finished(self, now_ns: int, *, all_of_them: bool = False) -> Iterator[Trace]:
        """The traces worth keeping of those that are complete: published nothing; all answered; or out of patience.

        A trace whose proxies have all answered stays open a moment longer, since slower streams may still have to send.
        Made one by one, so that the caller can pause between them.
        """
        for number, opened in list(self._open.items()):
            timed_out = now_ns - opened.began_ns >= self._patience_ns
            if (
                timed_out
                or all_of_them
                or len(self._open) > self._limit
                or (opened.of is not None and opened.of.changed == 0)
                or (opened.waiting == 0 and now_ns - opened.last_ns >= self._quiet_ns)
            ):
                del self._open[number]
                self._release(opened)
                outcome = opened.outcome(now_ns, timed_out)
                if self._keep(outcome, now_ns):
                    yield Trace(opened.spans(now_ns, timed_out), outcome)

    def _batch(self, batch: Batch) -> None:
        for cause in batch.causes:
            self._taken[id(cause)] = (cause, batch.taken_ns)
        while len(self._taken) > self._limit:
            self._taken.popitem(last=False)

    def _pass(self, done: Pass) -> None:
        taken = {id(cause): self._taken.pop(id(cause), (cause, done.started_ns))[1] for cause in done.causes}
        opened = self._opened(_Open(done, taken, done.ended_ns))
        for cause in (done, *done.causes):
            self._by_cause[id(cause)] = opened

    def _push(self, push: Push) -> None:
        # The newest: a push that waited for its stream carries several passes and shows the state after the last.
        opened = next(
            (self._by_cause[id(cause)] for cause in reversed(push.causes) if id(cause) in self._by_cause), None
        )
        if opened is None:
            opened = self._opened(_Open(None, {}, push.sent_ns))
        answer = _Answer(push)
        opened.answers.setdefault(push.type_url, []).append(answer)
        opened.last_ns = max(opened.last_ns, push.sent_ns)
        opened.waiting += 1
        self._in_flight.setdefault(push.proxy, {})[(push.type_url, push.nonce)] = (opened, answer)

    def _ack(self, ack: Ack) -> None:
        of_proxy = self._in_flight.get(ack.proxy, {})
        opened, answer = of_proxy.pop((ack.type_url, ack.nonce), (None, None))
        if opened is None or answer is None:
            return
        if not of_proxy:
            del self._in_flight[ack.proxy]
        answer.ack = ack
        opened.waiting -= 1
        opened.rejected += not ack.accepted
        opened.last_ns = max(opened.last_ns, ack.received_ns)

    def _opened(self, opened: _Open) -> _Open:
        self._number += 1
        self._open[self._number] = opened
        return opened

    def _release(self, opened: _Open) -> None:
        if opened.of is not None:
            for cause in (opened.of, *opened.of.causes):
                if self._by_cause.get(id(cause)) is opened:
                    del self._by_cause[id(cause)]
        for answers in opened.answers.values():
            for answer in answers:
                if answer.ack is None and not answer.closed:
                    of_proxy = self._in_flight.get(answer.push.proxy, {})
                    of_proxy.pop((answer.push.type_url, answer.push.nonce), None)
                    if not of_proxy:
                        self._in_flight.pop(answer.push.proxy, None)


class _Answer:
    """A response to one proxy and what came back."""

    __slots__ = ("ack", "closed", "push")

    def __init__(self, push: Push) -> None:
        self.push = push
        self.ack: Ack | None = None
        self.closed = False

    @property
    def rejected(self) -> bool:
        return self.ack is not None and not self.ack.accepted

    @property
    def settled_ns(self) -> int | None:
        return None if self.ack is None else max(self.push.sent_ns, self.ack.received_ns)


class _Open:
    """A pass (or a push without one) whose answers are still awaited."""

    __slots__ = ("answers", "began_ns", "last_ns", "of", "rejected", "taken", "waiting")

    def __init__(self, of: Pass | None, taken: Mapping[int, int], began_ns: int) -> None:
        self.of = of
        self.taken = taken
        self.began_ns = began_ns
        self.last_ns = began_ns
        self.answers: dict[str, list[_Answer]] = {}
        self.waiting = 0
        self.rejected = 0

    def outcome(self, now_ns: int, timed_out: bool) -> Outcome:
        silent = timed_out and self.waiting > 0
        first = self.began_ns
        shown = 0
        if self.of is not None:
            received = [cause.received for cause in self.of.causes if isinstance(cause, Cause)]
            first = min([self.of.started_ns, *received])
            shown = 1 + min(len(received), _LINKS)
        last = max(now_ns, self.last_ns) if silent else self.last_ns
        failed = silent or self.rejected > 0
        return Outcome(max(0, last - first) / _SECOND, failed, self.of is not None, shown + 2 * len(self.answers))

    def spans(self, now_ns: int, timed_out: bool) -> list[Span]:
        spans: list[Span] = []
        aggregate = None if self.of is None else self._aggregate(self.of, spans)
        for type_url, answers in self.answers.items():
            _delivery(spans, aggregate, self.of, type_url, answers, now_ns if timed_out else None)
        return spans

    def _aggregate(self, done: Pass, spans: list[Span]) -> int:
        """The receive spans and, below the earliest of them, the span of the pass; returns the place of that."""
        causes = [cause for cause in done.causes if isinstance(cause, Cause)]
        causes.sort(key=lambda cause: cause.received)
        shown = _sample(causes)
        spans += [
            Span(
                name=f"receive {cause.source}",
                kind="consumer",
                start_ns=cause.received,
                end_ns=max(cause.received, self.taken[id(cause)]),
                attributes={"isthmus.source": cause.source, "isthmus.objects": cause.objects},
            )
            for cause in shown
        ]
        waited = done.started_ns - min(self.taken.values(), default=done.started_ns)
        spans.append(
            Span(
                name="aggregate",
                kind="internal",
                start_ns=done.started_ns,
                end_ns=max(done.started_ns, done.ended_ns),
                attributes={
                    "isthmus.revision": done.revision,
                    "isthmus.batch.size": len(causes),
                    "isthmus.batch.links_dropped": len(causes) - len(shown),
                    "isthmus.debounce.wait": max(0, waited) / _SECOND,
                    "isthmus.functions": done.evaluated,
                    "isthmus.changed": done.changed,
                    "isthmus.published": done.published,
                    "isthmus.messages.encoded": done.work.encoded,
                    "isthmus.messages.composed": done.work.composed,
                    "isthmus.outcome": "changed" if done.changed else "unchanged",
                },
                parent=0 if shown else None,
                links=tuple(range(1, len(shown))),
            )
        )
        return len(spans) - 1


def _delivery(
    spans: list[Span],
    aggregate: int | None,
    done: Pass | None,
    type_url: str,
    answers: list[_Answer],
    timeout: int | None,
) -> None:
    """The push and settle spans of one type: one of each for all proxies, and single ones for those that matter.

    `timeout` is when patience with silent proxies ended; None while it has not.
    """
    kind = type_url.rpartition(".")[2]
    first, last = min(answer.push.sent_ns for answer in answers), max(answer.push.sent_ns for answer in answers)
    rejected = [answer for answer in answers if answer.rejected]
    silent = [answer for answer in answers if answer.ack is None and not answer.closed]
    settled = max((answer.settled_ns or last for answer in answers), default=last)
    if silent and timeout is not None:
        settled = max(settled, timeout)
    spans.append(
        Span(
            name=f"push {kind}",
            kind="producer",
            start_ns=min(first, done.ended_ns) if done else first,
            end_ns=last,
            attributes={
                "isthmus.xds.type": type_url,
                "isthmus.xds.proxies": len(answers),
                "isthmus.xds.resources": sum(answer.push.resources for answer in answers),
                "isthmus.xds.removed": sum(answer.push.removed for answer in answers),
                "isthmus.xds.bytes": sum(answer.push.size for answer in answers),
            },
            parent=aggregate,
        )
    )
    spans.append(
        Span(
            name=f"settle {kind}",
            kind="consumer",
            start_ns=first,
            end_ns=settled,
            attributes={
                "messaging.operation.name": "nack" if rejected else "ack",
                "isthmus.xds.type": type_url,
                "isthmus.xds.rejected": len(rejected),
                "isthmus.xds.unanswered": len(silent),
                "isthmus.xds.closed": sum(answer.closed for answer in answers),
            },
            parent=len(spans) - 1,
            error="nack" if rejected else "timeout" if silent and timeout is not None else "",
            message=_message(rejected[0]) if rejected else "",
        )
    )
    settle = len(spans) - 1
    slow = [answer for answer in answers if _slow(answer)]
    notable = [*rejected, *(silent if timeout is not None else ()), *slow][:_SHOWN]
    spans += [
        Span(
            name=f"settle {kind} of one proxy",
            kind="consumer",
            start_ns=answer.push.sent_ns,
            end_ns=answer.settled_ns or settled,
            attributes={"isthmus.proxy": answer.push.proxy, "isthmus.xds.nonce": answer.push.nonce},
            parent=settle,
            error="nack" if answer.rejected else "timeout" if answer.ack is None else "",
            message=_message(answer) if answer.rejected else "",
        )
        for answer in notable
    ]


def _slow(answer: _Answer) -> bool:
    if answer.settled_ns is None or answer.rejected:
        return False
    return answer.settled_ns - answer.push.sent_ns >= SLOW_SECONDS * _SECOND


def _message(answer: _Answer) -> str:
    return answer.ack.message[:_MESSAGE] if answer.ack is not None else ""


def _sample(causes: list[Cause]) -> list[Cause]:
    """At most so many as may be linked: the earliest, the latest, and others evenly between."""
    if len(causes) <= _LINKS:
        return causes
    step = (len(causes) - 1) / (_LINKS - 1)
    return [causes[round(place * step)] for place in range(_LINKS)]
