"""Spans from raw records: names, attributes and parents by the conventions of otel/CONVENTIONS.md.

One expansion serves the parquet file and the OTLP export, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from agentdyno.contract.phases import Phase, phase_of_call
from agentdyno.contract.trace import FRAME_HEAD_BYTES, LlmCall, Record, RequestEvents, ServedCall, Service

RAW_FILE = "spans.frames"
OTLP_FILE = "otlp.frames"
RESOURCE_VARIABLE = "AGENTDYNO_RESOURCE"  # the recorder's: JSON with run id, framework, version, scenario
NS_PER_S = 1e9
_FAULTY = frozenset({"error", "timeout", "client_gone", "bad_request"})
_ID_BITS = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that multiples of it differ for all numbers of 64 bits
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


class RequestAttributes(msgspec.Struct, frozen=True, gc=False, rename={
    "operation": "gen_ai.operation.name", "agent": "gen_ai.agent.name", "outcome": "agentdyno.outcome",
}):  # fmt: skip
    """Of the root span of a request."""

    operation: str
    agent: str
    outcome: str


class ToolAttributes(msgspec.Struct, frozen=True, gc=False, rename={
    "operation": "gen_ai.operation.name", "tool": "gen_ai.tool.name", "type": "gen_ai.tool.type",
}):  # fmt: skip
    """Of a tool call."""

    operation: str
    tool: str
    type: str


class ChatAttributes(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={
    "operation": "gen_ai.operation.name", "provider": "gen_ai.provider.name", "streamed": "gen_ai.request.stream",
    "prompt_bytes": "http.request.body.size", "model": "gen_ai.response.model",
    "prompt_tokens": "gen_ai.usage.input_tokens", "completion_tokens": "gen_ai.usage.output_tokens",
    "status": "http.response.status_code", "first_chunk_s": "gen_ai.response.time_to_first_chunk",
    "wants_tools": "agentdyno.wants_tools", "connections": "agentdyno.connections",
}):  # fmt: skip
    """Of an LLM call at the host's border; what is not known is left out."""

    operation: str
    provider: str
    streamed: bool
    prompt_bytes: int
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    status: int | None = None
    first_chunk_s: float | None = None
    wants_tools: bool | None = None
    connections: int | None = None


class ServedAttributes(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={
    "prompt_tokens": "gen_ai.usage.input_tokens", "completion_tokens": "gen_ai.usage.output_tokens",
    "queue_s": "gen_ai.latency.time_in_queue", "first_token_s": "gen_ai.latency.time_to_first_token",
}):  # fmt: skip
    """Of an LLM call as the backend served it, under vLLM's names for what OpenTelemetry names not."""

    prompt_tokens: int
    completion_tokens: int
    queue_s: float
    first_token_s: float | None = None


class Span(NamedTuple):
    """One span. Times: ns on the run's monotonic clock. error None: it went well. attributes: a struct of these
    here, or a dict.
    """

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
    attributes: Any


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


def decode(body: bytes) -> list[Record]:
    """The records of a frame. Raises msgspec.MsgspecError when it is not one of this version."""
    return _decode(body)


def expand(records: Iterable[Record], framework: str) -> Iterator[Span]:
    """The spans that records stand for; none for a hello or a goodbye."""
    for record in records:
        if isinstance(record, ServedCall):
            yield _served(record)
        elif isinstance(record, RequestEvents):
            yield from _request(record, framework)


def shifted(span: Span, by_ns: int) -> Span:
    """The span on a clock that is ahead by so much."""
    return span._replace(start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns)


def _request(record: RequestEvents, framework: str) -> list[Span]:
    trace, root, host = record.trace_id.hex(), _hex(record.span_id), Service.HOST
    inner: list[Span] = []
    for number, (start_ns, end_ns) in enumerate(record.plannings):
        span_id = _derived_id(record, 3 + number)
        times = (start_ns, end_ns)
        inner.append(Span(trace, span_id, root, host, SpanKind.PLANNING, "plan", Phase.PLAN, *times, None, {}))
    for call in record.llm_calls:
        name = f"chat {call.model}" if call.model else "chat"
        phase = phase_of_call(call.wants_tools)
        end_ns = call.end_ns or record.end_ns
        error = call.error if call.status == 200 or call.status is None else f"http_{call.status}"
        about = (call.start_ns, end_ns, error, _chat(call))
        inner.append(Span(trace, _hex(call.span_id), root, host, SpanKind.CHAT, name, phase, *about))
    for tool in record.tools:
        name = f"execute_tool {tool.name}"
        attributes = ToolAttributes("execute_tool", tool.name, "function")
        facts = (tool.start_ns, tool.end_ns, tool.error, attributes)
        inner.append(Span(trace, _hex(tool.span_id), root, host, SpanKind.TOOL, name, Phase.TOOL, *facts))
    parent = None if record.parent_span_id is None else _hex(record.parent_span_id)
    error = record.outcome if record.outcome in _FAULTY else None
    whole = (record.start_ns, record.end_ns, error, RequestAttributes("invoke_agent", framework, record.outcome))
    return [
        Span(trace, root, parent, host, SpanKind.REQUEST, f"invoke_agent {framework}", None, *whole),
        *inner,
        *_derived(record, trace, root, inner),
    ]


def _derived(record: RequestEvents, trace: str, root: str, inner: list[Span]) -> Iterator[Span]:
    """Before the first call, and after the last when that was the answer: as phases.tile has it."""
    if not inner:
        return
    first_ns = max(min(span.start_ns for span in inner), record.start_ns)
    last = max(inner, key=lambda span: span.end_ns)
    own = (root, Service.HOST, SpanKind.DERIVED)
    yield Span(trace, _derived_id(record, 1), *own, "parse", Phase.PARSE, record.start_ns, first_ns, None, {})
    if last.phase is Phase.REFLECT:
        times = (min(last.end_ns, record.end_ns), record.end_ns)
        yield Span(trace, _derived_id(record, 2), *own, "respond", Phase.RESPOND, *times, None, {})


def _chat(call: LlmCall) -> ChatAttributes:
    first_ns = call.first_byte_ns if call.streamed else None
    return ChatAttributes(
        "chat",
        "openai",
        call.streamed,
        call.prompt_bytes,
        call.model,
        call.prompt_tokens,
        call.completion_tokens,
        call.status,
        None if first_ns is None else (first_ns - call.start_ns) / NS_PER_S,
        call.wants_tools,
        call.connections,
    )


def _served(record: ServedCall) -> Span:
    first_ns = record.first_token_ns
    return Span(
        record.trace_id.hex(),
        _hex(record.span_id),
        _hex(record.parent_span_id),
        Service.BACKEND,
        SpanKind.SERVED,
        "llm_request",
        None,
        record.start_ns,
        record.end_ns,
        None if record.status == 200 else f"http_{record.status}",
        ServedAttributes(
            record.prompt_tokens,
            record.completion_tokens,
            record.queued_ns / NS_PER_S,
            None if first_ns is None else (first_ns - record.start_ns) / NS_PER_S,
        ),
    )


def _derived_id(record: RequestEvents, number: int) -> str:
    """An id for a span that nobody recorded, the same each time the record is read."""
    return _hex((record.span_id + number * _SPREAD) & _ID_BITS or number)


def _hex(span_id: int) -> str:
    return "%016x" % span_id  # noqa: UP031 - a third quicker than format here, and there are 25 to a request
