"""Traces, from records left in the ring to spans in an exporter, and over OTLP/HTTP to a collector on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import aggregator
from aggregator.app import telemetry
from aggregator.app.records import Batch, Pass, Records
from tests.kit.eventually import eventually
from watchers.sink import Cause
from xds.records import Ack, Push

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from opentelemetry.sdk.trace.export import SpanExporter

ROOT = Path(aggregator.__file__).parents[1]
ADDRESS = "type.googleapis.com/istio.workload.Address"
MS = 1_000_000


@pytest.fixture(autouse=True)
def no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@contextlib.asynccontextmanager
async def exporting(records: Records, exporter: SpanExporter | None = None) -> AsyncIterator[asyncio.Task[None]]:
    """An exporting task that is cancelled, and so flushed, at the end."""
    task = asyncio.create_task(telemetry.export_traces(records, "west", exporter))
    await eventually(lambda: records._readers or task.done())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def leave_records(records: Records, accepted: bool = True, message: str = "") -> None:
    """What the stages leave when one change of the directory reaches one ztunnel."""
    now = time.time_ns()
    causes = (Cause(now - 20 * MS, "directory west", 3), Cause(now - 15 * MS, "directory east", 1))
    done = Pass(7, causes, now - 10 * MS, now - 8 * MS, 40, 4, 2)
    push = Push(
        proxy="ztunnel-1", type_url=ADDRESS, nonce="9", resources=2, removed=0, size=512, causes=(done,), sent_ns=now
    )
    ack = Ack(
        proxy="ztunnel-1", type_url=ADDRESS, nonce="9", accepted=accepted, message=message, received_ns=now + 2 * MS
    )
    for record in (Batch(7, 4, causes, 0, now - 12 * MS), done, push, ack):
        records.append(record)


def finished(exporter: InMemorySpanExporter) -> dict[str, Any]:
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_one_trace_goes_from_the_directory_to_the_acknowledgement() -> None:
    records, exporter = Records(), InMemorySpanExporter()
    async with exporting(records, exporter):
        leave_records(records)
    spans = finished(exporter)
    receive, aggregate = spans["receive directory west"], spans["aggregate"]
    push, settle = spans["push Address"], spans["settle Address"]
    assert receive.parent is None
    assert [span.parent.span_id for span in (aggregate, push, settle)] == [
        span.context.span_id for span in (receive, aggregate, push)
    ]
    assert len({span.context.trace_id for span in (receive, aggregate, push, settle)}) == 1
    assert [span.kind for span in (receive, aggregate, push, settle)] == [
        SpanKind.CONSUMER, SpanKind.INTERNAL, SpanKind.PRODUCER, SpanKind.CONSUMER,
    ]  # fmt: skip
    assert settle.end_time - receive.start_time == 22 * MS


async def test_the_other_cause_is_a_trace_of_its_own_that_the_pass_links_to() -> None:
    records, exporter = Records(), InMemorySpanExporter()
    async with exporting(records, exporter):
        leave_records(records)
    spans = finished(exporter)
    other, (link,) = spans["receive directory east"], spans["aggregate"].links
    assert link.context.span_id == other.context.span_id
    assert other.context.trace_id != spans["aggregate"].context.trace_id


async def test_a_rejection_is_an_error_with_its_message_also_when_nothing_is_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    records, exporter = Records(), InMemorySpanExporter()
    async with exporting(records, exporter):
        leave_records(records)
        leave_records(records, accepted=False, message="shop/cart: no port")
    settle = finished(exporter)["settle Address"]
    assert (settle.status.status_code, settle.status.description) == (StatusCode.ERROR, "shop/cart: no port")
    assert settle.attributes["error.type"] == "nack"
    assert len([span for span in exporter.get_finished_spans() if span.name == "aggregate"]) == 1


async def test_spans_leave_while_the_process_runs() -> None:
    records, exporter = Records(), InMemorySpanExporter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        async with exporting(records, exporter):
            leave_records(records)
            await eventually(lambda: "settle Address" in finished(exporter))


async def test_resource_attributes_of_the_environment_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert telemetry.resource("west").attributes["service.name"] == "isthmus"
    assert telemetry.resource("west").attributes["k8s.cluster.name"] == "west"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,k8s.cluster.name=w1")
    assert telemetry.resource("west").attributes["service.name"] == "mine"
    assert telemetry.resource("west").attributes["k8s.cluster.name"] == "w1"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "other")
    assert telemetry.resource("west").attributes["service.name"] == "other"


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio"),
    [
        ("", "", 1.0),
        ("always_on", "", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("traceidratio", "0.01", 0.01),
        ("parentbased_traceidratio", "0.5", 0.5),
        ("traceidratio", "", 1.0),
    ],
)
def test_the_ratio_is_that_of_the_usual_variables(
    monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, ratio: float
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    assert telemetry.sample_ratio() == ratio


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
    ],
)
async def test_an_exporter_that_cannot_be_had_is_an_error_in_the_log_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    await telemetry.export_traces(Records(), "west")
    (refused,) = caplog.records
    assert (refused.levelno, refused.variable, refused.value) == (logging.ERROR, variable, value)  # type: ignore[attr-defined]
    assert refused.cure.startswith("use ")  # type: ignore[attr-defined]


class Collector(ThreadingHTTPServer):
    """An OTLP/HTTP receiver that keeps what it is sent; `status` is what it answers."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[tuple[str, ExportTraceServiceRequest]] = []
        self.hold = threading.Event()
        self.hold.set()
        super().__init__(("127.0.0.1", 0), _Receive)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Receive(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.hold.wait(10)
        self.server.requests.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_collector_receives_the_four_spans_over_otlp(collector: Collector) -> None:
    records = Records()
    async with exporting(records):
        leave_records(records)
    ((path, request),) = collector.requests
    assert path == "/v1/traces"
    (group,) = request.resource_spans
    attributes = {each.key: each.value.string_value for each in group.resource.attributes}
    assert (attributes["service.name"], attributes["service.version"]) == ("isthmus", aggregator.__version__)
    spans = {span.name: span for scope in group.scope_spans for span in scope.spans}
    chain = [spans[name] for name in ("receive directory west", "aggregate", "push Address", "settle Address")]
    assert chain[0].parent_span_id == b""
    assert [span.parent_span_id for span in chain[1:]] == [span.span_id for span in chain[:-1]]
    assert len({span.trace_id for span in chain}) == 1
    assert [link.span_id for link in chain[1].links] == [spans["receive directory east"].span_id]


async def test_a_collector_that_does_not_answer_holds_up_the_end_only_so_long(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "FLUSH_SECONDS", 0.1)
    collector.hold.clear()
    records = Records()
    loop = asyncio.get_running_loop()
    async with exporting(records) as task:
        leave_records(records)
        began = loop.time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert loop.time() - began < 2
    collector.hold.set()
    await eventually(lambda: collector.requests)


def test_without_traces_opentelemetry_is_not_even_imported() -> None:
    program = (
        "import sys\nimport aggregator.app.traces, aggregator.app.metrics, aggregator.cli.main\n"
        "assert not aggregator.app.traces.wanted({})\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
