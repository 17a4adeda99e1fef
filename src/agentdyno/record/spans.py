"""Spans from raw records: names, attributes and parents by the conventions of otel/CONVENTIONS.md.

One expansion serves the parquet file and the OTLP export, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from agentdyno.contract.phases import Phase, phase_of_call
from agentdyno.contract.trace import (
    FRAME_HEAD_BYTES,
    LlmCall,
    Record,
    RequestEvents,
    ServedCall,
    Service,
)

RAW_FILE = "spans.frames"
OTLP_FILE = "otlp.frames"
RESOURCE_VARIABLE = "AGENTDYNO_RESOURCE"  # the recorder's: JSON with run id, framework, version, scenario
_FAULTY = frozenset({"error", "timeout", "client_gone", "bad_request"})
_decode = msgspec.msgpack.Decoder(list[Record]).decode


class SpanKind(StrEnum):
    """What a span stands for. Those of the host and the backend that were recorded one by one are in the span
    ledger; derived ones (parse, respond) are made of them, client ones of the requests, native ones come from the
    framework's own instrumentation.
    """

    REQUEST = "request"
    CHAT = "chat"
    TOOL = "tool"
    PLANNING = "planning"
    SERVED = "served"
    DERIVED = "derived"
    CLIENT = "client"
    NATIVE = "native"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span. Times: ns on the run's monotonic clock. error None: it went well."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    service: Service
    kind: SpanKind
    name: str
    phase: Phase | None
    start_ns: int
    end_ns: int
    error: str | None
    attributes: dict[str, Any]


def frames(content: bytes) -> Iterator[bytes]:
    """The bodies of length-prefixed frames; a last one that was cut off is left out."""
    at = 0
    while at + FRAME_HEAD_BYTES <= len(content):
        size = int.from_bytes(content[at : at + FRAME_HEAD_BYTES], "big")
        at += FRAME_HEAD_BYTES
        if at + size > len(content):
            return
        yield content[at : at + size]
        at += size


def decode(bodies: Iterable[bytes]) -> Iterator[Record]:
    """The records of frames, in the order they came."""
    for body in bodies:
        yield from _decode(body)


def expand(record: Record, framework: str) -> list[Span]:
    """The spans that a record stands for; none for a hello or a goodbye."""
    if isinstance(record, RequestEvents):
        return _request(record, framework)
    if isinstance(record, ServedCall):
        return [_served(record)]
    return []


def _request(record: RequestEvents, framework: str) -> list[Span]:
    trace_id, root_id = record.trace_id.hex(), _hex(record.span_id)

    def child(
        span_id: int,
        kind: SpanKind,
        name: str,
        phase: Phase,
        start_ns: int,
        end_ns: int,
        error: str | None = None,
        **attributes: Any,
    ) -> Span:
        return Span(
            trace_id=trace_id,
            span_id=_hex(span_id),
            parent_span_id=root_id,
            service=Service.HOST,
            kind=kind,
            name=name,
            phase=phase,
            start_ns=start_ns,
            end_ns=end_ns,
            error=error,
            attributes={key: value for key, value in attributes.items() if value is not None},
        )

    root = Span(
        trace_id=trace_id,
        span_id=root_id,
        parent_span_id=None if record.parent_span_id is None else _hex(record.parent_span_id),
        service=Service.HOST,
        kind=SpanKind.REQUEST,
        name=f"invoke_agent {framework}",
        phase=None,
        start_ns=record.start_ns,
        end_ns=record.end_ns,
        error=record.outcome if record.outcome in _FAULTY else None,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": framework,
            "agentdyno.outcome": record.outcome,
        },
    )
    spans = [root]
    for number, (start_ns, end_ns) in enumerate(record.plannings):
        spans.append(child(_derived_id(record, 16 + number), SpanKind.PLANNING, "plan", Phase.PLAN, start_ns, end_ns))
    for call in record.llm_calls:
        spans.append(child(call.span_id, SpanKind.CHAT, *_chat(call, record.end_ns), **_chat_attributes(call)))
    for tool in record.tools:
        attributes: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool.name}
        name = f"execute_tool {tool.name}"
        times = (tool.start_ns, tool.end_ns, tool.error)
        spans.append(child(tool.span_id, SpanKind.TOOL, name, Phase.TOOL, *times, **attributes))
    inner = spans[1:]
    if inner:
        first, last = min(s.start_ns for s in inner), max(inner, key=lambda s: s.end_ns)
        times = (record.start_ns, max(first, record.start_ns), None)
        spans.append(child(_derived_id(record, 1), SpanKind.DERIVED, "parse", Phase.PARSE, *times))
        if last.phase is Phase.REFLECT:
            times = (min(last.end_ns, record.end_ns), record.end_ns, None)
            spans.append(child(_derived_id(record, 2), SpanKind.DERIVED, "respond", Phase.RESPOND, *times))
    return spans


def _chat(call: LlmCall, request_end_ns: int) -> tuple[str, Phase, int, int, str | None]:
    error = call.error if call.status == 200 or call.status is None else f"http_{call.status}"
    name = f"chat {call.model}" if call.model else "chat"
    return name, phase_of_call(call.wants_tools), call.start_ns, call.end_ns or request_end_ns, error


def _chat_attributes(call: LlmCall) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": call.model,
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.output_tokens": call.completion_tokens,
        "http.response.status_code": call.status,
        "http.request.body.size": call.prompt_bytes,
        "agentdyno.streamed": call.streamed,
        "agentdyno.first_byte_ns": None if call.first_byte_ns is None else call.first_byte_ns - call.start_ns,
        "agentdyno.wants_tools": call.wants_tools,
    }


def _served(record: ServedCall) -> Span:
    return Span(
        trace_id=record.trace_id.hex(),
        span_id=_hex(record.span_id),
        parent_span_id=_hex(record.parent_span_id),
        service=Service.BACKEND,
        kind=SpanKind.SERVED,
        name="llm_request",
        phase=None,
        start_ns=record.start_ns,
        end_ns=record.end_ns,
        error=None if record.status == 200 else f"http_{record.status}",
        attributes={
            "gen_ai.usage.input_tokens": record.prompt_tokens,
            "gen_ai.usage.output_tokens": record.completion_tokens,
            "gen_ai.latency.time_in_queue": record.queued_ns / 1e9,
            "gen_ai.latency.time_to_first_token": None
            if record.first_token_ns is None
            else (record.first_token_ns - record.start_ns) / 1e9,
        },
    )


def _derived_id(record: RequestEvents, number: int) -> int:
    """An id for a span that nobody recorded, the same each time the record is read."""
    return (record.span_id ^ (number << 56)) or number


def _hex(span_id: int) -> str:
    return f"{span_id:016x}"
