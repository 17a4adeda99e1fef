"""Raw trace records: what a process saw of a request, as compact as it can be handed on.

The process that is measured only appends and encodes these (msgpack, arrays without field names); whoever receives
them makes spans, phases and OTLP of them. Times are nanoseconds on the sender's monotonic clock, so that a step of
the wall clock changes no duration; `Hello` ties the two clocks together once.

On the wire: frames, each a length and that many bytes of msgpack (a list of records). Whoever receives them answers
each frame that it has kept with one byte, `ACKNOWLEDGED`, so that the sender knows what has arrived.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

# W3C Trace Context, version 00, with the sampled flag set: trace id and span id.
SAMPLED_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")
FRAME_HEAD_BYTES = 4  # each frame: its length as an unsigned big-endian integer, then that many bytes of msgpack
MAX_FRAME_BYTES = 16 << 20
ACKNOWLEDGED = b"\x06"


class Service(StrEnum):
    """Which process of a run a span is of."""

    GENERATOR = "generator"
    HOST = "host"
    BACKEND = "backend"
    FRAMEWORK = "framework"


class LlmCall(msgspec.Struct, array_like=True):
    """One HTTP call to the LLM, at the host's border. None where it never came to that.

    wants_tools: the answer asked for tool calls (None when it could not be read). connections: how many were
    opened for it, 0 when one was there to be reused, None when the border cannot see it.
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
    connections: int | None = None

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
    """One chat completion, as the backend served it, inside the trace of the call's traceparent.

    queued_ns: how long it waited for a seat. status: 200, or 499 when the client went before the end.
    """

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
    """A sender's first record on each connection: who it is, and one moment on both of its clocks.

    machine: senders of the same one share the monotonic clock.
    """

    service: Service
    monotonic_ns: int
    unix_ns: int
    machine: str = ""


class Goodbye(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """A sender's running ledger, the last record of every frame: records made so far, and those thrown away."""

    service: Service
    recorded: int
    dropped: int


Record = Hello | RequestEvents | ServedCall | Goodbye


class RecorderLedger(msgspec.Struct, kw_only=True):
    """What the recorder took and what it could not use.

    frames, raw_bytes: kept of raw records. unwritten: frames that the disk had no room for. broken_connections: of
    senders that stopped in the middle of a frame, or sent no frames at all. otlp_*: requests, spans kept, requests
    that were refused as malformed, too large or of another type, and spans in good requests that no trace can hold
    (an id of zeros). exported, export_dropped: spans that the OTLP endpoint of the environment took, or did not.
    """

    frames: int = 0
    raw_bytes: int = 0
    unwritten: int = 0
    broken_connections: int = 0
    otlp_requests: int = 0
    otlp_spans: int = 0
    otlp_refused: int = 0
    otlp_rejected_spans: int = 0
    exported: int | None = None
    export_dropped: int | None = None
