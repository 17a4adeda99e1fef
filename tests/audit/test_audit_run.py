"""The audit of a run: a changed byte anywhere is found, and a figure that was changed with its hash is found too."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentdyno.analysis.figures import run_queue_waits_ms
from agentdyno.analysis.summary import summarise
from agentdyno.audit.command import NotThere, audit
from agentdyno.audit.compare import RELATIVE
from agentdyno.audit.run import audit_run
from agentdyno.contract.run import Outcome
from agentdyno.contract.summary import Framework
from agentdyno.load.service_histogram import ServiceHistogram
from agentdyno.record.checksums import CHECKSUMS_FILE, kept_files, write_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Status
from agentdyno.report.run_html import write_run_report
from tests.analysis.planted_run import Figures, load_plan, write_run
from tests.golden.run import GoldenRun

WHO = Framework("lean", "1.0.0", "default", "llm")


def finished(run: GoldenRun, parent: Path) -> Path:
    """Written as the rig leaves it: records, manifest, summary, a log, and the hashes last. The run is called like its
    folder.
    """
    data = run.read(parent)
    folder = RunFolder(data.path)
    data.manifest.run_id = folder.run_id
    data.manifest.run_queue_wait_ms = run_queue_waits_ms(data)
    folder.write_json("manifest.json", data.manifest)
    folder.write_json("summary.json", summarise(data))
    folder.log("host").write_text("it started\n", encoding="utf-8")
    write_checksums(folder.path)
    return folder.path


def planted(parent: Path) -> Path:
    folder = parent / "one"
    waits = {"host": 0.0}
    write_run(folder, load_plan(20.0, 120, 1, traced=True), WHO, Figures(), 1, environment={}, run_queue_wait_ms=waits,
              rig_environment={})  # fmt: skip
    write_checksums(folder)
    return folder


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one. Not to be changed, or only for the moment."""
    return planted(tmp_path_factory.mktemp("traced"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return finished(GoldenRun(), tmp_path)


def faults(folder: Path) -> list[str]:
    return [str(fault) for fault in audit_run(folder).faults]


def test_a_good_run_has_no_fault(traced: Path) -> None:
    found = audit_run(traced)
    assert found.faults == []
    assert found.files == len(kept_files(traced)) == 8
    assert found.figures > 100
    assert found.notes == ["The manifest names no lock, so the environment cannot be compared with one."]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_byte_in_any_file_is_found_and_the_file_named(traced: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*kept_files(traced), CHECKSUMS_FILE]))
    file = traced / name
    before = file.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    changed = bytearray(before)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        file.write_bytes(changed)
        found = audit_run(traced).faults
        assert [fault for fault in found if name in (fault.file, CHECKSUMS_FILE)]
    finally:
        file.write_bytes(before)


def with_histograms(folder: Path, change: Callable[[dict[int, list[int]]], object] = lambda _: None) -> Path:
    """As its two workers would have kept them beside their records."""
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    samples: dict[int, list[int]] = {0: [], 1: []}
    for row in rows:
        if row["stage"] == "measure" and row["outcome"] == "ok":
            samples[row["worker"]].append(row["done_ns"] - row["sent_ns"])
    change(samples)
    document = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for worker in document["workers"]:
        made = ServiceHistogram()
        for sample in samples[worker["worker"]]:
            made.add(sample)
        worker["service_hdr"] = made.encoded()
    (folder / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    write_checksums(folder)
    return folder


def test_the_workers_own_histograms_agree_with_the_records(folder: Path) -> None:
    before = faults(folder)
    assert faults(with_histograms(folder)) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda samples: samples[1].pop(), "the workers counted 4999 answered requests, but 5000 are on record."),
        (
            lambda samples: samples.update({0: [2 * sample for sample in samples[0]]}),
            "p90 of the service times is",
        ),
    ],
)
def test_records_that_are_not_those_of_the_workers_are_found(
    folder: Path, change: Callable[[dict[int, list[int]]], object], said: str
) -> None:
    before = len(faults(folder))
    found = faults(with_histograms(folder, change))
    assert len(found) > before
    assert said in " ".join(found)


def test_a_histogram_that_is_none_is_said(folder: Path) -> None:
    with_histograms(folder)
    document = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    document["workers"][0]["service_hdr"] = "none"
    (folder / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    write_checksums(folder)
    assert "is no HDR histogram" in " ".join(faults(folder))


def change_json(file: Path, path: str, value: Any) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    *way, last = path.split(".")
    inner = document
    for step in way:
        inner = inner[step]
    inner[last] = value
    file.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("latency_ms.intended.p99", 50.9, "it says 50.9, but the raw files give 51.0."),
        ("cpu_ms_per_request", None, "it says null, but the raw files give 0.34"),
        ("load.ok", 4999, "it says 4999, but the raw files give 5000."),
        ("memory_mb.rss_peak", 119.0, "it says 119.0, but the raw files give 120.0."),
        ("verdict.valid", 1, "it says 1, but the raw files give true."),
        ("workload_hash", "0" * 16, "it says"),
        ("gc.more", 1, "it says 1, but the raw files give nothing."),
        ("framework.version", "9.9.9", 'it says "9.9.9", but the raw files give "1.2.3".'),
    ],
)
def test_a_figure_that_was_changed_with_its_hash_is_found_by_its_name(
    folder: Path, path: str, value: Any, said: str
) -> None:
    change_json(folder / "summary.json", path, value)
    write_checksums(folder)
    assert any(line.startswith(f"summary.json: {path}: {said}") for line in faults(folder)), faults(folder)


def test_a_float_may_differ_in_its_last_digits_alone(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    p99 = summary["latency_ms"]["intended"]["p99"]
    change_json(folder / "summary.json", "latency_ms.intended.p99", p99 * (1 + RELATIVE / 10))
    write_checksums(folder)
    assert faults(folder) == []
    change_json(folder / "summary.json", "latency_ms.intended.p99", p99 * (1 + RELATIVE * 10))
    write_checksums(folder)
    assert len(faults(folder)) == 1


def test_a_figure_that_was_taken_away_is_found_where_the_file_was_changed(folder: Path) -> None:
    document = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    del document["goodput_rps"]
    (folder / "summary.json").write_text(json.dumps(document), encoding="utf-8")
    assert any(line.startswith("summary.json: goodput_rps: it says nothing") for line in faults(folder))
    write_checksums(folder)  # as an older version would have left it
    assert any("no goodput_rps, which this version computes" in note for note in audit_run(folder).notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"run_id": NaN}', "NaN is no JSON"),
        ('{"a": 1, "a": 1}', "a key stands twice"),
        ("", "not strict JSON"),
        ("[]", "it is not what this version writes"),
        ("[" * 5000, "not strict JSON"),
    ],
)
def test_a_summary_that_is_no_strict_json_is_a_fault(folder: Path, text: str, said: str) -> None:
    (folder / "summary.json").write_text(text, encoding="utf-8")
    write_checksums(folder)
    assert any(said in line for line in faults(folder)), faults(folder)


def after(change: Callable[[GoldenRun], object], parent: Path) -> list[str]:
    run = GoldenRun()
    change(run)
    return faults(finished(run, parent))


def test_the_workload_and_its_hash_belong_together(tmp_path: Path) -> None:
    def change(run: GoldenRun) -> None:
        run.manifest.workload = msgspec.structs.replace(run.manifest.workload, seed=2)

    found = after(change, tmp_path)
    assert [line.split(":")[1].strip() for line in found] == ["workload_hash", "plan.seed"]


def test_arrivals_are_those_of_the_schedule(tmp_path: Path) -> None:
    (line,) = after(lambda run: run.change(7, intended_ns=1), tmp_path)
    assert line == (
        "requests.parquet: intended_ns: arrival 1007 has 1, but the plan gives 1007000000 (1 arrivals are like that)."
    )


def test_a_plan_that_gives_other_counts(tmp_path: Path) -> None:
    def change(run: GoldenRun) -> None:
        run.manifest.scheduled["measure"] = 4000

    assert "manifest.json: scheduled.measure: it says 4000, but the plan gives 5000 arrivals." in after(
        change, tmp_path
    )


def test_two_requests_in_one_trace(tmp_path: Path) -> None:
    (line,) = after(lambda run: run.change(7, trace_id=f"{1000:032x}"), tmp_path)
    assert re.fullmatch(r"requests.parquet: trace_id: 6500 requests have only 6499 trace ids.*", line)


def test_an_invalid_run_that_says_so_is_no_fault(tmp_path: Path) -> None:
    run = GoldenRun()
    run.records = run.records[:3000]
    run.manifest.status = Status.INTERRUPTED
    path = finished(run, tmp_path)
    assert json.loads((path / "summary.json").read_text(encoding="utf-8"))["verdict"]["valid"] is False
    assert faults(path) == []


@pytest.mark.parametrize(
    "run",
    [
        GoldenRun(records=[]),
        GoldenRun(records=[], ends=[], gc=None, loop=None, backend=None, samples=None),
        GoldenRun(samples=[], gc=[], loop=[]),
    ],
    ids=["no arrivals", "nothing at all", "empty files"],
)
def test_a_run_that_measured_little_can_be_audited(tmp_path: Path, run: GoldenRun) -> None:
    assert faults(finished(run, tmp_path)) == []


def test_zero_successes_and_a_name_in_markup(tmp_path: Path) -> None:
    run = GoldenRun()
    run.manifest.framework = Framework("<b>x</b>", None, "default", "llm")
    for number in range(5000):
        run.change(number, outcome=Outcome.FAILED, status=500, reason="http_500")
    assert faults(finished(run, tmp_path)) == []


def test_phases_must_tile_the_requests(tmp_path: Path) -> None:
    path = planted(tmp_path)
    change_json(path / "summary.json", "phases_ms.plan.mean", 99.0)
    write_checksums(path)
    found = faults(path)
    assert any(line.startswith("summary.json: phases_ms.plan.mean: it says 99.0") for line in found)
    assert any(line.startswith("summary.json: phases_ms: their means add up to") for line in found)


def test_percentiles_out_of_order_are_named(tmp_path: Path) -> None:
    path = planted(tmp_path)
    change_json(path / "summary.json", "loop_lag_ms.p50", 99.0)
    write_checksums(path)
    assert "summary.json: loop_lag_ms.max: it says 0.249, below p50, which is 99.0." in faults(path)


def test_a_report_is_what_is_made_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = planted(tmp_path)
    write_run_report(path)
    assert audit_run(path).faults == []
    page = path / "report.html"
    page.write_text(page.read_text(encoding="utf-8").replace("lean", "leaner", 1), encoding="utf-8")
    assert [fault.file for fault in audit_run(path).faults] == ["report.html"]
    write_checksums(path)
    assert any(note.startswith("report.html is not what this version makes") for note in audit_run(path).notes)
    change_json(path / "manifest.json", "commit", "c" * 40)
    write_checksums(path)
    monkeypatch.setattr("agentdyno.audit.run.source_commit", lambda root: "c" * 40)
    assert any(line == "report.html: it is not what this version makes of the raw files." for line in faults(path))


def test_a_broken_raw_file_is_a_sentence(folder: Path) -> None:
    (folder / "requests.parquet").write_bytes(b"PAR1 no more")
    write_checksums(folder)
    (line,) = faults(folder)
    assert "requests.parquet cannot be read" in line


def test_a_run_without_hashes_is_a_fault_that_says_so(folder: Path) -> None:
    (folder / CHECKSUMS_FILE).unlink()
    (line,) = faults(folder)
    assert line == "SHA256SUMS: There is no SHA256SUMS: whether a file was changed cannot be told."


def test_the_command_says_what_it_looked_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(folder) == 0
    assert re.search(r"Audit of 8 files and \d+ figures of \S+: all as they must be\.\n$", capsys.readouterr().out)
    (folder / "summary.json").write_text("{}", encoding="utf-8")
    assert audit(folder) == 1
    out = capsys.readouterr().out
    assert out.startswith("fault  summary.json: Its SHA-256 is ")
    assert re.search(r": \d+ faults\.\n$", out)


def test_what_is_no_folder_of_ours_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="There is no folder"):
        audit(tmp_path / "nothing")
    with pytest.raises(NotThere, match=r"neither a run's folder nor a campaign's"):
        audit(tmp_path)
