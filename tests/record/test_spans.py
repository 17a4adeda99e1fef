"""Spans from records: names, parents, status, clocks; what the table of a run holds, and what it leaves out."""

from pathlib import Path

import msgspec
import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as gen_ai
import opentelemetry.semconv._incubating.attributes.http_attributes as http
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentdyno.contract.phases import Phase, Stretch, tile
from agentdyno.contract.run import Outcome, RequestRecord
from agentdyno.contract.trace import LlmCall, RequestEvents, Service, ToolSpan
from agentdyno.record.folder import RunFolder
from agentdyno.record.span_table import SPAN_COLUMNS, SPAN_SCHEMA, SpanReader, spans_of
from agentdyno.record.spans import OTLP_FILE, RAW_FILE, Span, SpanKind, expand, frames
from tests.record.recording import TRACE, UNIX_NS, S, frame, goodbye, hello, request, served


def spans_by_name(record: RequestEvents) -> dict[str, Span]:
    found = list(expand([record], "fw"))
    assert len({span.span_id for span in found}) == len(found)
    return {span.name: span for span in found}


def attributes(span: Span) -> dict[str, object]:
    return msgspec.to_builtins(span.attributes)


def test_a_chain_has_its_shape() -> None:
    found = list(expand([request()], "fw"))
    root, *children = found
    assert (root.name, root.kind, root.parent_span_id) == ("invoke_agent fw", SpanKind.REQUEST, f"{7:016x}")
    assert {child.parent_span_id for child in children} == {root.span_id}
    assert {child.trace_id for child in found} == {TRACE.hex()}
    assert [(c.name, c.phase) for c in children] == [
        *[("chat m", Phase.PLAN)] * 3,
        ("chat m", Phase.REFLECT),
        *[(f"execute_tool {tool}", Phase.TOOL) for tool in ("order_status", "refund_policy", "resolution")],
        ("parse", Phase.PARSE),
        ("respond", Phase.RESPOND),
    ]
    assert all(span.error is None for span in found)


def test_the_derived_spans_are_those_of_the_tiling() -> None:
    record = request()
    found = spans_by_name(record)
    inner = [s for s in expand([record], "fw") if s.phase in (Phase.PLAN, Phase.TOOL, Phase.REFLECT)]
    took = tile(record.start_ns, record.end_ns, [Stretch(s.phase, s.start_ns, s.end_ns) for s in inner])
    for phase in (Phase.PARSE, Phase.RESPOND):
        assert took[phase] == found[phase.value].end_ns - found[phase.value].start_ns > 0


def test_a_request_that_ends_with_a_tool_has_no_respond_span() -> None:
    record = request(llm_calls=request().llm_calls[:3])
    assert "respond" not in spans_by_name(record)
    (root,) = expand([request(llm_calls=[], tools=[])], "fw")
    assert root.name == "invoke_agent fw"


@pytest.mark.parametrize("outcome", ["error", "timeout", "client_gone", "bad_request"])
def test_a_request_that_went_wrong_says_so_and_its_open_calls_are_closed(outcome: str) -> None:
    record = request(outcome=outcome, llm_calls=[LlmCall(1, 10, error="abandoned")], tools=[])
    root, chat, *_ = expand([record], "fw")
    assert root.error == outcome
    assert (chat.error, chat.end_ns, chat.phase) == ("abandoned", record.end_ns, Phase.REFLECT)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (LlmCall(1, 10, 5, 503, 12, 15), "http_503"),
        (LlmCall(1, 10, 5, None, None, 15, error="ConnectError"), "ConnectError"),
        (LlmCall(1, 10, 5, 200, 12, 15, error="unreadable answer: x"), "unreadable answer: x"),
        (LlmCall(1, 10, 5, 200, 12, 15, wants_tools=False), None),
    ],
)
def test_the_status_of_a_call(call: LlmCall, error: str | None) -> None:
    chat = spans_by_name(request(llm_calls=[call], tools=[]))["chat"]
    assert chat.error == error


def test_planning_without_an_llm_is_plan_time() -> None:
    found = spans_by_name(request(plannings=[(2, 5), (6, 8)], llm_calls=[], tools=[]))
    assert (found["plan"].kind, found["plan"].phase) == (SpanKind.PLANNING, Phase.PLAN)
    assert found["parse"].end_ns == 2


def test_a_thousand_plannings_have_their_own_ids() -> None:
    found = list(expand([request(plannings=[(n, n + 1) for n in range(1000)], span_id=2**64 - 1)], "fw"))
    assert len({span.span_id for span in found}) == len(found) == 1 + 1000 + 7 + 1
    assert {len(span.span_id) for span in found} == {16}


def test_a_streamed_call_keeps_its_time_to_first_token_and_a_whole_one_has_none() -> None:
    streamed = LlmCall(1, 10 * S, 5, 200, 11 * S, 15 * S, True, False, 50, 9, "m", None, 1)
    found = attributes(spans_by_name(request(llm_calls=[streamed], tools=[], end_ns=20 * S))["chat m"])
    assert found["gen_ai.response.time_to_first_chunk"] == 1.0
    assert (found["gen_ai.request.stream"], found["agentdyno.connections"]) == (True, 1)
    whole = attributes(spans_by_name(request())["chat m"])
    assert "gen_ai.response.time_to_first_chunk" not in whole


def test_names_of_attributes_are_opentelemetrys_or_our_own() -> None:
    ours = {"agentdyno.outcome", "agentdyno.wants_tools", "agentdyno.connections"}
    # vLLM's, for which OpenTelemetry has none.
    vllm = {"gen_ai.latency.time_in_queue", "gen_ai.latency.time_to_first_token"}
    known = {value for module in (gen_ai, http) for value in vars(module).values() if isinstance(value, str)}
    streamed = LlmCall(1, 10, 5, 200, 11, 15, True, False, 50, 9, "m", None, 1)
    found = list(expand([request(llm_calls=[streamed]), served()], "fw"))
    used = {name for span in found for name in attributes(span)}
    assert used - known == ours | vllm
    assert {"invoke_agent", "chat", "execute_tool"} <= {value.value for value in gen_ai.GenAiOperationNameValues}


def test_a_served_call_hangs_on_the_call_that_it_serves() -> None:
    (span,) = expand([served(parent=100)], "fw")
    assert (span.parent_span_id, span.service, span.kind) == (f"{100:016x}", Service.BACKEND, SpanKind.SERVED)
    gone = msgspec.structs.replace(served(), status=499, first_token_ns=None)
    (span,) = expand([gone], "fw")
    assert span.error == "http_499"
    assert "gen_ai.latency.time_to_first_token" not in attributes(span)


# the table of a run


def read(folder: Path, *pieces: bytes, requests: pa.Table | None = None) -> tuple[list[Span], SpanReader]:
    (folder / RAW_FILE).write_bytes(b"".join(pieces))
    reader = SpanReader(folder, "fw")
    tables = list(reader.tables(requests, None if requests is None else 5 * S))
    return [span for table in tables for span in spans_of(table)], reader


def test_the_table_says_what_the_spans_say(tmp_path: Path) -> None:
    records = [request(n) for n in range(30)]
    found, reader = read(tmp_path, frame(hello()), *(frame(r, goodbye(recorded=n)) for n, r in enumerate(records)))
    expected = [span._replace(attributes=attributes(span)) for span in expand(records, "fw")]
    assert found == expected
    assert (reader.senders.dropped, reader.senders.unix_offset_ns) == (0, UNIX_NS)


def test_a_parquet_file_of_many_chunks_holds_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentdyno.record.span_table._CHUNK_ROWS", 7)
    folder = RunFolder.create(tmp_path, "fw")
    (folder.raw / RAW_FILE).write_bytes(frame(hello()) + frame(*(request(n) for n in range(30)), goodbye()))
    folder.write_spans(SpanReader(folder.raw, "fw").tables(folder.requests(), None), SPAN_SCHEMA)
    table = pa.parquet.read_table(folder.path / "spans.parquet")
    assert table.num_rows == 30 * 10
    assert tuple(table.column_names) == SPAN_COLUMNS


def test_a_frame_that_came_twice_is_read_once(tmp_path: Path) -> None:
    once = frame(request(), goodbye(recorded=1))
    found, reader = read(tmp_path, frame(hello()), once, frame(hello()), once, frame(request(1), goodbye(recorded=2)))
    assert len([span for span in found if span.kind is SpanKind.REQUEST]) == 2
    assert reader.senders.repeated >= 1


def test_interleaved_senders_keep_their_own_ledgers(tmp_path: Path) -> None:
    backend = (Service.BACKEND, 10, 4)
    found, reader = read(
        tmp_path,
        *(frame(hello()), frame(hello(Service.BACKEND))),
        *(frame(request(0), goodbye(recorded=1)), frame(served(), goodbye(*backend))),
        *(frame(request(1), goodbye(recorded=5, dropped=2)), frame(served(1), goodbye(Service.BACKEND, 11, 5))),
    )
    assert len([span for span in found if span.service is Service.BACKEND]) == 2
    assert reader.senders.dropped == 7


@given(st.integers(0, 400))
def test_a_file_that_was_cut_off_gives_the_frames_before(cut: int) -> None:
    parts = [frame(hello()), frame(request(), goodbye()), frame(goodbye(recorded=2))]
    content = b"".join(parts)[:cut]
    whole = [part[4:] for n, part in enumerate(parts) if sum(map(len, parts[: n + 1])) <= cut]
    assert list(frames(content)) == whole


def test_a_frame_of_another_version_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    strange = msgspec.msgpack.encode([{"tag": 99}])
    found, reader = read(
        tmp_path, frame(hello()), len(strange).to_bytes(4, "big") + strange, frame(request(), goodbye())
    )
    assert reader.senders.unreadable == 1
    assert len(found) == 10


def test_no_file_at_all_is_no_spans(tmp_path: Path) -> None:
    reader = SpanReader(tmp_path, "fw")
    assert list(reader.tables(None, None)) == []
    assert reader.senders.unix_offset_ns is None


@pytest.mark.parametrize("step_ns", [-3600 * S, 3600 * S])
def test_a_step_of_the_wall_clock_changes_no_time(tmp_path: Path, step_ns: int) -> None:
    steady = [frame(hello()), frame(request(), goodbye()), frame(hello(Service.BACKEND)), frame(served(), goodbye())]
    stepped = list(steady)
    stepped[2] = frame(hello(Service.BACKEND, unix_ns=UNIX_NS + step_ns))
    # and the host's own connection is made anew after the step
    stepped.append(frame(hello(unix_ns=UNIX_NS + step_ns)))
    before, _ = read(tmp_path, *steady)
    after, reader = read(tmp_path, *stepped)
    assert after == before
    assert reader.senders.unix_offset_ns == UNIX_NS


@pytest.mark.parametrize("ahead_ns", [0, 3600 * S, -3600 * S])
def test_a_backend_on_another_machine_is_brought_to_the_hosts_clock_by_its_calls(tmp_path: Path, ahead_ns: int) -> None:
    call = served()  # from 1 ns after its call began to 1 ns before it ended
    there = {name: getattr(call, name) + ahead_ns for name in ("start_ns", "first_token_ns", "end_ns")}
    found, _ = read(
        tmp_path,
        # What its wall clock says is an hour off, and counts for nothing.
        frame(hello(Service.BACKEND, unix_ns=UNIX_NS + 7200 * S, machine="other")),
        frame(msgspec.structs.replace(call, **there), goodbye(Service.BACKEND)),
        *(frame(hello()), frame(request(), goodbye())),
    )
    (backend,) = [span for span in found if span.service is Service.BACKEND]
    assert (backend.start_ns, backend.end_ns) == (11, 19)
    root = next(span for span in found if span.kind is SpanKind.REQUEST)
    assert root.start_ns == 0


def test_a_backend_none_of_whose_calls_is_known_is_brought_there_by_the_wall_clock(tmp_path: Path) -> None:
    found, _ = read(
        tmp_path,
        frame(hello(Service.BACKEND, unix_ns=UNIX_NS + 3600 * S, machine="other")),
        frame(served(parent=999), goodbye(Service.BACKEND)),
        *(frame(hello()), frame(request(), goodbye())),
    )
    (backend,) = [span for span in found if span.service is Service.BACKEND]
    assert (backend.start_ns, backend.end_ns) == (11 + 3600 * S, 19 + 3600 * S)


def record(index: int, **fields: object) -> RequestRecord:
    given = {"trace_id": f"{index + 1:032x}", "span_id": f"{index + 1:016x}", "traced": True, **fields}
    times = (index * S, index * S + 10, index * S + 500)
    return RequestRecord(index, "measure", index, 0, *times, **{"outcome": Outcome.OK, **given})


def test_the_generators_spans_are_of_the_arrivals_that_were_traced_and_sent(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "fw")
    records = [
        record(0),
        record(1, traced=False),
        msgspec.structs.replace(record(2, outcome=Outcome.DROPPED, reason="in_flight_cap"), sent_ns=None, done_ns=None),
        record(3, outcome=Outcome.TIMEOUT, reason="client_timeout"),
    ]
    (folder.raw / "requests-0.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
    found, _ = read(tmp_path, requests=folder.requests())
    assert [(s.span_id, s.start_ns, s.end_ns, s.error, s.attributes) for s in found] == [
        (f"{1:016x}", 5 * S + 10, 5 * S + 500, None, {"agentdyno.outcome": "ok"}),
        (f"{4:016x}", 8 * S + 10, 8 * S + 500, "client_timeout", {"agentdyno.outcome": "timeout"}),
    ]
    assert {(s.service, s.kind, s.parent_span_id) for s in found} == {(Service.GENERATOR, SpanKind.CLIENT, None)}


TOKENS = {"gen_ai.usage.prompt_tokens": 300, "gen_ai.usage.completion_tokens": 20}  # as vLLM 0.32.0 says it


def sent_over_otlp(folder: Path, *scopes: str, start_ns: int) -> None:
    """A span of each instrumentation scope, of 10 ns, in the file that the recorder keeps of them."""
    sent = ExportTraceServiceRequest()
    for scope in scopes:
        spans = sent.resource_spans.add().scope_spans.add()
        spans.scope.name = scope
        start = UNIX_NS + start_ns
        times = {"start_time_unix_nano": start, "end_time_unix_nano": start + 10}
        span = spans.spans.add(name="step", trace_id=TRACE, span_id=b"12345678", **times)
        for name, count in TOKENS.items():
            span.attributes.add(key=name).value.int_value = count
    body = sent.SerializeToString()
    (folder / OTLP_FILE).write_bytes(len(body).to_bytes(4, "big") + body)


def test_native_spans_are_brought_to_the_runs_clock(tmp_path: Path) -> None:
    sent_over_otlp(tmp_path, "openinference", "vllm.llm_engine", start_ns=30)
    found, _ = read(tmp_path, frame(hello()))
    assert [(s.start_ns, s.end_ns, s.service, s.kind) for s in found] == [
        (30, 40, Service.FRAMEWORK, SpanKind.NATIVE),
        (30, 40, Service.BACKEND, SpanKind.SERVED),
    ]


def test_vllms_counts_have_the_names_that_the_mocks_have_and_a_frameworks_are_left(tmp_path: Path) -> None:
    sent_over_otlp(tmp_path, "openinference", "vllm.llm_engine", start_ns=30)
    found, _ = read(tmp_path, frame(hello()), frame(served(), goodbye(Service.BACKEND)))
    of_framework, of_vllm, of_mock = (
        next(attributes(span) for span in found if span.service is service and span.name == name)
        for service, name in (
            (Service.FRAMEWORK, "step"),
            (Service.BACKEND, "step"),
            (Service.BACKEND, "llm_request"),
        )
    )
    assert {name: count for name, count in of_framework.items() if "usage" in name} == TOKENS
    counts = {name: count for name, count in of_vllm.items() if "usage" in name}
    assert list(counts.values()) == list(TOKENS.values())
    assert counts.keys() == {name for name in of_mock if "usage" in name}


@pytest.mark.parametrize(("start_ns", "of_this_run"), [(-2 * S, False), (-S // 2, True)])
def test_what_a_server_still_had_of_an_earlier_run_is_left_out(
    tmp_path: Path, start_ns: int, of_this_run: bool
) -> None:
    """Half a second before the first request is between two clocks; two seconds are between two runs."""
    sent_over_otlp(tmp_path, "vllm.llm_engine", start_ns=start_ns)
    found, _ = read(tmp_path, frame(hello()), frame(request(), goodbye()))
    assert (SpanKind.SERVED in {span.kind for span in found}) == of_this_run


def test_tools_at_once_are_three_spans_under_the_root() -> None:
    tools = [ToolSpan(200 + n, f"tool_{n}", 30 + n, 60 - n, None) for n in range(3)]
    root, *children = expand([request(tools=tools)], "fw")
    at_once = [child for child in children if child.kind is SpanKind.TOOL]
    assert {tool.parent_span_id for tool in at_once} == {root.span_id}
    assert [(tool.start_ns, tool.end_ns) for tool in at_once] == [(30, 60), (31, 59), (32, 58)]
