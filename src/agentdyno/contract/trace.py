"""Raw trace records: what a process saw of a request, as compact as it can be handed on.

The process that is measured only appends and encodes these (msgpack, arrays without field names); whoever receives
them makes spans, phases and OTLP of them. Times are nanoseconds on the sender's monotonic clock, so that a step of
the wall clock changes no duration; `Hello` ties the two clocks together once.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

# W3C Trace Context, version 00, with the sampled flag set: trace id and span id.
SAMPLED_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")
FRAME_HEAD_BYTES = 4  # each frame: its length as an unsigned big-endian integer, then that many bytes of msgpack
MAX_FRAME_BYTES = 16 << 20


class Service(StrEnum):
    """Which process of a run a span is of."""

    GENERATOR = "generator"
    HOST = "host"
    BACKEND = "backend"
    FRAMEWORK = "framework"


class LlmCall(msgspec.Struct, array_like=True):
    """One HTTP call to the LLM, at the host's border. None where it never came to that.

    wants_tools: the answer asked for tool calls (None when it could not be read).
    """

    span_id: int
    start_ns: int
    prompt_bytes: int = 0
    status: int | None = None
    first_byte_ns: int | None = None
    end_ns: int | None = None
    streamed: bool = False
    wants_tools: bool | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model: str | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """The backend answered 200 and the answer was read to its end."""
        return self.status == 200 and self.error is None and self.end_ns is not None


class ToolSpan(msgspec.Struct, array_like=True, frozen=True):
    """One tool call, at the host's tool border."""

    span_id: int
    name: str
    start_ns: int
    end_ns: int
    error: str | None


class RequestEvents(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """One request to the host. trace_id: 16 bytes. parent_span_id None: the host began the trace itself."""

    trace_id: bytes
    parent_span_id: int | None
    span_id: int
    start_ns: int
    end_ns: int
    outcome: str
    plannings: list[tuple[int, int]]
    llm_calls: list[LlmCall]
    tools: list[ToolSpan]


class ServedCall(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """One chat completion, as the backend served it, inside the trace of the call's traceparent."""

    trace_id: bytes
    parent_span_id: int
    span_id: int
    start_ns: int
    queued_ns: int
    first_token_ns: int | None
    end_ns: int
    status: int
    prompt_tokens: int
    completion_tokens: int


class Hello(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """A sender's first record: who it is, and one moment on both of its clocks."""

    service: Service
    monotonic_ns: int
    unix_ns: int


class Goodbye(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """A sender's running ledger, with every frame: records made so far, and those thrown away."""

    service: Service
    recorded: int
    dropped: int


Record = Hello | RequestEvents | ServedCall | Goodbye
