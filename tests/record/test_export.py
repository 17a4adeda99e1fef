"""The export: through OpenTelemetry's own exporter to a real receiver, and to one that refuses, stalls or is gone."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode

from agentdyno.contract.trace import RecorderLedger, Service
from agentdyno.record.export import Encoding, Exporter, error_type, export, exporter_from_environment, otlp_exporter
from agentdyno.record.ledger import read_ledger
from agentdyno.record.otlp import native_spans
from agentdyno.record.spans import OTLP_FILE, Span, expand, frames
from tests.record.recording import TRACE, UNIX_NS, S, frame, goodbye, hello, recording, request, run, served

RESOURCE = {"agentdyno.run.id": "r1", "agentdyno.framework": "fw", "agentdyno.framework.version": "1"}
RESOURCE |= {"agentdyno.scenario": "chain"}


def environment(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> None:
    for name, value in {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url, **more}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AGENTDYNO_RESOURCE", json.dumps(RESOURCE))


class Taken(SpanExporter):
    """Takes what it is given as it is told to."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.spans: list[ReadableSpan] = []
        self.result = result
        self.goes_on = threading.Event()
        self.goes_on.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.goes_on.wait()
        self.spans += spans
        return self.result

    def shutdown(self) -> None:
        self.goes_on.set()


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_spans_reach_another_receiver_as_they_are_kept_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()

    async def trial() -> None:
        async with recording(there) as receiver:
            environment(monkeypatch, receiver.url, OTEL_EXPORTER_OTLP_COMPRESSION=compression)
            exporter = await asyncio.to_thread(exporter_from_environment)
            async with recording(here, exporter) as live:
                await live.send(frame(hello()), frame(request(0), goodbye()))
                await live.send(frame(hello(Service.BACKEND)), frame(served(), goodbye(Service.BACKEND)))

    run(trial())
    kept = list(expand([request(0), served()], "fw"))
    ledger = read_ledger(here)
    assert (ledger.exported, ledger.export_dropped) == (len(kept), 0)
    arrived = [s for body in frames((there / OTLP_FILE).read_bytes()) for s in native_spans(body, UNIX_NS)]
    plain = {s.span_id: (s.trace_id, s.parent_span_id, s.name, s.start_ns, s.end_ns, s.error) for s in arrived}
    assert plain == {s.span_id: (s.trace_id, s.parent_span_id, s.name, s.start_ns, s.end_ns, s.error) for s in kept}
    for span in kept:
        (same,) = [s for s in arrived if s.span_id == span.span_id]
        own = msgspec.to_builtins(span.attributes) | ({"agentdyno.phase": span.phase.value} if span.phase else {})
        assert own.items() <= same.attributes.items()


def test_the_spans_of_others_are_passed_on(tmp_path: Path) -> None:
    from tests.record.test_recorder import post, whole_request

    to = Taken()

    async def trial() -> None:
        async with recording(tmp_path, Exporter(RESOURCE, to)) as live:
            assert (await post(live, whole_request(3)))[0] == 200

    run(trial())
    assert [span.name for span in to.spans] == ["native"] * 3


def readable(span: Span) -> ReadableSpan:
    return Encoding(RESOURCE).readable(span, UNIX_NS)


def test_kinds_status_times_and_resource() -> None:
    root, chat, *_ = map(readable, expand([request(outcome="timeout")], "fw"))
    tool = next(readable(s) for s in expand([request()], "fw") if s.name.startswith("execute_tool"))
    (backend,) = map(readable, expand([served()], "fw"))
    assert (root.kind, chat.kind, tool.kind) == (SpanKind.SERVER, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert backend.kind is SpanKind.SERVER
    assert (root.start_time, root.end_time) == (UNIX_NS, UNIX_NS + 100)
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "timeout")
    assert root.attributes["error.type"] == "timeout"
    assert chat.status.status_code is StatusCode.UNSET
    assert chat.attributes["agentdyno.phase"] == "plan"
    assert RESOURCE.items() <= root.resource.attributes.items()
    assert root.resource.attributes["service.name"] == "agentdyno-host"
    assert backend.resource.attributes["service.name"] == "agentdyno-backend"
    assert root.parent.span_id == 7
    assert chat.context.trace_id == int.from_bytes(TRACE, "big")


@pytest.mark.parametrize(
    ("error", "name"),
    [("http_503", "http_503"), ("unreadable answer: x", "_OTHER"), ("ConnectError", "ConnectError"),
     ("KeyError: 'gone'", "KeyError"), ("order_status takes a reference", "_OTHER"), ("", "_OTHER")],
)  # fmt: skip
def test_the_type_of_an_error_has_few_values(error: str, name: str) -> None:
    assert error_type(error) == name


def test_an_endpoint_that_refuses_costs_the_spans_and_they_are_counted() -> None:
    exporter = Exporter(RESOURCE, Taken(SpanExportResult.FAILURE))
    exporter.take(frame(hello())[4:])
    exporter.take(frame(request(), goodbye())[4:])
    exporter.close(5.0)
    assert (exporter.exported, exporter.dropped) == (0, 10)


def test_an_endpoint_that_stalls_holds_nothing_up_and_every_span_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentdyno.record.export._QUEUED_FRAMES", 5)
    to = Taken()
    to.goes_on.clear()
    exporter = Exporter(RESOURCE, to)
    for number in range(200):
        exporter.take(frame(request(number), goodbye())[4:])
    exporter.close(0.05)
    assert exporter.dropped >= 10 * (200 - 5) - 520  # but for the queue, and one batch in hand
    assert exporter.exported + exporter.dropped == 2000


def test_small_frames_are_gathered_into_one_request() -> None:
    calls: list[int] = []

    class Counting(Taken):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            calls.append(len(spans))
            return super().export(spans)

    exporter = Exporter(RESOURCE, Counting())
    for number in range(20):
        exporter.take(frame(request(number), goodbye())[4:])
    exporter.close(5.0)
    assert (exporter.exported, exporter.dropped) == (200, 0)
    assert len(calls) <= 2


class Deaf(Taken):
    """Never comes back, and does not hear that it is to end."""

    def shutdown(self) -> None:
        pass


def test_spans_in_the_hands_of_an_endpoint_that_never_answers_are_counted() -> None:
    to = Deaf()
    to.goes_on.clear()
    exporter = Exporter(RESOURCE, to)
    for number in range(3):
        exporter.take(frame(request(number), goodbye())[4:])
    exporter.close(0.05)
    assert (exporter.exported, exporter.dropped) == (0, 30)
    to.goes_on.set()


def test_an_endpoint_that_is_not_there_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def trial() -> None:
        environment(monkeypatch, "http://127.0.0.1:1/v1/traces", OTEL_EXPORTER_OTLP_TIMEOUT="1")
        async with recording(tmp_path, exporter_from_environment()) as live:
            assert await live.send(frame(hello()), frame(request(), goodbye())) == b"\x06" * 2

    run(trial())
    ledger = read_ledger(tmp_path)
    assert (ledger.exported, ledger.export_dropped, ledger.frames) == (0, 10, 2)


def test_a_frame_that_cannot_be_read_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    to = Taken()
    exporter = Exporter(RESOURCE, to)
    exporter.take(b"\xc1")
    exporter.take(frame(request(), goodbye())[4:])
    exporter.close(5.0)
    assert exporter.exported == len(to.spans) == 10
    assert "cannot be exported" in capsys.readouterr().err


def test_a_step_of_the_wall_clock_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    to = Taken()
    exporter = Exporter(RESOURCE, to)
    exporter.take(frame(hello())[4:])
    exporter.take(frame(hello(Service.BACKEND, unix_ns=UNIX_NS + 3600 * S))[4:])
    exporter.take(frame(served(), goodbye(Service.BACKEND))[4:])
    exporter.close(5.0)
    assert [span.start_time for span in to.spans] == [UNIX_NS + 11]


def test_batches_are_all_or_nothing() -> None:
    spans = [span for number in range(200) for span in expand([request(number)], "fw")]
    to = Taken()
    assert sum(export(to, Encoding(RESOURCE), spans, 0)) == len(to.spans) == 2000
    assert set(export(Taken(SpanExportResult.FAILURE), Encoding(RESOURCE), spans, 0)) == {0}


def test_without_an_endpoint_nothing_is_exported() -> None:
    assert exporter_from_environment({}) is None
    assert otlp_exporter({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) is None
    assert RecorderLedger().exported is None


def test_the_protocol_is_the_environments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    found = {}
    for protocol in ("", "grpc", "http/protobuf", "http/json"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        exporter = otlp_exporter()
        found[protocol] = type(exporter).__module__
        exporter.shutdown()
    assert "grpc" in found["grpc"]
    assert all(".http." in module for protocol, module in found.items() if protocol != "grpc")
    assert "'http/json' is not known here" in capsys.readouterr().err
