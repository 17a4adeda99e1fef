"""OTLP: the receiver's endpoint over HTTP, and its requests as spans of the run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status as RpcStatus  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from agentdyno.contract.trace import RecorderLedger, Service
from agentdyno.record.spans import Span, SpanKind

MAX_OTLP_BYTES = 4 << 20  # of one request's body, after decompression
_AT_ONCE = 4  # bodies in memory
_BODY_S = 10.0
_PROTOBUF = "application/x-protobuf"
_BACKEND_SERVICES = ("agentdyno-backend", "vllm")
# What vLLM calls by names that OpenTelemetry has since given up, and the names that it has now.
_NOW_CALLED = {
    "gen_ai.usage.prompt_tokens": "gen_ai.usage.input_tokens",
    "gen_ai.usage.completion_tokens": "gen_ai.usage.output_tokens",
}


class OtlpEndpoint:
    """`POST /v1/traces`, OTLP over HTTP with protobuf bodies, plain or gzip (undone by the server below).

    keep: takes a good request's body; an OSError from it becomes a 503, upon which an exporter tries again. At most
    a few bodies are in memory at a time, the others wait unread in their sockets.
    """

    def __init__(self, ledger: RecorderLedger, keep: Callable[[bytes], None]) -> None:
        self._ledger = ledger
        self._keep = keep
        self._reading = asyncio.Semaphore(_AT_ONCE)

    async def on_request(self, request: web.Request) -> web.Response:
        """Answer one request as the OTLP specification says; what is refused is counted."""
        self._ledger.otlp_requests += 1
        if request.content_type != _PROTOBUF:
            return self._refused(415, f"This takes {_PROTOBUF}, not {request.content_type}.")
        async with self._reading:
            try:
                async with asyncio.timeout(_BODY_S):
                    body = await request.read()
                found = ExportTraceServiceRequest.FromString(body)
            except web.HTTPRequestEntityTooLarge:
                return self._refused(413, f"The body is larger than {MAX_OTLP_BYTES} bytes; send smaller batches.")
            except TimeoutError:
                return self._refused(408, f"The body did not arrive within {_BODY_S:g} s.")
            except (DecodeError, web.HTTPException, web.RequestPayloadError, ValueError) as error:
                return self._refused(400, f"That is not an OTLP trace request: {error}.")
            return self._take(body, found)

    def _take(self, body: bytes, found: ExportTraceServiceRequest) -> web.Response:
        usable = [
            is_usable(span)
            for resource in found.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        try:
            self._keep(body)
        except OSError as error:
            sys.stderr.write(f"OTLP spans cannot be written: {error}.\n")
            return self._refused(503, f"It cannot be written: {error.strerror}.")
        rejected = usable.count(False)
        self._ledger.otlp_spans += len(usable) - rejected
        self._ledger.otlp_rejected_spans += rejected
        answer = ExportTraceServiceResponse()
        if rejected:
            text = "A trace id has 16 bytes and a span id 8, and neither is zero."
            answer.partial_success.CopyFrom(ExportTracePartialSuccess(rejected_spans=rejected, error_message=text))
        return web.Response(body=answer.SerializeToString(), content_type=_PROTOBUF)

    def _refused(self, status: int, text: str) -> web.Response:
        self._ledger.otlp_refused += 1
        return web.Response(
            status=status, body=RpcStatus(message=text).SerializeToString(), headers={"content-type": _PROTOBUF}
        )


def is_usable(span: OtlpSpan) -> bool:
    """Whether its identifiers are what a trace can be put together of."""
    return len(span.trace_id) == 16 and len(span.span_id) == 8 and any(span.trace_id) and any(span.span_id)


def native_spans(body: bytes, unix_offset_ns: int) -> Iterator[Span]:
    """The spans of one request body; its times are Unix time, unix_offset_ns brings them to the run's clock."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        facts = {pair.key: _value(pair.value) for pair in resource.resource.attributes}
        for scope in resource.scope_spans:
            service = _service(str(facts.get("service.name", "")), scope.scope.name)
            for span in scope.spans:
                if is_usable(span):
                    yield _span(span, service, scope.scope.name, unix_offset_ns)


def _service(name: str, scope: str) -> Service:
    """A backend says so by its service's name, or, as vLLM does, by its instrumentation scope's."""
    of_backend = any(text.startswith(_BACKEND_SERVICES) for text in (name, scope))
    return Service.BACKEND if of_backend else Service.FRAMEWORK


def _span(span: OtlpSpan, service: Service, scope: str, unix_offset_ns: int) -> Span:
    failed = span.status.code == Status.STATUS_CODE_ERROR
    names = _NOW_CALLED if service is Service.BACKEND else {}  # a framework's own instrumentation is left as it is
    attributes = {names.get(pair.key, pair.key): _value(pair.value) for pair in span.attributes}
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
    """As JSON has it: lists and maps nested, bytes as hexadecimal."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return None if kind is None else getattr(value, kind)
