"""Live export of a run's spans to an OTLP endpoint, through OpenTelemetry's own exporter and its settings.

Only where OTEL_EXPORTER_OTLP_ENDPOINT (or the one for traces) is set. It runs on a thread of the recorder: an
endpoint that is slow or gone costs exported spans, which are counted, and nothing else.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Iterable, Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from agentdyno.contract.trace import Hello, Service
from agentdyno.record.spans import RESOURCE_VARIABLE, Span, decode, expand

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_QUEUED_FRAMES = 400
_KINDS = {Service.GENERATOR: SpanKind.CLIENT, Service.BACKEND: SpanKind.SERVER}


class Exporter:
    """Decodes frames and exports their spans, in the background.

    resource: the attributes that every span's resource carries. Counts `exported` and `dropped` spans (or frames
    that never became spans, when the queue was full).
    """

    def __init__(self, resource: Mapping[str, str], exporter: OTLPSpanExporter | None = None) -> None:
        self._resource = resource
        self._exporter = exporter or OTLPSpanExporter()
        self._queue: queue.Queue[bytes | None] = queue.Queue(_QUEUED_FRAMES)
        self._offset_ns = 0
        self._thread = threading.Thread(target=self._run, name="otlp-export", daemon=True)
        self.exported = 0
        self.dropped = 0
        self._thread.start()

    def take(self, frame: bytes) -> None:
        """Queue a frame's body; dropped and counted when the endpoint does not keep up."""
        try:
            self._queue.put_nowait(frame)
        except queue.Full:
            self.dropped += 1

    def close(self, timeout_s: float = 5.0) -> None:
        """Export what is queued, for that long at most."""
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            self.dropped += self._queue.qsize()
            return
        self._thread.join(timeout_s)

    def _run(self) -> None:
        framework = self._resource.get("agentdyno.framework", "agent")
        while (frame := self._queue.get()) is not None:
            spans: list[Span] = []
            for record in decode([frame]):
                if isinstance(record, Hello):
                    self._offset_ns = record.unix_ns - record.monotonic_ns
                spans += expand(record, framework)
            self._export(spans)

    def _export(self, spans: Iterable[Span]) -> None:
        batch = [readable(span, self._offset_ns, self._resource) for span in spans]
        if not batch:
            return
        if self._exporter.export(batch) is SpanExportResult.SUCCESS:
            self.exported += len(batch)
        else:
            self.dropped += len(batch)


def readable(span: Span, offset_ns: int, resource: Mapping[str, str]) -> ReadableSpan:
    """A span as OpenTelemetry's SDK has it. offset_ns: from the run's monotonic clock to Unix time."""
    trace_id = int(span.trace_id, 16)
    attributes = dict(span.attributes)
    if span.phase is not None:
        attributes["agentdyno.phase"] = span.phase.value
    if span.error is not None:
        attributes["error.type"] = span.error
    parent = None if span.parent_span_id is None else _context(trace_id, int(span.parent_span_id, 16))
    return ReadableSpan(
        name=span.name,
        context=_context(trace_id, int(span.span_id, 16)),
        parent=parent,
        resource=_resource(span, resource),
        attributes=attributes,
        kind=_kind(span),
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns + offset_ns,
        end_time=span.end_ns + offset_ns,
    )


def _kind(span: Span) -> SpanKind:
    if span.service in _KINDS:
        return _KINDS[span.service]
    operation = span.attributes.get("gen_ai.operation.name")
    return {"invoke_agent": SpanKind.SERVER, "chat": SpanKind.CLIENT}.get(str(operation), SpanKind.INTERNAL)


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _resource(span: Span, resource: Mapping[str, str]) -> Resource:
    return Resource({"service.name": f"agentdyno-{span.service.value}", **resource})


def exporter_from_environment(environ: Mapping[str, str] = os.environ) -> Exporter | None:
    """An exporter when an endpoint is set; None otherwise."""
    if not any(environ.get(name) for name in ENDPOINT_VARIABLES):
        return None
    return Exporter(json.loads(environ.get(RESOURCE_VARIABLE, "{}")))
