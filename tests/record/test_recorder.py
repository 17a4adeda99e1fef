"""The recorder: frames cut anywhere, senders interleaved, OTLP as it should be and as it should not."""

import asyncio
import errno
import gzip
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zlib
from itertools import pairwise
from pathlib import Path

import aiohttp
import msgspec
import pytest
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from agentdyno.contract.trace import ACKNOWLEDGED, MAX_FRAME_BYTES, RecorderLedger
from agentdyno.emit.sender import parse_address
from agentdyno.record import otlp, recorder
from agentdyno.record.ledger import read_ledger, write_ledger
from agentdyno.record.otlp import MAX_OTLP_BYTES, native_spans
from agentdyno.record.spans import OTLP_FILE, RAW_FILE, decode, frames
from tests.record.recording import Recording, frame, goodbye, hello, recording, request, run, served

PROTOBUF = {"content-type": "application/x-protobuf"}


def kept(folder: Path) -> list[bytes]:
    return list(frames((folder / RAW_FILE).read_bytes()))


def whole_request(spans: int = 1, name: str = "native", trace_id: bytes = b"t" * 16) -> bytes:
    made = ExportTraceServiceRequest()
    scope = made.resource_spans.add().scope_spans.add()
    for number in range(spans):
        scope.spans.add(name=name, trace_id=trace_id, span_id=(number + 1).to_bytes(8, "big"))
    return made.SerializeToString()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 3000), max_size=6))
def test_frames_cut_at_any_byte_are_kept_whole(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("raw")
    sent = frame(hello()) + frame(request(0), request(1), goodbye()) + frame(goodbye(recorded=2))
    places = sorted({0, len(sent), *(cut % len(sent) for cut in cuts)})

    async def trial() -> None:
        async with recording(folder) as live:
            pieces = [sent[a:b] for a, b in pairwise(places)]
            assert await live.send(*pieces) == ACKNOWLEDGED * 3

    run(trial())
    assert (folder / RAW_FILE).read_bytes() == sent
    assert read_ledger(folder).frames == 3
    assert read_ledger(folder).broken_connections == 0


def test_a_sender_that_dies_within_a_frame_leaves_nothing_of_it(tmp_path: Path) -> None:
    first, second = frame(hello()), frame(request(), goodbye())

    async def trial() -> None:
        async with recording(tmp_path) as live:
            for cut in range(1, len(second)):
                assert await live.send(first, second[:cut]) == ACKNOWLEDGED

    run(trial())
    assert kept(tmp_path) == [first[4:]] * (len(second) - 1)
    assert read_ledger(tmp_path).broken_connections == len(second) - 1


def test_senders_that_talk_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    async def sender(live: Recording, start: int) -> None:
        reader, writer = await asyncio.open_connection(*live.raw)
        for number in range(start, start + 50):
            sent = frame(request(number), goodbye())
            for at in range(0, len(sent), 100):
                writer.write(sent[at : at + 100])
                await writer.drain()
                await asyncio.sleep(0)
        writer.write_eof()
        await reader.read()
        writer.close()

    async def trial() -> None:
        async with recording(tmp_path) as live:
            await asyncio.gather(*(sender(live, start) for start in range(0, 400, 50)))

    run(trial())
    found = [decode(body)[0].span_id for body in kept(tmp_path)]
    assert sorted(found) == [5000 + number for number in range(400)]
    # Each sender's own are in order.
    assert [n for n in found if n < 5050] == list(range(5000, 5050))


def test_a_frame_of_an_absurd_length_ends_the_connection_and_nothing_else(tmp_path: Path) -> None:
    async def trial() -> None:
        async with recording(tmp_path) as live:
            absurd = (MAX_FRAME_BYTES + 1).to_bytes(4, "big")
            assert await live.send(frame(hello()), absurd, b"x" * 100) in (ACKNOWLEDGED, b"")
            assert await live.send(b"GET / HTTP/1.1\r\n\r\n") == b""
            assert await live.send(frame(hello())) == ACKNOWLEDGED

    run(trial())
    assert len(kept(tmp_path)) == 2
    assert read_ledger(tmp_path).broken_connections == 2


def test_a_full_disk_leaves_whole_frames_and_no_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    room = [len(frame(hello())) + 30]
    write = os.write

    def write_within(descriptor: int, data: memoryview) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    async def trial() -> None:
        async with recording(tmp_path) as live:
            monkeypatch.setattr(recorder.os, "write", write_within)
            assert await live.send(frame(hello())) == ACKNOWLEDGED
            assert await live.send(frame(request(), goodbye())) == b""
            assert (await post(live, whole_request()))[0] == 503
            monkeypatch.setattr(recorder.os, "write", write)
            assert await live.send(frame(request(), goodbye())) == ACKNOWLEDGED

    run(trial())
    assert [type(decode(body)[0]).__name__ for body in kept(tmp_path)] == ["Hello", "RequestEvents"]
    assert read_ledger(tmp_path).unwritten == 1
    assert "No space left" in capsys.readouterr().err


# OTLP


async def post(live: Recording, body: bytes, **headers: str) -> tuple[int, bytes]:
    headers = {**PROTOBUF, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.post(live.url, data=body, headers=headers) as response,
    ):
        return response.status, await response.read()


def test_otlp_plain_and_packed_is_kept_as_it_was(tmp_path: Path) -> None:
    async def trial() -> None:
        async with recording(tmp_path) as live:
            for body, headers in (
                (whole_request(3), {}),
                (gzip.compress(whole_request(4)), {"content_encoding": "gzip"}),
                (zlib.compress(whole_request(5)), {"content_encoding": "deflate"}),
                (b"", {}),
            ):
                status, answer = await post(live, body, **headers)
                assert status == 200
                assert not ExportTraceServiceResponse.FromString(answer).HasField("partial_success")

    run(trial())
    bodies = list(frames((tmp_path / OTLP_FILE).read_bytes()))
    assert bodies == [whole_request(3), whole_request(4), whole_request(5), b""]
    ledger = read_ledger(tmp_path)
    assert (ledger.otlp_requests, ledger.otlp_spans, ledger.otlp_refused) == (4, 12, 0)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff\xff", {}, 400),
        (whole_request()[:-3], {}, 400),
        (b"not gzip at all", {"content_encoding": "gzip"}, 400),
        (gzip.compress(whole_request(50))[:-20], {"content_encoding": "gzip"}, 400),
        (b"{}", {"content_type": "application/json"}, 415),
        (whole_request(1, "x" * (MAX_OTLP_BYTES + 1)), {}, 413),
        (gzip.compress(whole_request(1, "x" * (20 * MAX_OTLP_BYTES))), {"content_encoding": "gzip"}, 413),
    ],
    ids=["garbage", "cut", "no gzip", "cut gzip", "json", "too large", "bomb"],
)
def test_otlp_that_is_not_as_it_should_be_is_refused_and_counted(
    tmp_path: Path, body: bytes, headers: dict[str, str], status: int
) -> None:
    async def trial() -> None:
        async with recording(tmp_path) as live:
            got, answer = await post(live, body, **headers)
            assert got == status
            assert Status.FromString(answer).message  # OTLP: an error is a google.rpc.Status
            assert (await post(live, whole_request()))[0] == 200  # it goes on

    run(trial())
    ledger = read_ledger(tmp_path)
    assert (ledger.otlp_refused, ledger.otlp_spans) == (1, 1)
    assert len(list(frames((tmp_path / OTLP_FILE).read_bytes()))) == 1


@pytest.mark.parametrize("trace_id", [b"", b"short", bytes(16), b"t" * 17])
def test_spans_that_no_trace_can_hold_are_rejected_one_by_one(tmp_path: Path, trace_id: bytes) -> None:
    body = whole_request(2) + whole_request(3, trace_id=trace_id)  # protobuf: concatenation merges

    async def trial() -> None:
        async with recording(tmp_path) as live:
            status, answer = await post(live, body)
            assert status == 200
            assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 3

    run(trial())
    ledger = read_ledger(tmp_path)
    assert (ledger.otlp_spans, ledger.otlp_rejected_spans) == (2, 3)
    assert len(list(native_spans(body, 0))) == 2


def test_many_large_bodies_at_once_are_taken_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = whole_request(1, "x" * (1 << 20))
    now = most = 0
    read = aiohttp.web.Request.read

    async def counted(self: aiohttp.web.Request) -> bytes:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await read(self)
        finally:
            now -= 1

    monkeypatch.setattr(aiohttp.web.Request, "read", counted)

    async def trial() -> None:
        async with recording(tmp_path) as live:
            answers = await asyncio.gather(*(post(live, body) for _ in range(20)))
            assert [status for status, _ in answers] == [200] * 20

    run(trial())
    assert 1 <= most <= otlp._AT_ONCE


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_BODY_S", 0.05)

    async def trial() -> None:
        async with recording(tmp_path) as live:
            host, port = live.url.removeprefix("http://").split("/")[0].split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                b"POST /v1/traces HTTP/1.1\r\nhost: t\r\ncontent-type: application/x-protobuf\r\n"
                b"content-length: 100\r\n\r\nabc"
            )
            assert b" 408 " in await reader.readline()
            writer.close()

    run(trial())


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_the_spans_of_opentelemetrys_own_exporter_arrive_whole(tmp_path: Path, compression: Compression) -> None:
    def work(url: str) -> None:
        provider = TracerProvider(resource=Resource({"service.name": "some-framework"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, compression=compression)))
        tracer = provider.get_tracer("its.scope")
        outer = tracer.start_as_current_span("outer", attributes={"text": "é", "n": 3, "list": ["a", "b"], "ok": True})
        with outer, pytest.raises(KeyError), tracer.start_as_current_span("inner"):
            raise KeyError("gone")
        provider.shutdown()

    async def trial() -> None:
        async with recording(tmp_path) as live:
            await asyncio.to_thread(work, live.url)

    run(trial())
    (body,) = frames((tmp_path / OTLP_FILE).read_bytes())
    inner, outer = native_spans(body, 0)
    assert (inner.name, outer.name) == ("inner", "outer")
    assert (inner.parent_span_id, inner.trace_id, outer.parent_span_id) == (outer.span_id, outer.trace_id, None)
    assert outer.attributes == {"otel.scope.name": "its.scope", "text": "é", "n": 3, "list": ["a", "b"], "ok": True}
    assert (inner.service, inner.kind, outer.error) == ("framework", "native", None)
    assert "KeyError" in inner.error
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


# the process


def test_the_process_ends_on_sigterm_with_everything_on_disk(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as raw, socket.create_server(("127.0.0.1", 0)) as over_http:
        command = [sys.executable, "-m", "agentdyno.record.recorder", "--folder", str(tmp_path)]
        command += ["--raw-fd", str(raw.fileno()), "--otlp-fd", str(over_http.fileno())]
        process = subprocess.Popen(command, pass_fds=(raw.fileno(), over_http.fileno()))
        try:
            url = f"http://127.0.0.1:{over_http.getsockname()[1]}/healthz"
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.status == 200
            with socket.create_connection(raw.getsockname()) as sender:
                sender.sendall(frame(hello()) + frame(served(), goodbye()))
                assert sender.recv(1) == ACKNOWLEDGED
                while len(kept(tmp_path)) < 2:
                    time.sleep(0.01)
                process.send_signal(signal.SIGTERM)  # with the sender still there
                assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    assert read_ledger(tmp_path).frames == 2


def test_the_process_can_listen_where_it_is_told_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as raw, socket.create_server(("127.0.0.1", 0)) as over_http:
        addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in (raw, over_http)]
    command = [sys.executable, "-m", "agentdyno.record.recorder", "--folder", str(tmp_path)]
    process = subprocess.Popen([*command, "--raw", addresses[0], "--otlp", addresses[1]])
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                sender = socket.create_connection(raw_address := parse_address(addresses[0]))
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, f"nothing listens on {raw_address}"
                time.sleep(0.05)
        with sender:
            sender.sendall(frame(hello()))
            assert sender.recv(1) == ACKNOWLEDGED
        with urllib.request.urlopen(f"http://{addresses[1]}/healthz", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert read_ledger(tmp_path).frames == 1


@pytest.mark.parametrize("more", [[], ["--raw", "127.0.0.1:0"], ["--raw-fd", "9", "--raw", "x:1", "--otlp", "x:2"]])
def test_where_to_listen_is_said_once_for_each(tmp_path: Path, more: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        recorder.main(["--folder", str(tmp_path), *more])


def test_a_ledger_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(file: Path, content: bytes) -> int:
        file.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space"):
        write_ledger(tmp_path, RecorderLedger())
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_was_never_written_is_none(tmp_path: Path) -> None:
    assert read_ledger(tmp_path) is None
    (tmp_path / "recorder.json").write_text('{"frames": "many"}')
    assert read_ledger(tmp_path) is None


def test_the_ledger_is_told_while_the_recorder_goes_on(tmp_path: Path) -> None:
    async def scene() -> None:
        async with recording(tmp_path) as live:
            ledger = f"{live.url.removesuffix('/v1/traces')}/ledger"
            async with aiohttp.ClientSession() as session:
                for frames_by_now in (0, 1, 2):
                    async with session.get(ledger) as answer:
                        told = msgspec.json.decode(await answer.read(), type=RecorderLedger)
                    assert (told.frames, told.exported) == (frames_by_now, None)
                    await live.send(frame(request(frames_by_now), goodbye()))
            assert read_ledger(tmp_path) is None  # written at the end alone

    run(scene())
