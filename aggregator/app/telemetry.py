"""Exports traces by OTLP. Alone imports OpenTelemetry, and is itself imported only when traces are wanted.

In: the ring of records, looked at twice a second (or when half full). Out: spans with the times of the records, handed
to the SDK's batch processor, whose own thread encodes and sends them. What is exported, and where, is said by the
usual OTEL_* variables. The sampler is not the SDK's: which traces are kept is decided when they are finished
(traces.TailDecision), with the ratio of OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG. A dead collector costs the
spans that do not fit its queue and never delays a push.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
import uuid
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from aggregator import __version__
from aggregator.app.traces import TailDecision, Traces

if TYPE_CHECKING:
    from opentelemetry.trace import Span as SdkSpan

    from aggregator.app.records import Records
    from aggregator.app.traces import Trace

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 0.5
"""How often the ring is looked at."""

FLUSH_SECONDS = 3.0
"""How long the process waits at its end for the last spans to leave."""

_SLICE = 200  # spans made at once, some 5 ms
_KINDS = {"consumer": SpanKind.CONSUMER, "producer": SpanKind.PRODUCER, "internal": SpanKind.INTERNAL}
_RATIOS = {"always_on": 1.0, "always_off": 0.0, "parentbased_always_on": 1.0, "parentbased_always_off": 0.0}


async def export_traces(records: Records, home: str, exporter: SpanExporter | None = None) -> None:
    """Exports until cancelled, then flushes. `home` names the home cluster; `exporter` replaces the configured one.

    Returns at once when no exporter can be had; the log says why. Traces are never a reason to stop the process.
    """
    exporter = exporter or configured_exporter()
    if exporter is None:
        return
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource(home), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("isthmus", __version__)
    traces = Traces(TailDecision(random.random, ratio=sample_ratio()))
    half_full = asyncio.Event()
    reader = records.reader(bell=half_full.set)
    missed = 0
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await half_full.wait()
            half_full.clear()
            traces.add(reader.take())
            if reader.missed > missed:
                logger.warning("records missed by traces", extra={"count": reader.missed - missed})
                missed = reader.missed
            made = 0
            for trace in traces.finished(time.time_ns()):
                emit(tracer, trace)
                made += len(trace.spans)
                if made >= _SLICE:
                    made = 0
                    await asyncio.sleep(0)
    finally:
        traces.add(reader.take())
        reader.close()
        for trace in traces.finished(time.time_ns(), all_of_them=True):
            emit(tracer, trace)
        await _shut_down(provider)


def emit(tracer: Tracer, trace: Trace) -> None:
    """Makes the spans of a trace, with parents and links, and ends them at once."""
    made: list[SdkSpan] = []
    for span in trace.spans:
        sdk_span = tracer.start_span(
            span.name,
            context=None if span.parent is None else set_span_in_context(made[span.parent]),
            kind=_KINDS[span.kind],
            attributes=span.attributes,
            links=[Link(made[place].get_span_context()) for place in span.links],
            start_time=span.start_ns,
        )
        if span.error:
            sdk_span.set_attribute("error.type", span.error)
            sdk_span.set_status(Status(StatusCode.ERROR, span.message or span.error))
        sdk_span.end(end_time=span.end_ns)
        made.append(sdk_span)


def configured_exporter() -> SpanExporter | None:
    """The exporter that OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_* ask for; None, and why in the log, if none."""
    kind = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if kind == "console":
        return ConsoleSpanExporter()
    if kind != "otlp":
        _refused("OTEL_TRACES_EXPORTER", kind, "use otlp, console or none")
        return None
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(variable, "").strip()
        if protocol and protocol != "http/protobuf":
            _refused(variable, protocol, "use http/protobuf, to port 4318 of most collectors")
            return None
        if protocol:
            break
    try:
        return OTLPSpanExporter()
    except (ValueError, OSError) as error:
        _refused("OTEL_EXPORTER_OTLP_*", str(error), "correct the variable")
        return None


def resource(home: str) -> Resource:
    """What the spans are of. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before what is known here."""
    ours: dict[str, str] = {
        "service.name": "isthmus",
        "service.version": __version__,
        "service.instance.id": os.environ.get("HOSTNAME") or str(uuid.uuid4()),
        "k8s.cluster.name": home,
    }
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def sample_ratio() -> float:
    """The share of ordinary traces to keep, by the SDK's own variables; 1 unless they say otherwise."""
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if sampler not in ("traceidratio", "parentbased_traceidratio"):
        if sampler and sampler not in _RATIOS:
            _refused("OTEL_TRACES_SAMPLER", sampler, "use traceidratio; until then all traces are kept")
        return _RATIOS.get(sampler, 1.0)
    text = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if 0 <= ratio <= 1:
        return ratio
    _refused("OTEL_TRACES_SAMPLER_ARG", text, "use a number from 0 to 1; until then all traces are kept")
    return 1.0


def _refused(variable: str, value: str, cure: str) -> None:
    logger.error("telemetry setting refused", extra={"variable": variable, "value": value, "cure": cure})


async def _shut_down(provider: TracerProvider) -> None:
    """Lets the batch processor send what it holds, for at most FLUSH_SECONDS: its own limit is half a minute.

    A thread of our own and not the executor's, which the end of the event loop would wait for.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def flush() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=flush, name="isthmus-telemetry-flush", daemon=True).start()
    await asyncio.wait({done}, timeout=FLUSH_SECONDS)
