"""A finished request straight to OTLP with opentelemetry-proto: the way to export from the host itself.

Only to be compared with what the host does; it carries the same names and attributes as record/spans.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from agentdyno.contract.phases import Phase, phase_of_call
from agentdyno.contract.trace import LlmCall
from agentdyno.host.trace import RequestTrace, ToolRun


def request_body(traces: Iterable[RequestTrace], unix_offset_ns: int) -> bytes:
    """The body of one `POST /v1/traces`. unix_offset_ns: from the monotonic clock to Unix time."""
    resource = ResourceSpans(scope_spans=[ScopeSpans(spans=_spans(traces, unix_offset_ns))])
    resource.resource.attributes.append(_text("service.name", "agentdyno-host"))
    body: bytes = ExportTraceServiceRequest(resource_spans=[resource]).SerializeToString()
    return body


def _spans(traces: Iterable[RequestTrace], offset_ns: int) -> Iterable[Span]:
    for trace in traces:
        trace_id, root_id = trace.trace_id.to_bytes(16, "big"), trace.span_id.to_bytes(8, "big")
        yield Span(
            trace_id=trace_id,
            span_id=root_id,
            parent_span_id=(trace.parent_span_id or 0).to_bytes(8, "big"),
            name="invoke_agent bare",
            kind=Span.SPAN_KIND_SERVER,
            start_time_unix_nano=trace.start_ns + offset_ns,
            end_time_unix_nano=(trace.end_ns or trace.start_ns) + offset_ns,
            attributes=[_text("gen_ai.operation.name", "invoke_agent"), _text("agentdyno.outcome", "ok")],
        )
        for call in trace.llm_calls:
            yield _chat(call, trace_id, root_id, offset_ns)
        for run in trace.tools:
            yield _tool(run, trace_id, root_id, offset_ns)


def _chat(call: LlmCall, trace_id: bytes, root_id: bytes, offset_ns: int) -> Span:
    return Span(
        trace_id=trace_id,
        span_id=call.span_id.to_bytes(8, "big"),
        parent_span_id=root_id,
        name=f"chat {call.model}",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=call.start_ns + offset_ns,
        end_time_unix_nano=(call.end_ns or call.start_ns) + offset_ns,
        attributes=[
            _text("gen_ai.operation.name", "chat"),
            _text("gen_ai.provider.name", "openai"),
            _text("gen_ai.response.model", call.model or ""),
            _number("gen_ai.usage.input_tokens", call.prompt_tokens or 0),
            _number("gen_ai.usage.output_tokens", call.completion_tokens or 0),
            _number("http.response.status_code", call.status or 0),
            _number("http.request.body.size", call.prompt_bytes),
            _number("agentdyno.first_byte_ns", (call.first_byte_ns or call.start_ns) - call.start_ns),
            _text("agentdyno.phase", phase_of_call(call.wants_tools).value),
        ],
    )


def _tool(run: ToolRun, trace_id: bytes, root_id: bytes, offset_ns: int) -> Span:
    return Span(
        trace_id=trace_id,
        span_id=run.span_id.to_bytes(8, "big"),
        parent_span_id=root_id,
        name=f"execute_tool {run.name}",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=run.start_ns + offset_ns,
        end_time_unix_nano=(run.end_ns or run.start_ns) + offset_ns,
        attributes=[
            _text("gen_ai.operation.name", "execute_tool"),
            _text("gen_ai.tool.name", run.name),
            _text("agentdyno.phase", Phase.TOOL.value),
        ],
    )


def _text(key: str, value: str) -> KeyValue:
    pair = KeyValue(key=key)
    pair.value.string_value = value
    return pair


def _number(key: str, value: int) -> KeyValue:
    pair = KeyValue(key=key)
    pair.value.int_value = value
    return pair
