"""From a campaign's raw files to its comparison: the planted figures come out, and nothing else decides."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentdyno.analysis.comparison import compare_campaign
from agentdyno.analysis.metrics import METRICS
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison, Difference, EntryUnderLoad, FigureSet, Ratio
from agentdyno.contract.run import Reason
from agentdyno.record.campaign_folder import CampaignFolder, strict_json
from agentdyno.record.folder import FolderError
from tests.analysis.campaigns import CONTROL_AND_NULL, USUAL, Planted, write_campaign

STEADY, STANDARD = LoadName.STEADY, LoadName.STANDARD


def under(comparison: Comparison, label: str, load: LoadName) -> EntryUnderLoad:
    return next(each for each in comparison.under_load if (each.label, each.load) == (label, load))


def figures(comparison: Comparison, label: str, load: LoadName, metric: str) -> FigureSet:
    return next(each for each in under(comparison, label, load).figures if each.metric == metric)


def ratio(comparison: Comparison, label: str, load: LoadName, metric: str) -> Ratio:
    found = figures(comparison, label, load, metric).ratio_to_control
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> CampaignFolder:
    places = {"invalid": [(2, STEADY, "lean")], "repeated": [(3, STANDARD, "heavy")], "heap_profiles": ["heavy"]}
    return write_campaign(tmp_path_factory.mktemp("campaign"), rounds=4, **places)


@pytest.fixture(scope="module")
def comparison(folder: CampaignFolder) -> Comparison:
    return compare_campaign(folder)


def test_the_planted_ratios_come_out(comparison: Comparison) -> None:
    for metric, load, planted in (
        ("cpu_per_request", STEADY, 30.0 / 2.0),
        ("p50", STEADY, 60.0 / 5.0),
        ("rss_peak", STANDARD, 310.0 / 100.0),
        ("goodput", STANDARD, 31.0 / 200.0),
        ("tokens", STEADY, 2060.0 / 1360.0),
    ):
        found = ratio(comparison, "heavy", load, metric)
        assert found.pairs == 4, metric
        assert found.median == pytest.approx(planted, rel=0.08), metric
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.median <= found.high
        assert found.difference is (Difference.LOWER if planted < 1 else Difference.HIGHER), metric
    tax = figures(comparison, "heavy", STEADY, "cpu_per_request").tax
    assert tax is not None
    assert tax.median == pytest.approx(28.0, rel=0.05)


def test_the_double_differs_in_nothing(comparison: Comparison) -> None:
    assert comparison.null_test is not None
    assert comparison.null_test.passed is True
    assert len(comparison.null_test.rows) == sum(len(metric.headline) for metric in METRICS)
    assert "bare#2" not in comparison.ranking


def test_the_control_has_no_ratio_to_itself(comparison: Comparison) -> None:
    for load in (STEADY, STANDARD):
        assert all(
            each.ratio_to_control is None and each.tax is None for each in under(comparison, "bare", load).figures
        )


def test_an_invalid_run_is_shown_and_not_counted(comparison: Comparison) -> None:
    lean = under(comparison, "lean", STEADY)
    assert (lean.valid_runs, lean.invalid_runs) == (3, 1)
    assert figures(comparison, "lean", STEADY, "p50").per_round[1] is None
    assert ratio(comparison, "lean", STEADY, "p50").pairs == 3
    row = next(row for row in comparison.runs if not row.counted and row.label == "lean")
    assert Reason.NOT_CONSERVED in [reason.code for reason in row.reasons]
    assert row.files["requests.parquet"]
    assert lean.arrivals == 3 * 600 == sum(lean.outcomes.values())


def test_a_repeat_stands_for_the_spoilt_run(comparison: Comparison) -> None:
    heavy = under(comparison, "heavy", STANDARD)
    assert (heavy.valid_runs, heavy.invalid_runs) == (4, 1)
    assert None not in figures(comparison, "heavy", STANDARD, "goodput").per_round


def test_pooled_percentiles_are_of_all_rounds(comparison: Comparison) -> None:
    found = figures(comparison, "bare", STEADY, "p99").pooled
    assert found is not None
    assert found.n == 2400
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 5.1 * math.exp(0.3 * 2.326) <= found.high
    assert figures(comparison, "bare", STEADY, "p999").pooled == msgspec.structs.replace(
        found, value=None, low=None, high=None
    )
    assert figures(comparison, "bare", STEADY, "rss_peak").pooled is None


def test_curves_and_phases(comparison: Comparison) -> None:
    bare = under(comparison, "bare", STEADY)
    shares = [point.x for point in bare.latency_curve]
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)
    assert [point.y for point in bare.latency_curve] == sorted(point.y for point in bare.latency_curve)
    assert 1 / 2400 < shares[-1] < 0.01
    assert 0 < len(bare.memory_curve) <= 200
    assert max(point.y for point in bare.memory_curve) == pytest.approx(100.0, rel=0.03)
    assert bare.phases is not None
    assert sum(phase.share for phase in bare.phases) == pytest.approx(1.0)
    assert {phase.phase: round(phase.share, 2) for phase in bare.phases}["plan"] == 0.45


def test_facts_of_the_entries(comparison: Comparison) -> None:
    bare, double, lean, heavy = comparison.entries
    assert (bare.control, bare.null, double.control, double.null) == (True, False, False, True)
    assert heavy.capacity_rps == pytest.approx(31.0, rel=0.05)
    assert double.capacity_rps is None
    assert heavy.heap_bytes is not None
    assert [row.value for row in heavy.heap_bytes] == [155e6, 103_333_333.0, 51_666_667.0]
    assert heavy.heap_bytes[0].place == "make_a (site-packages/heavy/a.py:20)"
    assert lean.heap_bytes is None
    assert comparison.ranking == ("lean", "bare", "heavy")


def test_sentences_say_what_stands_out(comparison: Comparison) -> None:
    _, double, lean, heavy = (entry.sentence for entry in comparison.entries)
    assert "times (" in heavy
    assert "the control's; overloaded under the standard load, where it answers 3" in heavy
    assert "1.51 times the control's tokens (2,060 per request)" in heavy
    assert "memory peaks at 3" in heavy
    assert "less work for the LLM: 1 call per request, the control 4" in lean
    assert comparison.null_test is not None
    assert double == comparison.null_test.sentence
    unequal = [text for text in comparison.not_to_conclude if "lean (1) against 4 LLM calls" in text]
    assert len(unequal) == 1
    assert any("heavy under the standard load alone" in text for text in comparison.not_to_conclude)


def test_between_frameworks(comparison: Comparison) -> None:
    assert {(row.a, row.b) for row in comparison.pairs} == {("lean", "heavy")}
    cpu = next(row for row in comparison.pairs if row.metric == "cpu_per_request")
    assert cpu.load is STEADY
    assert cpu.ratio.pairs == 3
    assert cpu.ratio.median == pytest.approx(1.9 / 30.0, rel=0.05)


def test_computed_twice_it_is_the_same_to_the_byte_wherever_it_lies(
    folder: CampaignFolder, comparison: Comparison, tmp_path: Path
) -> None:
    moved = CampaignFolder(Path(shutil.copytree(folder.path, tmp_path / folder.campaign_id)))
    assert strict_json(compare_campaign(moved)) == strict_json(comparison)
    assert msgspec.json.decode(strict_json(comparison), type=Comparison) == comparison


def test_summaries_are_not_read(folder: CampaignFolder, comparison: Comparison, tmp_path: Path) -> None:
    moved = CampaignFolder(Path(shutil.copytree(folder.path, tmp_path / folder.campaign_id)))
    for summary in moved.runs.glob("*/summary.json"):
        summary.write_text("{}", encoding="utf-8")
    assert compare_campaign(moved) == comparison


def test_a_run_that_cannot_be_read_is_not_counted(folder: CampaignFolder, tmp_path: Path) -> None:
    moved = CampaignFolder(Path(shutil.copytree(folder.path, tmp_path / folder.campaign_id)))
    runs = [run for run in moved.read().runs if run.label == "heavy" and run.load is STEADY]
    (moved.run(runs[0].run_id or "") / "requests.parquet").write_bytes(b"no parquet")
    shutil.rmtree(moved.run(runs[1].run_id or ""))
    found = compare_campaign(moved)
    rows = [row for row in found.runs if row.number in (runs[0].number, runs[1].number)]
    assert [row.counted for row in rows] == [False, False]
    assert all(str(tmp_path) not in reason.message for row in rows for reason in row.reasons)
    assert under(found, "heavy", STEADY).valid_runs == 2
    assert ratio(found, "heavy", STEADY, "cpu_per_request").difference is Difference.UNCLEAR


def changed(folder: CampaignFolder, file: str, **fields: Any) -> None:
    path = folder.path / file
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"workload_hash": "0" * 16}, "workload"),
        ({"admission": None}, "admission limit"),
        ({"environment": {"lock_sha256": "0" * 64}}, "environment"),
        ({"heap_profile": {"profiler": "memalloc"}}, "heap profiler"),
        ({"native_spans": {"title": "OpenInference"}}, "instrumentation was in the process"),
    ],
)
def test_a_run_of_another_kind_does_not_count(fields: dict[str, Any], what: str, tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, CONTROL_AND_NULL, rounds=1, requests=20, probes=False)
    run = folder.read().runs[0]
    changed(folder, f"runs/{run.run_id}/manifest.json", **fields)
    row = compare_campaign(folder).runs[0]
    assert row.counted is False
    assert any(what in reason.message for reason in row.reasons)


def test_the_server_of_its_runs_is_described_and_what_was_stated_of_it_is_no_finding(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, CONTROL_AND_NULL, requests=100)
    assert compare_campaign(folder).backend is msgspec.UNSET
    backend = {"kind": "vllm", "model": "m", "url": None, "stated": "--parser x", "told": {"version": "0.31.0"}}
    campaign = folder.read()
    campaign.settings = "--parser x"
    campaign.workload = msgspec.structs.replace(campaign.workload, served_by="vllm m, stated: --parser x")
    folder.write(campaign)
    for file in folder.path.glob("runs/*/manifest.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "backend": backend}))
    found = compare_campaign(folder)
    assert found.backend == backend
    assert "Not that the backend was started as stated (--parser x)" in " ".join(found.not_to_conclude)
    restarted = {**backend, "told": {"version": "0.32.0"}}
    last = folder.run(campaign.runs[-1].run_id or "") / "manifest.json"
    last.write_text(json.dumps({**json.loads(last.read_text()), "backend": restarted}))
    (check,) = (one for one in compare_campaign(folder).checks if one.name == "one machine, one program")
    assert (check.passed, "They differ in: backend." in check.sentence) == (False, True)


def test_a_campaign_that_is_still_going_on(tmp_path: Path) -> None:
    missing = [(2, load, entry.label) for load in LoadName for entry in USUAL]
    found = compare_campaign(write_campaign(tmp_path, rounds=2, requests=20, missing=missing))
    assert found.complete is False
    assert found.null_test is not None
    assert found.null_test.passed is None
    assert {row.ratio.difference for row in found.pairs} == {Difference.UNCLEAR}
    assert any("fewer than 3 valid rounds" in text for text in found.not_to_conclude)
    strict_json(found)


def test_nothing_measured_yet(tmp_path: Path) -> None:
    missing = [(1, load, entry.label) for load in LoadName for entry in CONTROL_AND_NULL]
    found = compare_campaign(write_campaign(tmp_path, CONTROL_AND_NULL, rounds=1, missing=missing, probes=False))
    assert found.machine == {}
    assert found.ranking == ()
    assert {check.passed for check in found.checks} <= {None, False}
    assert found.entries[0].sentence.startswith("No valid run")
    strict_json(found)


def test_zero_successes_one_sample_no_traces_and_a_wild_name(tmp_path: Path) -> None:
    entries = [*CONTROL_AND_NULL, Planted("<b>x</b>", gc_ms=0.0), Planted("dead", capacity_rps=0.0)]
    found = compare_campaign(write_campaign(tmp_path, entries, rounds=3, requests=1, traced=False))
    text = strict_json(found)
    assert "NaN" not in text
    assert "Infinity" not in text
    dead = under(found, "dead", STEADY)
    assert dead.valid_runs == 0
    assert dead.latency_curve == ()
    assert dead.phases is None
    assert all(each.median is None and each.cv is None for each in dead.figures)
    assert "dead" not in found.ranking
    one = under(found, "bare", STEADY)
    assert one.valid_runs == 3
    assert [each.pooled.value for each in one.figures if each.pooled is not None] == [None] * 7


def test_a_folder_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no campaign's folder"):
        compare_campaign(CampaignFolder(tmp_path))


def test_five_per_cent_of_cpu_are_found_from_raw_files(tmp_path: Path) -> None:
    entries = [*CONTROL_AND_NULL, Planted("slower", cpu_ms=2.1)]
    found = compare_campaign(
        write_campaign(tmp_path, entries, rounds=5, requests=100, loads=[STEADY], traced=False, probes=False)
    )
    assert ratio(found, "slower", STEADY, "cpu_per_request").difference is Difference.HIGHER
    assert ratio(found, "bare#2", STEADY, "cpu_per_request").difference is Difference.NONE


def test_a_repeat_says_of_which_run(comparison: Comparison) -> None:
    again = [run for run in comparison.runs if run.repeat_of is not None]
    assert [(run.round, run.load, run.label, run.counted) for run in again] == [(3, STANDARD, "heavy", True)]
    spoilt = next(run for run in comparison.runs if run.number == again[0].repeat_of)
    assert (spoilt.round, spoilt.load, spoilt.label, spoilt.counted) == (3, STANDARD, "heavy", False)
