"""summary.json of runs that went wrong or measured little: strict JSON, null for what is not known, no exception."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentdyno.analysis.run_data import DataError, read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome, WorkerEnd
from agentdyno.contract.summary import Framework, Summary
from agentdyno.record.manifest import Status
from tests.golden.run import COUNTS, END, START, T0, GoldenRun
from tests.locales import WITH_COMMAS


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def written(run: GoldenRun, parent: Path) -> dict[str, Any]:
    """The summary as the file holds it; it is a Summary, too."""
    folder = run.write(parent)
    folder.write_json("summary.json", summarise(read_run(folder.path)))
    text = (folder.path / "summary.json").read_text(encoding="utf-8")
    msgspec.json.decode(text, type=Summary)
    return strict(text)


def keep_measured(run: GoldenRun, count: int) -> GoldenRun:
    first = COUNTS[Stage.WARMUP]
    run.records = run.records[: first + count]
    return run


def test_no_arrivals(tmp_path: Path) -> None:
    run = GoldenRun(records=[])
    found = written(run, tmp_path)
    for name in ("load", "latency_ms", "goodput_rps", "cpu_ms_per_request", "overloaded"):
        assert found[name] is None
    assert set(found["ledger"].values()) == {None}
    assert found["generator"]["lateness_ok"] is None
    assert found["verdict"]["valid"] is False


def test_only_warm_up_arrivals(tmp_path: Path) -> None:
    found = written(keep_measured(GoldenRun(), 0), tmp_path)
    assert found["load"]["excluded"]["warmup"]["ok"] == 1000
    assert found["load"]["lateness_ms"] == {"p50": None, "p99": None, "max": None}
    assert found["latency_ms"]["intended"] == {
        "n": 0,
        **dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "p999", "max")),
    }
    for value in (found["load"]["achieved_rate"], found["load"]["in_flight_max"], found["goodput_rps"]):
        assert value is None
    assert found["overloaded"] is None
    assert found["cpu_ms_per_request"] is None


def test_one_arrival(tmp_path: Path) -> None:
    found = written(keep_measured(GoldenRun(), 1), tmp_path)
    latency = found["latency_ms"]["service"]
    # Rank 61 of the golden run.
    assert (latency["n"], latency["mean"], latency["max"]) == (1, 0.61, 0.61)
    assert {latency[name] for name in ("p50", "p90", "p95", "p99", "p999")} == {None}
    assert found["load"]["achieved_rate"] is None
    assert found["load"]["lateness_ms"] == {"p50": None, "p99": None, "max": 0.5}
    assert found["goodput_rps"] == 0.2


def test_no_success(tmp_path: Path) -> None:
    run = GoldenRun()
    nothing = dict.fromkeys(
        ("llm_calls", "tool_calls", "prompt_bytes", "prompt_tokens", "completion_tokens", "retries")
    )
    for i, record in enumerate(run.records):
        run.records[i] = msgspec.structs.replace(
            record, outcome=Outcome.FAILED, status=500, reason="http_500", **nothing
        )
    found = written(run, tmp_path)
    assert found["goodput_rps"] == 0.0  # measured: none was good
    assert found["cpu_ms_per_request"] is None
    assert found["latency_ms"]["intended"]["n"] == 0
    assert set(found["ledger"].values()) == {None}
    assert [reason["code"] for reason in found["verdict"]["reasons"]] == ["no_success"]


def test_all_dropped(tmp_path: Path) -> None:
    run = GoldenRun()
    dropped: dict[str, Any] = {"outcome": Outcome.DROPPED, "sent_ns": None, "done_ns": None}
    run.records = [msgspec.structs.replace(record, **dropped) for record in run.records]
    found = written(run, tmp_path)
    assert found["load"]["sent"] == 0
    assert found["load"]["in_flight_max"] is None
    assert found["load"]["achieved_rate"] is None
    assert found["generator"]["lateness_ok"] is None
    assert found["overloaded"] is True


def test_answers_without_times(tmp_path: Path) -> None:
    run = GoldenRun()
    for i in range(COUNTS[Stage.MEASURE]):
        run.change(i, sent_ns=None, done_ns=None)
    found = written(run, tmp_path)
    assert found["latency_ms"]["service"]["n"] == 0
    assert found["latency_ms"]["service"]["max"] is None


def test_a_run_that_was_interrupted_before_the_schedule_began(tmp_path: Path) -> None:
    run = GoldenRun(records=[], ends=[], gc=None, loop=None, backend=None)
    run.manifest.t0_monotonic_ns = None
    run.manifest.status = Status.INTERRUPTED
    found = written(run, tmp_path)
    assert found["cpu_ms_per_request"] is None
    assert found["generator"]["cpu_percent"] is None
    assert found["memory_mb"]["rss_peak"] == 120.0  # over the whole run: it was measured
    assert [reason["code"] for reason in found["verdict"]["reasons"]] == ["interrupted"]


def test_a_window_of_the_plan_when_no_worker_lived_to_say(tmp_path: Path) -> None:
    data = GoldenRun(ends=[]).read(tmp_path)
    assert data.window_ns() == (T0 + START, T0 + END)


def test_without_samples_probes_and_backend(tmp_path: Path) -> None:
    run = GoldenRun(samples=None, gc=None, loop=None, backend=None)
    run.manifest.rss_idle_bytes = None
    found = written(run, tmp_path)
    assert set(found["memory_mb"].values()) == {None}
    assert set(found["gc"].values()) == {None}
    assert set(found["loop_lag_ms"].values()) == {None}
    assert found["cpu_ms_per_request"] is None
    assert found["latency_ms"]["service"]["p50"] == 25.0
    assert found["verdict"]["valid"] is True


def test_empty_samples_and_probes(tmp_path: Path) -> None:
    found = written(GoldenRun(samples=[], gc=[], loop=[]), tmp_path)
    assert found["memory_mb"] == {
        "rss_idle": 50.0,
        **dict.fromkeys(("rss_warm", "rss_drained", "rss_rested", "rss_peak", "pss_peak", "private_dirty_peak")),
    }
    # The probe ran and saw no collection: that is a zero, and there is no longest pause.
    assert found["gc"] == {"pause_total_ms": 0.0, "pause_max_ms": None, "collections": 0}
    assert set(found["loop_lag_ms"].values()) == {None}
    assert found["cpu_ms_per_request"] is None


def test_workers_that_did_not_live_to_the_end_of_the_window(tmp_path: Path) -> None:
    run = GoldenRun(ends=[WorkerEnd(n, False, T0, None, START, END, None) for n in (0, 1)])
    found = written(run, tmp_path)
    assert found["generator"]["cpu_percent"] is None


def test_a_framework_named_in_markup(tmp_path: Path) -> None:
    run = GoldenRun()
    run.manifest.framework = Framework("<b>x</b>", None, "default", "llm")
    found = written(run, tmp_path)
    assert found["framework"]["name"] == "<b>x</b>"
    (folder,) = tmp_path.iterdir()
    assert (folder / "summary.json").exists()


_SUMMARISE = """
import sys
from pathlib import Path
from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.record.folder import RunFolder
RunFolder(Path(sys.argv[1])).write_json("summary.json", summarise(read_run(Path(sys.argv[1]))))
"""


def in_subprocess(folder: Path, before: str = "", **environment: str) -> bytes:
    command = [sys.executable, "-c", before + _SUMMARISE, str(folder)]
    subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=120)
    return (folder / "summary.json").read_bytes()


def test_a_time_zone_changes_nothing(tmp_path: Path) -> None:
    folder = GoldenRun().write(tmp_path).path
    assert in_subprocess(folder, TZ="UTC") == in_subprocess(folder, TZ="Asia/Shanghai")


def test_a_locale_with_a_decimal_comma_changes_nothing(tmp_path: Path, comma_locale: dict[str, str]) -> None:
    folder = GoldenRun().write(tmp_path).path
    plain = in_subprocess(folder, LC_ALL="C")
    assert plain == in_subprocess(folder, WITH_COMMAS, **comma_locale)


@pytest.mark.parametrize("name", ["requests.parquet", "resources.parquet", "gc.parquet", "loop.parquet"])
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    folder = GoldenRun().write(tmp_path)
    (folder.path / name).write_bytes(b"PAR1 no more")
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        read_run(folder.path)


@pytest.mark.parametrize("name", ["manifest.json", "backend.json"])
def test_a_broken_json_file_is_named(tmp_path: Path, name: str) -> None:
    folder = GoldenRun().write(tmp_path)
    (folder.path / name).write_bytes(b'{"kind": 1}')
    with pytest.raises(DataError, match=f"{name} is not what this version writes"):
        read_run(folder.path)


def test_a_table_of_another_version_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    folder = GoldenRun().write(tmp_path)
    (folder.path / "gc.parquet").write_bytes((folder.path / "loop.parquet").read_bytes())
    with pytest.raises(DataError, match=r"gc\.parquet .* no column start_monotonic_ns, pause_ns"):
        read_run(folder.path)


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manifest\.json cannot be read: No such file"):
        read_run(tmp_path)
