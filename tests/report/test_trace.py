"""`agentdyno trace`: the tables of a run, its waterfalls, and sentences where there is nothing to show."""

import io
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from agentdyno.analysis.phases import phase_table
from agentdyno.analysis.run_data import RunData
from agentdyno.analysis.summary import summarise
from agentdyno.cli import run
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import Outcome
from agentdyno.record.heap_folder import HeapIndex, Snapshot
from agentdyno.report.trace import find_run, print_trace
from tests.analysis.test_phases import TracedRun
from tests.golden.run import GoldenRun


def shown(data: RunData, *, slowest: int = 0, width: int = 80) -> str:
    out = io.StringIO()
    print_trace(data, Console(file=out, width=width), slowest=slowest)
    return out.getvalue()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return TracedRun().read_with(tmp_path_factory.mktemp("run"))


def test_the_tables(data: RunData) -> None:
    text = shown(data)
    rows = {line[:18].strip(): line[18:].split() for line in text.splitlines()}
    # Of rank j, which took j * 10 us, a tenth is j us.
    assert rows["plan"] == ["10.00", "18.00", "19.00", "19.80", "10.00", "40.0%"]
    assert rows["the whole request"] == ["25.00", "45.00", "47.50", "49.50", "25.00", "100.0%"]
    assert "golden 1.2.3, scenario chain: 5000 traced and verified requests of the measured stage" in " ".join(
        text.split()
    )
    assert "Critical path of 5000 of 5000 requests" in text
    assert "60000 expected, 60000 received, 0 orphaned" in " ".join(text.split())
    assert "waiting for the LLM" in text


def test_the_summary_holds_the_same(data: RunData) -> None:
    found = summarise(data)
    assert found.critical_path is not None
    assert [step.name for step in found.critical_path.steps] == [
        *("parse", "plan: chat m", "plan: chat m", "plan: chat m"),
        *("tool: execute_tool tool_0", "framework", "reflect: chat m", "respond"),
    ]
    assert sum(step.mean for step in found.critical_path.steps) == pytest.approx(25.005)
    split = found.time_split_ms
    assert sum(time.share for time in split.values() if time is not None) == pytest.approx(1.0)
    assert split["tool"] is not None
    assert split["tool"].p50 == 5.0


@pytest.mark.parametrize("width", [64, 80, 200])
def test_waterfalls_are_of_the_slowest_and_fit_the_width(data: RunData, width: int) -> None:
    text = shown(data, slowest=2, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    titles = [line for line in text.splitlines() if line.startswith("Trace ")]
    assert [title.split(": ")[1] for title in titles] == ["50.00 ms in the host", "49.99 ms in the host"]
    waterfall = text[text.index(titles[0]) : text.index(titles[1])].splitlines()
    names = [line[:34].rstrip() for line in waterfall[2:] if line]
    assert names[:4] == ["POST /agent/invoke", "  invoke_agent golden", "    parse", "    chat m"]
    assert len(names) == 1 + 1 + 4 + 4 + 3 + 2
    bars = [line[53:] for line in waterfall[2:] if line]
    assert all(bar.strip() for bar in bars)
    # The whole is as long as there is room; every other begins where its offset says.
    assert len(bars[0]) == max(10, width - 53)
    took_ms = {line[:34].strip(): float(line[43:52]) for line in waterfall[2:] if line}
    assert took_ms["invoke_agent golden"] == 50.0
    assert took_ms["execute_tool tool_0"] == 10.0


@pytest.mark.parametrize(
    ("at_ms", "said", "page"),
    [
        ((-100, 10_000), "000-0.pb.gz (0 s) to 001-10.pb.gz (10.1 s)", "001-10.html"),
        ((99_000,), "before 000-0.pb.gz (0 s)", "000-0.html"),
        ((-9_000, -8_000), "after 001-1.pb.gz (1 s)", "001-1.html"),
    ],
)
def test_a_slow_trace_names_the_heap_snapshots_around_it(
    tmp_path: Path, at_ms: tuple[int, ...], said: str, page: str
) -> None:
    data = TracedRun().read_with(tmp_path)
    [slowest] = phase_table(data).traces.slowest(1)
    taken = [
        Snapshot(f"{n:03}-{(ms - at_ms[0]) // 1000}.pb.gz", (ms - at_ms[0]) / 1000, slowest.start_ns + ms * 1_000_000)
        for n, ms in enumerate(at_ms)
    ]
    write_index(data.path, taken)
    text = shown(data, slowest=2, width=100)
    assert text.count("Heap: snapshots") == 2
    assert f"Heap: snapshots {said}; flame graph:" in text
    assert str(data.path / "heap" / page) in text.splitlines()
    assert "Heap" not in shown(data, width=100)


def test_a_profile_run_without_a_snapshot_says_so(tmp_path: Path) -> None:
    data = TracedRun().read_with(tmp_path)
    write_index(data.path, [])
    assert "Heap: no snapshot was had" in shown(data, slowest=1)


def write_index(run_folder: Path, snapshots: list[Snapshot]) -> None:
    (run_folder / "heap").mkdir()
    index = HeapIndex(30.0, 32_768, snapshots)
    (run_folder / "heap" / "snapshots.json").write_bytes(msgspec.json.encode(index))


def test_native_spans_are_marked_and_nested_and_in_no_count(tmp_path: Path) -> None:
    run_ = TracedRun()
    run_.manifest.native_spans = {"title": "Somebody's", "instrumentors": [], "environment": {}}
    data = run_.read_with(tmp_path)
    before = summarise(data)
    [slowest] = phase_table(data).traces.slowest(1)
    spans = data.spans.to_pylist()
    [root] = [row for row in spans if row["trace_id"] == slowest.trace_id and row["kind"] == "request"]
    outer = {**root, "kind": "native", "service": "framework", "name": "Outer", "span_id": "a" * 16}
    outer["parent_span_id"] = root["span_id"]
    inner = {**outer, "name": "Inner", "span_id": "b" * 16, "parent_span_id": "a" * 16}
    lost = {**outer, "name": "Lost", "span_id": "c" * 16, "parent_span_id": "d" * 16}
    added = pa.Table.from_pylist([outer, inner, lost], schema=data.spans.schema)
    with_native = replace(data, spans=pa.concat_tables([data.spans, added]))
    text = shown(with_native, slowest=1, width=100)
    assert "The framework's own spans (Somebody's): 3 of all stages, 1 without their parent" in " ".join(text.split())
    lines = [line[:34].rstrip() for line in text.splitlines()]
    assert [line for line in lines if "~" in line and "marked" not in line] == [
        "    ~ Outer",
        "      ~ Inner",
        "~ Lost",
    ]
    after = summarise(with_native)
    assert (after.spans, after.phases_ms, after.time_split_ms, after.ledger) == (
        *(before.spans, before.phases_ms, before.time_split_ms, before.ledger),
    )
    assert (after.verdict.valid, after.verdict.comparable) == (True, False)


def test_of_a_long_run_the_attributes_are_left_on_the_disk_and_repeated_texts_are_held_once(data: RunData) -> None:
    assert data.spans is not None
    assert "attributes" not in data.spans.column_names
    assert "attributes" in pq.read_schema(data.path / "spans.parquet").names
    for column in ("service", "kind", "name", "phase", "error"):
        assert pa.types.is_dictionary(data.spans.schema.field(column).type)


def test_a_span_that_failed_says_why(tmp_path: Path) -> None:
    run_ = TracedRun()

    def broken(record: object) -> bool:
        for call in getattr(record, "llm_calls", [])[:1]:
            call.error = "ReadTimeout: [bold]\nof a second"
        return True

    text = shown(run_.read_with(tmp_path, broken), slowest=1)
    assert "failed: ReadTimeout: [bold] of a second" in text


def test_an_untraced_run_is_a_sentence(tmp_path: Path) -> None:
    untraced = GoldenRun()
    untraced.manifest.plan = msgspec.structs.replace(untraced.manifest.plan, trace_every=0)
    assert shown(untraced.read(tmp_path)) == (
        "golden was not traced (TRACES=off), so there is nothing to show of its phases.\n"
    )


def test_a_run_in_which_nothing_was_verified_is_a_sentence(tmp_path: Path) -> None:
    failed = TracedRun()
    for number in range(5000):
        failed.change(number, outcome=Outcome.FAILED)
    assert "Not one traced request" in shown(failed.read_with(tmp_path))


def test_a_run_that_broke_off_is_a_sentence(tmp_path: Path) -> None:
    assert "did not come to the end" in shown(TracedRun().read(tmp_path), width=200)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("20260101T000000Z-bare-aaaaaa", "20260101T000001Z-bare-bbbbbb", "20270101T000000Z-bare-cccccc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").touch()
    (tmp_path / "20280101T000000Z-no-run").mkdir()
    return tmp_path


def test_a_run_is_found_by_its_path_or_by_the_beginning_of_its_name(runs: Path) -> None:
    assert find_run(str(runs / "20260101T000000Z-bare-aaaaaa"), Path("elsewhere")).name.endswith("aaaaaa")
    assert find_run("2027", runs).name.endswith("cccccc")
    assert find_run("20260101T000001", runs).name.endswith("bbbbbb")


@pytest.mark.parametrize(("text", "says"), [("2026", "beginning of 2 runs"), ("2028", "no run under"), ("x", "no run")])
def test_a_name_that_is_not_one_runs_is_refused(runs: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        find_run(text, runs)


def test_the_command_line(
    data: RunData, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(["trace", str(data.path), "--slowest", "1"]) == 0
    assert "Trace " in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert run(["trace", "nothing-of-that-name"]) == 2
    assert "agentdyno: 'nothing-of-that-name' is no run folder" in capsys.readouterr().err
