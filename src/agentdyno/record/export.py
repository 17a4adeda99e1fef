"""Export of a run's spans to an OTLP endpoint, through OpenTelemetry's own exporter and its settings.

Only where OTEL_EXPORTER_OTLP_ENDPOINT (or the one for traces) is set. The recorder's runs on a thread of its own: an
endpoint that is slow or gone costs exported spans, which are counted, and nothing else.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import requests
from google.protobuf.message import DecodeError
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from agentdyno import __version__
from agentdyno.contract.trace import Goodbye, Hello, Service
from agentdyno.record.clocks import Clocks
from agentdyno.record.otlp import native_spans
from agentdyno.record.spans import RESOURCE_VARIABLE, Span, decode, expand, shifted

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_QUEUED_FRAMES = 400
_BATCH = 512
_GATHER_S = 0.25
_POLL_S = 0.02
_LAST_BATCH_S = 0.5
_SCOPE = InstrumentationScope("agentdyno", __version__)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_OPERATION_KINDS = {"invoke_agent": SpanKind.SERVER, "chat": SpanKind.CLIENT}


class Exporter:
    """Exports the spans of frames, in the background. Counts `exported` and `dropped` spans.

    resource: the attributes that every span's resource carries. spans_to: OpenTelemetry's exporter.
    """

    def __init__(self, resource: Mapping[str, str], spans_to: SpanExporter) -> None:
        self._encoding = Encoding(resource)
        self._framework = resource.get("agentdyno.framework", "agent")
        self._spans_to = spans_to
        self._queue: queue.Queue[Callable[[], list[Span]] | None] = queue.Queue(_QUEUED_FRAMES)
        self._clocks = Clocks()
        self._thread = threading.Thread(target=self._run, name="otlp-export", daemon=True)
        self._in_hand = 0
        self._closing = False
        self.exported = 0
        self.dropped = 0
        self._thread.start()

    def take(self, frame: bytes) -> None:
        """Queue a raw frame; dropped and counted when the endpoint does not keep up."""
        self._queue_up(partial(self._of_frame, frame))

    def take_otlp(self, body: bytes) -> None:
        """Queue the spans of an OTLP request, to be passed on in the same way."""
        self._queue_up(partial(self._of_otlp, body))

    def close(self, within_s: float) -> None:
        """Export what is queued, for that long at most; what is left is dropped, and counted."""
        self._closing = True
        deadline = time.monotonic() + within_s
        while self._queue.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        while True:
            try:
                self.dropped += len(self._spans(self._queue.get_nowait() or list))
            except queue.Empty:
                break
        self._queue.put(None)
        self._spans_to.shutdown()  # which ends its waiting between two attempts
        self._thread.join(_LAST_BATCH_S)
        self.dropped += self._in_hand

    def _queue_up(self, make: Callable[[], list[Span]]) -> None:
        try:
            self._queue.put_nowait(make)
        except queue.Full:
            self.dropped += len(self._spans(make))

    def _run(self) -> None:
        while (make := self._queue.get()) is not None:
            spans, frames = self._gathered(make)
            self._in_hand = len(spans)
            sent = sum(export(self._spans_to, self._encoding, spans, self._clocks.unix_offset_ns or 0))
            self.exported += sent
            self.dropped += len(spans) - sent
            self._in_hand = 0
            for _ in range(frames):
                self._queue.task_done()

    def _gathered(self, make: Callable[[], list[Span]]) -> tuple[list[Span], int]:
        """The spans of so many frames: a batch full, or what comes in a moment. A POST costs as much as 30 spans."""
        spans, frames = self._spans(make), 1
        until = time.monotonic() + _GATHER_S
        while len(spans) < _BATCH:
            left_s = 0.0 if self._closing else max(0.0, until - time.monotonic())
            try:
                more = self._queue.get(timeout=left_s) if left_s else self._queue.get_nowait()
            except queue.Empty:
                break
            if more is None:  # the end, which is for `_run` to see
                self._queue.put(None)
                self._queue.task_done()
                break
            spans += self._spans(more)
            frames += 1
        return spans, frames

    def _spans(self, make: Callable[[], list[Span]]) -> list[Span]:
        try:
            return make()
        except (msgspec.MsgspecError, DecodeError) as error:
            sys.stderr.write(f"A frame cannot be exported: {error}.\n")
            return []

    def _of_frame(self, frame: bytes) -> list[Span]:
        records = decode(frame)
        for record in records:
            if isinstance(record, Hello):
                self._clocks.meet(record)
        shift_ns = 0
        if records and isinstance(end := records[-1], Goodbye):
            shift_ns = self._clocks.shift_ns(end.service)
        return [shifted(span, shift_ns) for span in expand(records, self._framework)]

    def _of_otlp(self, body: bytes) -> list[Span]:
        return list(native_spans(body, self._clocks.unix_offset_ns or 0))


def export(spans_to: SpanExporter, encoding: Encoding, spans: Iterable[Span], offset_ns: int) -> Iterator[int]:
    """Send spans in batches; yields after each how many of it were taken: all or none.

    offset_ns: from the run's clock to Unix time.
    """
    rest = iter(spans)
    while batch := [encoding.readable(span, offset_ns) for span in islice(rest, _BATCH)]:
        yield len(batch) if spans_to.export(batch) is SpanExportResult.SUCCESS else 0


class _OneOf(Resource):
    """A resource that is equal to itself alone: the exporter groups by it, and hashing attributes takes 7 us a span."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Encoding:
    """Makes spans what OpenTelemetry's SDK has. resource: the attributes of each span's resource."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resources = {
            service: _OneOf({"service.name": f"agentdyno-{service.value}", **resource}) for service in Service
        }

    def readable(self, span: Span, offset_ns: int) -> ReadableSpan:
        """One span. offset_ns: from the run's monotonic clock to Unix time."""
        trace_id = int(span.trace_id, 16)
        attributes: dict[str, Any] = dict(msgspec.to_builtins(span.attributes))
        if span.phase is not None:
            attributes["agentdyno.phase"] = span.phase.value
        if span.error is not None:
            attributes["error.type"] = error_type(span.error)
        return ReadableSpan(
            name=span.name,
            context=_context(trace_id, span.span_id),
            parent=None if span.parent_span_id is None else _context(trace_id, span.parent_span_id),
            resource=self._resources[span.service],
            attributes={key: _plain(value) for key, value in attributes.items() if value is not None},
            kind=_kind(span),
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            instrumentation_scope=_SCOPE,
            start_time=span.start_ns + offset_ns,
            end_time=span.end_ns + offset_ns,
        )


def error_type(error: str) -> str:
    """The few-valued name of an error, as `error.type` wants it: its text when that is a name, else `_OTHER`."""
    name = error.partition(":")[0]
    return name if _IDENTIFIER.fullmatch(name) else "_OTHER"


def exporter_from_environment(environ: Mapping[str, str] = os.environ) -> Exporter | None:
    """An exporter when an endpoint is set; None otherwise. The resource is that of RESOURCE_VARIABLE."""
    spans_to = otlp_exporter(environ)
    return None if spans_to is None else Exporter(json.loads(environ.get(RESOURCE_VARIABLE, "{}")), spans_to)


def otlp_exporter(environ: Mapping[str, str] = os.environ) -> SpanExporter | None:
    """OpenTelemetry's exporter, over HTTP or as the protocol setting has it over gRPC; None without an endpoint."""
    if not any(environ.get(name) for name in ENDPOINT_VARIABLES):
        return None
    protocol = next((environ[name] for name in PROTOCOL_VARIABLES if environ.get(name)), "http/protobuf")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc()
    if protocol != "http/protobuf":
        sys.stderr.write(f"The OTLP protocol {protocol!r} is not known here; spans go as http/protobuf.\n")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    session = requests.Session()
    session.trust_env = False  # no proxies, as for everything else that the rig talks to
    return OverHttp(session=session)


def _kind(span: Span) -> SpanKind:
    if span.service is Service.GENERATOR:
        return SpanKind.CLIENT
    if span.service is Service.BACKEND:
        return SpanKind.SERVER
    operation = span.name.partition(" ")[0] if span.service is Service.HOST else ""
    return _OPERATION_KINDS.get(operation, SpanKind.INTERNAL)


def _plain(value: Any) -> Any:
    """Nested values as text: an attribute is a plain value or a list of such."""
    return value if isinstance(value, (str, bool, int, float)) else json.dumps(value)


def _context(trace_id: int, span_id: str) -> SpanContext:
    return SpanContext(trace_id, int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)
