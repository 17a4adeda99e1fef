"""Check `encode`: three ways to get spans out of the measured process, by what one request costs it.

1. The OpenTelemetry SDK: a span object for each, its batch processor, its OTLP exporter.
2. Plain records, encoded as OTLP with opentelemetry-proto in the process, posted in batches.
3. Plain records as msgpack, handed to the recorder, which does the rest (what the host does).
All deliver to a real recorder; the CPU is this process's, all its threads.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context

from agentdyno.contract.phases import phase_of_call
from agentdyno.contract.trace import FRAME_HEAD_BYTES
from agentdyno.emit.clocks import both_clocks
from agentdyno.emit.sender import parse_address
from agentdyno.host.trace import RequestTrace
from agentdyno.record.folder import RunFolder
from agentdyno.rig.environments.building import say
from agentdyno.rig.processes import Children
from agentdyno.rig.servers import RecorderProcess, start_recorder
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.otlp_spans import request_body
from agentdyno.selfcheck.recorder import REQUESTS_A_POST
from agentdyno.selfcheck.result import figure
from agentdyno.selfcheck.sample_work import SPANS_RECORDED, finished_request
from agentdyno.selfcheck.slices import on_cores

BATCHES = 40
REPEATS = 7
_GRACE_S = 6.0
_REQUESTS_A_FRAME = 50  # 200 requests a second, sent every quarter of one

Way = Callable[[list[RequestTrace]], None]


def measure(setting: Setting) -> Findings:
    """Repeat the three ways in turn on the same requests."""
    folder = RunFolder.create(setting.folder, "encode")
    recorders = Children()
    try:
        recorder = start_recorder(folder, {}, setting.cores.host, recorders)
        with on_cores(setting.cores.rest):
            costs = _interleave(recorder, setting.count(BATCHES), setting.repeats(REPEATS))
    finally:
        recorders.stop(_GRACE_S)
    unit = "us CPU a request"
    return Findings(
        [figure(name, unit, values) for name, values in costs.items()],
        (
            f"A request of the control: {SPANS_RECORDED} spans. Not counted: noting the times and counts themselves, "
            "which all three need.",
        ),
    )


def _interleave(recorder: RecorderProcess, batches: int, repeats: int) -> dict[str, list[float]]:
    sdk, otlp, raw = _Sdk(recorder.otlp_url), _Otlp(recorder.otlp_url), _Raw(recorder.address)
    ways: dict[str, Way] = {
        "OpenTelemetry SDK and its exporter": sdk.send,
        "records, OTLP encoded in the process": otlp.send,
        "records, msgpack to the recorder": raw.send,
    }
    costs: dict[str, list[float]] = {name: [] for name in ways}
    requests = [finished_request(number) for number in range(batches * REQUESTS_A_POST)]
    for way in ways.values():
        way(requests[:REQUESTS_A_POST])
    for repeat in range(repeats):
        say(f"encode: repeat {repeat + 1}")
        for name, way in ways.items():
            before_ns = time.process_time_ns()
            way(requests)
            costs[name].append((time.process_time_ns() - before_ns) / len(requests) / 1000)
    for closing in (sdk.close, otlp.close, raw.close):
        closing()
    return costs


class _Sdk:
    """Way 1. The exporter runs on the batch processor's thread, in the same process."""

    def __init__(self, url: str) -> None:
        self._provider = TracerProvider()
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url), max_queue_size=1 << 20))
        self._tracer = self._provider.get_tracer("agentdyno.selfcheck")

    def send(self, requests: list[RequestTrace]) -> None:
        """Make the spans and wait until they are out."""
        for request in requests:
            _sdk_spans(self._tracer, request)
        if not self._provider.force_flush():
            raise CheckFailed("The OpenTelemetry SDK could not export its spans.")

    def close(self) -> None:
        """End its thread."""
        self._provider.shutdown()


def _sdk_spans(tracer: Tracer, request: RequestTrace) -> None:
    root = tracer.start_span("invoke_agent bare", kind=SpanKind.SERVER, start_time=request.start_ns)
    root.set_attribute("gen_ai.operation.name", "invoke_agent")
    root.set_attribute("agentdyno.outcome", "ok")
    within = set_span_in_context(root)
    for call in request.llm_calls:
        span = tracer.start_span(f"chat {call.model}", within, SpanKind.CLIENT, start_time=call.start_ns)
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.response.model": call.model or "",
                "gen_ai.usage.input_tokens": call.prompt_tokens or 0,
                "gen_ai.usage.output_tokens": call.completion_tokens or 0,
                "http.response.status_code": call.status or 0,
                "http.request.body.size": call.prompt_bytes,
                "agentdyno.first_byte_ns": (call.first_byte_ns or call.start_ns) - call.start_ns,
                "agentdyno.phase": phase_of_call(call.wants_tools).value,
            }
        )
        span.end(call.end_ns)
    for run in request.tools:
        span = tracer.start_span(f"execute_tool {run.name}", within, start_time=run.start_ns)
        span.set_attributes(
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": run.name, "agentdyno.phase": "tool"}
        )
        span.end(run.end_ns)
    root.end(request.end_ns)


class _Otlp:
    """Way 2. One keep-alive connection, a POST for each 512 spans."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self._connection = http.client.HTTPConnection(parts.netloc)
        monotonic_ns, unix_ns = both_clocks()
        self._offset_ns = unix_ns - monotonic_ns

    def send(self, requests: list[RequestTrace]) -> None:
        """Encode and post."""
        for at in range(0, len(requests), REQUESTS_A_POST):
            body = request_body(requests[at : at + REQUESTS_A_POST], self._offset_ns)
            self._connection.request("POST", self._path, body, {"Content-Type": "application/x-protobuf"})
            response = self._connection.getresponse()
            response.read()
            if response.status != 200:
                raise CheckFailed(f"The recorder answered {response.status} to OTLP.")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Raw:
    """Way 3, as emit/sender.py does it, without its event loop."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_connection(parse_address(address))
        self._encode = msgspec.msgpack.Encoder().encode

    def send(self, requests: list[RequestTrace]) -> None:
        """Encode and write."""
        for at in range(0, len(requests), _REQUESTS_A_FRAME):
            body = self._encode([request.events("ok") for request in requests[at : at + _REQUESTS_A_FRAME]])
            self._socket.sendall(len(body).to_bytes(FRAME_HEAD_BYTES, "big") + body)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


CHECK = Check("encode", "three ways to get spans out of the measured process", measure)
