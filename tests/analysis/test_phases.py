"""Phases and the span ledger of whole runs: exact where all is there, and what a loss does to the verdict."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from agentdyno.analysis.phases import phase_table
from agentdyno.analysis.run_data import RunData, read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.phases import Phase
from agentdyno.contract.run import Reason, RequestRecord
from agentdyno.contract.summary import SpanLedger, Summary
from agentdyno.contract.trace import Goodbye, Hello, LlmCall, RecorderLedger, RequestEvents, ServedCall, Service
from agentdyno.contract.trace import ToolSpan as Tool
from agentdyno.record.span_table import SPAN_SCHEMA, SpanReader
from agentdyno.record.spans import RAW_FILE
from tests.golden.run import T0, GoldenRun
from tests.record.recording import frame

US = 1000
MEASURED = 5000
SPANS = MEASURED * (1 + 4 + 3 + 4)


def host_record(record: RequestRecord) -> RequestEvents:
    """Of a request of rank j, which took j * 10 us in all: of each 10 us 1 parse, 4 plan, 2 tool (two tools at once of
    2 and 1 us), 1 reflect, 1 respond, 1 framework.
    """
    assert record.sent_ns is not None
    assert record.done_ns is not None
    unit = (record.done_ns - record.sent_ns) // 10
    at = T0 + record.sent_ns

    def call(number: int, start: int, end: int, tools: bool) -> LlmCall:
        span_id = record.index * 100 + number
        return LlmCall(span_id, at + start * unit, 10, 200, at + start * unit, at + end * unit, False, tools, 5, 6, "m")

    calls = [call(1, 1, 2, True), call(2, 2, 4, True), call(3, 4, 5, True), call(4, 8, 9, False)]
    tools = [
        Tool(record.index * 100 + 11 + n, f"tool_{n}", at + start * unit, at + end * unit, None)
        for n, (start, end) in enumerate(((5, 7), (6, 7), (5, 6)))
    ]
    trace_id = int(record.trace_id or "0", 16).to_bytes(16, "big")
    whole = (record.index * 100 + 50, at, at + 10 * unit, "ok")
    return RequestEvents(trace_id, int(record.span_id or "0", 16), *whole, [], calls, tools)


def served(record: RequestRecord, call: LlmCall) -> ServedCall:
    trace_id = int(record.trace_id or "0", 16).to_bytes(16, "big")
    return ServedCall(trace_id, call.span_id, call.span_id + 20, call.start_ns, 0, None, call.start_ns + 1, 200, 5, 6)


class TracedRun(GoldenRun):
    """The golden run with its traces."""

    def __init__(self) -> None:
        super().__init__()
        self.manifest.plan = msgspec.structs.replace(self.manifest.plan, trace_every=1)
        self.manifest.recorder = RecorderLedger()
        self.manifest.spans_dropped = 0
        self.records = [msgspec.structs.replace(r, span_id=f"{r.index + 1:016x}", traced=True) for r in self.records]

    def read_with(self, parent: Path, keep: Callable[[RequestEvents | ServedCall], bool] = lambda _: True) -> RunData:
        """Written and read back, with the spans of those records that are kept."""
        folder = self.write(parent)
        folder.raw.mkdir()
        made: list[RequestEvents | ServedCall] = []
        for record in self.records:
            if record.llm_calls is not None and record.traced:
                events = host_record(record)
                made += [events, *(served(record, call) for call in events.llm_calls)]
        said = frame(Hello(Service.HOST, 0, 0, "m"), *filter(keep, made), Goodbye(Service.HOST, 1, 0))
        (folder.raw / RAW_FILE).write_bytes(said)
        requests = pa.parquet.read_table(folder.path / "requests.parquet")
        folder.write_spans(SpanReader(folder.raw, "golden").tables(requests, T0), SPAN_SCHEMA)
        return read_run(folder.path)

    def summary_with(self, parent: Path, keep: Callable[[RequestEvents | ServedCall], bool]) -> Summary:
        return summarise(self.read_with(parent, keep))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return TracedRun().read_with(tmp_path_factory.mktemp("run"))


def test_a_run_whose_spans_are_all_there(data: RunData) -> None:
    found = summarise(data)
    assert found.spans == SpanLedger(expected=SPANS, received=SPANS, orphaned=0, dropped=0)
    assert found.verdict.valid
    assert found.verdict.notes == ()


def test_each_phase_has_its_percentiles_of_the_measured_requests(data: RunData) -> None:
    found = summarise(data).phases_ms
    # Rank j took j * 10 us; a tenth of that is j us, and the percentile q is rank ceil(q * 5000).
    for phase, tenths in (("parse", 1), ("plan", 4), ("tool", 2), ("reflect", 1), ("respond", 1), ("framework", 1)):
        time = found[phase]
        assert time is not None
        assert (time.p50, time.p90, time.p95, time.p99) == pytest.approx(
            tuple(tenths * rank / 1000 for rank in (2500, 4500, 4750, 4950))
        )
        assert time.mean == pytest.approx(tenths * 2.5005)
        assert time.share == pytest.approx(tenths / 10)


def test_the_phases_tile_every_request_exactly(data: RunData) -> None:
    table = phase_table(data)
    assert table is not None
    assert len(table.traces) == MEASURED
    roots = data.spans.filter(pc.equal(data.spans["kind"], "request")).to_pydict()
    took_ms = {
        trace_id: (end - start) / 1e6
        for trace_id, start, end in zip(
            roots["trace_id"], roots["start_monotonic_ns"], roots["end_monotonic_ns"], strict=True
        )
    }
    whole = np.array([took_ms[trace_id] for trace_id in table.traces.trace_ids.to_pylist()])
    assert np.abs(table.total_ms - whole).max() < 1e-9
    assert min(samples.min() for samples in table.phases_ms.values()) >= 0
    assert set(table.phases_ms) == set(Phase)


def number_of(record: RequestEvents | ServedCall) -> int:
    return record.span_id // 100


LOST = {
    "a request": lambda r: not (isinstance(r, RequestEvents) and number_of(r) == 3000),
    "the requests of a second": lambda r: not (isinstance(r, RequestEvents) and 2000 <= number_of(r) < 3000),
    "a served call": lambda r: not (isinstance(r, ServedCall) and r.span_id == 3000 * 100 + 22),
    "all served calls": lambda r: isinstance(r, RequestEvents),
}


@pytest.mark.parametrize("what", LOST)
def test_a_loss_is_found_and_makes_a_run_invalid_that_claims_phases(tmp_path: Path, what: str) -> None:
    found = TracedRun().summary_with(tmp_path, LOST[what])
    assert [reason.code for reason in found.verdict.reasons] == [Reason.SPANS_MISSING]
    assert found.spans.received is not None
    assert found.spans.received < SPANS


def test_a_call_missing_within_a_request_is_found(tmp_path: Path) -> None:
    run = TracedRun()
    run.change(100, tool_calls=3, llm_calls=4, retries=1)  # it says of a failed call that is not on record
    found = run.summary_with(tmp_path, lambda _: True)
    assert [reason.code for reason in found.verdict.reasons] == [Reason.SPANS_MISSING]
    assert (found.spans.expected, found.spans.received) == (SPANS + 1, SPANS)


def test_a_served_call_whose_caller_gave_up_is_not_taken_for_one_that_is_missing(tmp_path: Path) -> None:
    def keep(record: RequestEvents | ServedCall) -> bool:
        if isinstance(record, RequestEvents) and number_of(record) == 2000:
            record.llm_calls[0].error = "ReadTimeout"
        return not (isinstance(record, ServedCall) and record.span_id == 2500 * 100 + 21)

    run = TracedRun()
    run.change(1000, llm_calls=3, retries=1)
    found = run.summary_with(tmp_path, keep)
    # One served call of a good call is missing, although one is there of a call that was given up.
    assert (found.spans.expected, found.spans.received) == (SPANS - 1, SPANS - 2)
    assert Reason.SPANS_MISSING in {reason.code for reason in found.verdict.reasons}


def test_records_that_a_sender_dropped_make_it_invalid_too(tmp_path: Path) -> None:
    run = TracedRun()
    run.manifest.spans_dropped = 3
    found = run.summary_with(tmp_path, lambda _: True)
    assert [reason.code for reason in found.verdict.reasons] == [Reason.SPANS_MISSING]
    assert "3 records dropped" in found.verdict.reasons[0].message


def test_where_no_phase_is_claimed_missing_spans_are_a_note(tmp_path: Path) -> None:
    run = TracedRun()
    run.manifest.recorder = None
    found = run.summary_with(tmp_path, lambda _: False)
    assert found.verdict.valid
    assert set(found.phases_ms.values()) == {None}
    (note,) = found.verdict.notes
    assert note.code is Reason.SPANS_MISSING
    assert note.message.startswith("The recorder died in the run.")
    assert found.spans == SpanLedger(expected=SPANS, received=0, orphaned=0, dropped=0)


def test_an_untraced_run_claims_nothing_and_lacks_nothing(tmp_path: Path) -> None:
    found = GoldenRun().summary(tmp_path)
    assert found.spans == SpanLedger()
    assert found.verdict.valid


def test_a_sample_of_the_requests_is_judged_by_itself(tmp_path: Path) -> None:
    run = TracedRun()
    run.records = [msgspec.structs.replace(r, traced=r.index % 4 == 0) for r in run.records]
    found = run.summary_with(tmp_path, lambda _: True)
    assert found.spans.expected == found.spans.received == SPANS // 4
    assert found.verdict.valid
    assert found.phases_ms["plan"] is not None


def test_a_backend_without_stats_is_not_asked_for_spans(tmp_path: Path) -> None:
    run = TracedRun()
    run.backend = None
    found = run.summary_with(tmp_path, lambda record: isinstance(record, RequestEvents))
    assert found.spans.expected == found.spans.received == MEASURED * 8
    assert found.verdict.valid


def test_a_span_on_record_twice_makes_up_for_no_other(tmp_path: Path) -> None:
    data = TracedRun().read_with(tmp_path, LOST["a request"])
    assert data.spans is not None
    doubled = replace(data, spans=pa.concat_tables([data.spans, data.spans.slice(0, 40)]))
    assert Reason.SPANS_MISSING in {reason.code for reason in summarise(doubled).verdict.reasons}
