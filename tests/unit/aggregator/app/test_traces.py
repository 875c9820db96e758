from __future__ import annotations

from collections.abc import Callable

import pytest

from aggregator.app.records import Batch, Pass
from aggregator.app.traces import Outcome, Span, TailDecision, Trace, Traces, wanted
from watchers.sink import Cause
from xds.records import Ack, Push, StreamClosed

ADDRESS = "type.googleapis.com/istio.workload.Address"
AUTHORIZATION = "type.googleapis.com/istio.security.Authorization"
MS = 1_000_000
SECOND = 1000 * MS


def cause(received: int = 0, source: str = "directory west") -> Cause:
    return Cause(received=received, source=source, objects=1)


def a_pass(*causes: Cause, started: int = 10 * MS, ended: int = 12 * MS, changed: int = 1) -> Pass:
    return Pass(
        revision=7, causes=causes, started_ns=started, ended_ns=ended, evaluated=5, changed=changed, published=changed
    )


def push(*causes: object, proxy: str = "z1", nonce: str = "1", type_url: str = ADDRESS, sent: int = 13 * MS) -> Push:
    return Push(
        proxy=proxy, type_url=type_url, nonce=nonce, resources=2, removed=1, size=100, causes=causes, sent_ns=sent
    )


def ack(of: Push, received: int = 15 * MS, accepted: bool = True, message: str = "") -> Ack:
    return Ack(
        proxy=of.proxy, type_url=of.type_url, nonce=of.nonce, accepted=accepted, message=message, received_ns=received
    )


def keep_all(outcome: Outcome, now_ns: int) -> bool:
    return True


def finished(*records: object, now: int = 2 * SECOND, keep: Callable[[Outcome, int], bool] = keep_all) -> list[Trace]:
    traces = Traces(keep)
    traces.add(records)
    return list(traces.finished(now))


def by_name(trace: Trace, name: str) -> Span:
    (span,) = [span for span in trace.spans if span.name == name]
    return span


def test_a_trace_goes_from_receive_to_settle_with_the_times_of_the_records() -> None:
    first = cause(1 * MS)
    done = a_pass(first)
    sent = push(done)
    (trace,) = finished(Batch(3, 1, (first,), 0, 8 * MS), done, sent, ack(sent))
    assert [(span.name, span.parent, span.start_ns // MS, span.end_ns // MS) for span in trace.spans] == [
        ("receive directory west", None, 1, 8),
        ("aggregate", 0, 10, 12),
        ("push Address", 1, 12, 13),
        ("settle Address", 2, 13, 15),
    ]
    assert trace.outcome == Outcome(seconds=0.014, failed=False, of_pass=True, spans=4)
    assert by_name(trace, "aggregate").attributes["isthmus.debounce.wait"] == 0.002


def test_without_a_batch_a_cause_was_received_until_the_pass_began() -> None:
    (trace,) = finished(a_pass(cause(1 * MS), changed=0))
    assert by_name(trace, "receive directory west").end_ns == 10 * MS


def test_a_push_belongs_to_its_pass_also_when_it_carries_the_causes_of_facts() -> None:
    first = cause()
    sent = push(first)
    (trace,) = finished(a_pass(first), sent, ack(sent))
    assert by_name(trace, "push Address").parent == 1


def test_the_earliest_cause_is_the_root_and_the_others_are_linked_roots() -> None:
    late, early = cause(5 * MS, "directory east"), cause(1 * MS, "directory west")
    (trace,) = finished(a_pass(late, early, changed=0))
    assert [(span.name, span.parent) for span in trace.spans] == [
        ("receive directory west", None),
        ("receive directory east", None),
        ("aggregate", 0),
    ]
    assert by_name(trace, "aggregate").links == (1,)


def test_of_very_many_causes_a_sample_with_the_earliest_and_the_latest_is_shown() -> None:
    (trace,) = finished(a_pass(*(cause(number) for number in range(100)), changed=0))
    receives = [span.start_ns for span in trace.spans if span.name.startswith("receive")]
    assert len(receives) == len(set(receives)) == 32
    assert (min(receives), max(receives)) == (0, 99)
    assert by_name(trace, "aggregate").attributes["isthmus.batch.links_dropped"] == 68


def test_nothing_is_built_of_traces_that_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("built")

    monkeypatch.setattr("aggregator.app.traces.Span", refuse)
    assert finished(a_pass(cause(), changed=0), keep=lambda outcome, now_ns: False) == []


def test_a_pass_without_a_cause_is_a_root_itself() -> None:
    (trace,) = finished(a_pass(changed=0))
    assert [(span.name, span.parent) for span in trace.spans] == [("aggregate", None)]


def test_a_pass_that_changed_nothing_is_finished_at_once() -> None:
    (trace,) = finished(a_pass(cause(), changed=0), now=12 * MS)
    assert by_name(trace, "aggregate").attributes["isthmus.outcome"] == "unchanged"


def test_all_proxies_of_a_type_share_one_push_and_one_settle_span() -> None:
    done = a_pass(cause())
    sent = [push(done, proxy=f"z{number}", sent=(13 + number) * MS) for number in range(3)]
    (trace,) = finished(done, *sent, *(ack(each, received=(20 + place) * MS) for place, each in enumerate(sent)))
    (sending,) = [span for span in trace.spans if span.name == "push Address"]
    assert (sending.end_ns, sending.attributes["isthmus.xds.proxies"]) == (15 * MS, 3)
    assert (sending.attributes["isthmus.xds.bytes"], sending.attributes["isthmus.xds.resources"]) == (300, 6)
    assert by_name(trace, "settle Address").end_ns == 22 * MS


def test_every_type_has_its_own_push_below_the_pass() -> None:
    done = a_pass(cause())
    sent = [push(done), push(done, type_url=AUTHORIZATION, nonce="2")]
    (trace,) = finished(done, *sent, *map(ack, sent))
    assert by_name(trace, "push Address").parent == by_name(trace, "push Authorization").parent == 1
    assert by_name(trace, "settle Authorization").parent == trace.spans.index(by_name(trace, "push Authorization"))


def test_a_trace_waits_for_answers_and_a_moment_more_for_slower_streams() -> None:
    done = a_pass(cause())
    sent = push(done)
    traces = Traces(keep_all, quiet_seconds=0.5)
    traces.add([done, sent])
    assert list(traces.finished(2 * SECOND)) == []
    traces.add([ack(sent, received=2 * SECOND)])
    assert list(traces.finished(2 * SECOND + 499 * MS)) == []
    assert len(list(traces.finished(2 * SECOND + 500 * MS))) == 1
    assert list(traces.finished(9 * SECOND)) == []


def test_a_rejection_fails_the_trace_and_names_the_proxy_and_its_message() -> None:
    done = a_pass(cause())
    good, bad = push(done, proxy="z1"), push(done, proxy="z2")
    (trace,) = finished(done, good, bad, ack(good), ack(bad, accepted=False, message="shop/cart: " + "x" * 1000))
    assert trace.outcome.failed
    settle = by_name(trace, "settle Address")
    assert (settle.error, settle.attributes["messaging.operation.name"]) == ("nack", "nack")
    one = by_name(trace, "settle Address of one proxy")
    assert (one.attributes["isthmus.proxy"], one.error, one.parent) == ("z2", "nack", trace.spans.index(settle))
    assert one.message.startswith("shop/cart: xxx")
    assert len(one.message) == 256


def test_a_proxy_that_never_answers_fails_the_trace_when_patience_ends() -> None:
    done = a_pass(cause())
    traces = Traces(keep_all, patience_seconds=3)
    traces.add([done, push(done)])
    assert list(traces.finished(3 * SECOND)) == []
    (trace,) = traces.finished(4 * SECOND)
    settle = by_name(trace, "settle Address")
    assert (trace.outcome.failed, settle.error, settle.end_ns) == (True, "timeout", 4 * SECOND)


def test_an_answer_after_patience_has_ended_changes_nothing() -> None:
    done = a_pass(cause())
    sent = push(done)
    traces = Traces(keep_all, patience_seconds=1)
    traces.add([done, sent])
    assert len(list(traces.finished(2 * SECOND))) == 1
    traces.add([ack(sent, received=3 * SECOND)])
    assert list(traces.finished(9 * SECOND)) == []


def test_a_stream_that_closes_is_not_waited_for_and_is_no_failure() -> None:
    done = a_pass(cause())
    closed = StreamClosed(proxy="z1", peer="10.0.0.1:5", kind="delta", at_ns=14 * MS, reason="eof")
    (trace,) = finished(done, push(done), closed)
    assert not trace.outcome.failed
    assert by_name(trace, "settle Address").attributes["isthmus.xds.closed"] == 1


def test_a_push_that_waited_through_several_passes_belongs_to_the_newest() -> None:
    old, new = a_pass(cause()), a_pass(cause(), started=20 * MS, ended=22 * MS)
    sent = push(old, new, sent=30 * MS)
    first, second = finished(old, new, sent, ack(sent, received=31 * MS))
    assert len(first.spans) == 2
    assert len(second.spans) == 4


def test_the_first_answer_to_a_new_stream_is_a_trace_of_its_own_that_says_so() -> None:
    sent = push()
    (trace,) = finished(sent, ack(sent))
    assert [(span.name, span.parent) for span in trace.spans] == [("push Address", None), ("settle Address", 0)]
    assert not trace.outcome.of_pass


def test_a_proxy_that_is_slow_to_answer_is_named() -> None:
    done = a_pass(cause())
    quick, slow = push(done, proxy="z1"), push(done, proxy="z2")
    (trace,) = finished(done, quick, slow, ack(quick), ack(slow, received=2 * SECOND), now=4 * SECOND)
    assert by_name(trace, "settle Address of one proxy").attributes["isthmus.proxy"] == "z2"


def test_clocks_that_step_back_make_no_negative_spans() -> None:
    first = cause(50 * MS)
    done = a_pass(first, started=40 * MS, ended=30 * MS)
    sent = push(done, sent=20 * MS)
    (trace,) = finished(done, sent, ack(sent, received=10 * MS))
    assert all(span.start_ns <= span.end_ns for span in trace.spans)


def test_too_many_open_traces_are_finished_early_oldest_first_and_not_as_failures() -> None:
    traces = Traces(keep_all, limit=2)
    passes = [a_pass(cause(), ended=number * MS) for number in range(12, 16)]
    traces.add([record for number, done in enumerate(passes) for record in (done, push(done, nonce=str(number)))])
    early = list(traces.finished(20 * MS))
    assert [by_name(trace, "aggregate").end_ns // MS for trace in early] == [12, 13]
    assert not any(trace.outcome.failed for trace in early)


def test_at_the_end_everything_open_is_given_out() -> None:
    done = a_pass(cause())
    traces = Traces(keep_all)
    traces.add([done, push(done)])
    (trace,) = traces.finished(14 * MS, all_of_them=True)
    assert not trace.outcome.failed


def test_nothing_is_kept_of_traces_that_are_finished() -> None:
    traces = Traces(keep_all)
    for number in range(50):
        first = cause()
        done = a_pass(first)
        answered, silent = push(done, nonce=f"a{number}"), push(done, nonce=f"s{number}", proxy="z2")
        traces.add([Batch(1, 1, (first,), 0, 0), done, answered, silent, ack(answered)])
    assert len(list(traces.finished(60 * SECOND))) == 50
    assert not any((traces._open, traces._by_cause, traces._taken, traces._in_flight))


ORDINARY = Outcome(seconds=0.1, failed=False, of_pass=True, spans=4)
FAILED = Outcome(seconds=0.1, failed=True, of_pass=True, spans=4)
SLOW = Outcome(seconds=1.5, failed=False, of_pass=True, spans=4)
NEW_STREAM = Outcome(seconds=0.1, failed=False, of_pass=False, spans=2)


def test_slow_and_failed_traces_are_kept_whatever_the_ratio() -> None:
    decide = TailDecision(lambda: 0.5, ratio=0.0)
    assert [decide(outcome, 0) for outcome in (FAILED, SLOW, ORDINARY)] == [True, True, False]


@pytest.mark.parametrize(("drawn", "kept"), [(0.009, True), (0.01, False), (0.999, False)])
def test_of_ordinary_traces_the_ratio_is_kept(drawn: float, kept: bool) -> None:
    assert TailDecision(lambda: drawn, ratio=0.01)(ORDINARY, 0) is kept


def test_answers_to_new_streams_are_kept_only_if_slow_or_failed() -> None:
    assert not TailDecision(lambda: 0.0)(NEW_STREAM, 0)


def test_ordinary_traces_stop_at_the_ceiling_of_spans_in_a_second_and_failed_ones_do_not() -> None:
    decide = TailDecision(lambda: 0.0, ceiling=8)
    assert [decide(ORDINARY, SECOND) for _ in range(3)] == [True, True, False]
    assert decide(FAILED, SECOND)
    assert decide(ORDINARY, 2 * SECOND)


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "false", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_SERVICE_NAME": "isthmus"}, False),
    ],
)
def test_traces_are_wanted_when_the_usual_variables_name_an_endpoint_or_exporter(
    environ: dict[str, str], on: bool
) -> None:
    assert wanted(environ) is on
