"""OTLP requests as spans of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from agentdyno.contract.trace import Service
from agentdyno.record.spans import Span, SpanKind

_SERVICES = {"agentdyno-backend": Service.BACKEND, "vllm": Service.BACKEND}


def native_spans(body: bytes, unix_offset_ns: int) -> Iterator[Span]:
    """The spans of one request body; its times are Unix time, unix_offset_ns brings them to the run's clock."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        facts = {pair.key: _value(pair.value) for pair in resource.resource.attributes}
        service = _SERVICES.get(str(facts.get("service.name")), Service.FRAMEWORK)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span(span, service, scope.scope.name, unix_offset_ns)


def _span(span: OtlpSpan, service: Service, scope: str, unix_offset_ns: int) -> Span:
    failed = span.status.code == Status.STATUS_CODE_ERROR
    attributes = {pair.key: _value(pair.value) for pair in span.attributes}
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex() or None,
        service=service,
        kind=SpanKind.SERVED if service is Service.BACKEND else SpanKind.NATIVE,
        name=span.name,
        phase=None,
        start_ns=span.start_time_unix_nano - unix_offset_ns,
        end_ns=span.end_time_unix_nano - unix_offset_ns,
        error=(span.status.message or "error") if failed else None,
        attributes={"otel.scope.name": scope, **attributes},
    )


def _value(value: AnyValue) -> Any:
    """A plain JSON value; bytes and nested values as text."""
    kind = value.WhichOneof("value")
    if kind in ("string_value", "bool_value", "int_value", "double_value"):
        return getattr(value, kind)
    return None if kind is None else str(getattr(value, kind))
