"""The audit of what is no bench: cold starts, capacity searches and sweeps, whose figures are computed again too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentdyno.analysis.capacity import FACTS_FILE, read_result
from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.analysis.sweep import read_sweep
from agentdyno.audit.command import audit
from agentdyno.audit.run import audit_run
from agentdyno.contract.objective import parse_objective
from agentdyno.contract.run import Outcome
from agentdyno.contract.sweep import Levels, SweepPlan, TierFacts, TierRecord
from agentdyno.record.checksums import write_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample
from agentdyno.rig.cold import Cold, Start, spreads
from tests.analysis.test_capacity import facts
from tests.analysis.test_search import plan as search_plan
from tests.golden.run import MB, MS, GoldenRun, S, manifest

Made = Callable[[Path], Path]


def folder_of(path: Path) -> RunFolder:
    path.mkdir(parents=True)
    return RunFolder(path)


def cold(parent: Path) -> Path:
    starts = [
        Start(
            import_ms=100.0 + number,
            ready_ms=300.0 + number,
            answered_ms=320.0 + number,
            rss_before_import_mb=20.0,
            rss_imported_mb=40.0,
            rss_ready_mb=50.0,
            rss_answered_mb=None,
        )
        for number in range(3)
    ]
    folder = folder_of(parent / "cold")
    made = Cold(framework="lean", distributions=20, disk_mb=30.0, starts=starts, spreads=spreads(starts))
    folder.write_json("cold.json", made)
    write_checksums(folder.path)
    return folder.path


def capacity(parent: Path) -> Path:
    """The first step of a search that was broken off after it."""
    folder = folder_of(parent / "capacity")
    plan = search_plan(objective=parse_objective("p99<60ms,errors<0.1%"), first_rate=1000.0)
    folder.write_json("search.json", plan)
    folder.write_json("manifest.json", manifest())
    step = GoldenRun().write(folder.path / "steps")
    step.write_json(FACTS_FILE, facts())
    step.write_json("summary.json", summarise(read_run(step.path)))
    folder.write_json("capacity.json", read_result(folder.path))
    write_checksums(folder.path)
    return folder.path


def sweep(parent: Path) -> Path:
    """One tier of two users."""
    folder = folder_of(parent / "sweep")
    plan = SweepPlan(
        concurrency=(2,), requests=40, timeout_s=10.0, scenario="chain", seed=1, stream=True, clean_bound_s=30.0
    )
    folder.write_json("plan.json", plan)
    folder.write_json("manifest.json", manifest())
    level = Levels(
        monotonic_ns=S, host_in_flight=0, llm_in_flight=0, tasks=5, open_sockets=3, open_files=9, rss_bytes=50 * MB
    )
    tier = folder_of(folder.path / "tiers" / "1-2")
    tier_facts = TierFacts(
        users=2,
        requests_each=20,
        began_ns=S,
        ended_ns=3 * S,
        before=level,
        deleted=40,
        not_deleted=None,
        looks=(msgspec.structs.replace(level, monotonic_ns=4 * S),),
    )
    tier.write_json("tier.json", tier_facts)
    records = [
        TierRecord(
            user=number % 2,
            index=number // 2,
            session_id=f"{number}",
            sent_ns=number * 50 * MS,
            head_ns=(number * 50 + 5) * MS,
            first_token_ns=(number * 50 + 15) * MS,
            done_ns=(number * 50 + 20) * MS,
            outcome=Outcome.OK,
            status=200,
            reason=None,
        )
        for number in range(40)
    ]
    samples = [
        Sample(
            S + look * S,
            look,
            "host",
            1,
            Reading(
                rss_bytes=(50 + look) * MB, rss_peak_bytes=(50 + look) * MB, cpu_user_s=look * 0.3, cpu_system_s=0.0
            ),
        )
        for look in range(4)
    ]
    lines = msgspec.json.Encoder().encode_lines
    (tier.path / "requests-0.jsonl").write_bytes(lines(records))
    (tier.path / "resources.jsonl").write_bytes(lines(samples))
    folder.write_json("sweep.json", read_sweep(folder.path))
    write_checksums(folder.path)
    return folder.path


@pytest.mark.parametrize("made", [cold, capacity, sweep])
def test_one_that_is_as_it_was_written_has_no_fault(
    tmp_path: Path, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path)
    assert audit(path) == 0, capsys.readouterr().out
    assert audit_run(path).figures > 15


@pytest.mark.parametrize(
    ("made", "file", "change", "said"),
    [
        (cold, "cold.json", "spreads.ready_ms.median", "it says 1, but the raw files give 301.0."),
        (capacity, "capacity.json", "steps.0.arrivals", "it says 1, but the raw files give 5000."),
        (capacity, "steps/*/summary.json", "load.ok", "it says 1, but the raw files give 5000."),
        (sweep, "sweep.json", "tiers.0.total_ms.p50", "it says 1, but the raw files give 20.0."),
    ],
    ids=["cold", "capacity", "step", "sweep"],
)
def test_a_figure_that_was_changed_with_its_hash_is_found_by_its_name(
    tmp_path: Path, made: Made, file: str, change: str, said: str
) -> None:
    path = made(tmp_path)
    (changed,) = path.glob(file)
    set_figure(changed, change, 1)
    write_checksums(path)
    name = changed.relative_to(path).as_posix()
    field = change.replace(".0.", "[0].")
    lines = [str(fault) for fault in audit_run(path).faults]
    assert any(line.startswith(f"{name}: {field}: {said}") for line in lines), lines


def test_a_step_that_cannot_be_read_is_named_with_its_folder(tmp_path: Path) -> None:
    path = capacity(tmp_path)
    (summary,) = path.glob("steps/*/summary.json")
    summary.write_text("{", encoding="utf-8")
    write_checksums(path)
    (fault,) = audit_run(path).faults
    assert fault.file == summary.relative_to(path).as_posix()
    assert "not strict JSON" in fault.sentence


def test_the_faults_of_a_step_name_its_folder(tmp_path: Path) -> None:
    """Those too that its summary has with itself."""
    path = capacity(tmp_path)
    (summary,) = path.glob("steps/*/summary.json")
    set_figure(summary, "loop_lag_ms.p50", 99.0)
    write_checksums(path)
    faults = audit_run(path).faults
    assert {fault.file for fault in faults} == {summary.relative_to(path).as_posix()}
    assert any("below p50" in fault.sentence for fault in faults)


def set_figure(file: Path, way: str, value: Any) -> None:
    """Change a field of a JSON file; way: names and places in lists, by dots."""
    document = json.loads(file.read_text(encoding="utf-8"))
    *above, last = way.split(".")
    inner = document
    for name in above:
        inner = inner[int(name)] if isinstance(inner, list) else inner[name]
    inner[last] = value
    file.write_text(json.dumps(document), encoding="utf-8")
