"""The synthetic campaigns are what they say: valid runs with the planted figures, the same bytes each time."""

from hashlib import sha256
from pathlib import Path

import pytest

from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.run import Reason
from agentdyno.record.campaign_folder import CampaignFolder
from tests.analysis.campaigns import CONTROL_AND_NULL, USUAL, Planted, write_campaign

PLACE = (1, LoadName.STEADY, "lean")


def hashes(folder: CampaignFolder) -> dict[str, str]:
    files = [file for file in folder.path.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder.path)): sha256(file.read_bytes()).hexdigest() for file in files}


def test_runs_are_valid_and_have_what_was_planted(tmp_path: Path) -> None:
    quiet = [
        Planted(e.label, cpu_ms=e.cpu_ms, capacity_rps=e.capacity_rps, llm_calls=e.llm_calls, cpu_noise=0.0)
        for e in USUAL
    ]
    folder = write_campaign(tmp_path, quiet, rounds=1, round_noise=0.0, invalid=[PLACE])
    for run in folder.read().runs:
        assert run.run_id is not None
        summary = summarise(read_run(folder.run(run.run_id)))
        entry = next(e for e in quiet if e.label == run.label)
        assert summary.verdict.valid == ((run.round, run.load, run.label) != PLACE)
        assert summary.cpu_ms_per_request == pytest.approx(entry.cpu_ms, rel=0.02)
        assert summary.overloaded == (entry.label == "heavy" and run.load is LoadName.STANDARD)
        assert summary.phases_ms["plan"] is not None
        assert summary.phases_ms["plan"].share == pytest.approx(0.45, abs=1e-3)
        assert summary.goodput_rps is not None
        if summary.verdict.valid:
            assert summary.goodput_rps == pytest.approx(min(summary.load.requested_rate, entry.capacity_rps), rel=0.02)  # type: ignore[union-attr]
        else:
            assert Reason.NOT_CONSERVED in [reason.code for reason in summary.verdict.reasons]


def test_the_same_arguments_make_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        write_campaign(tmp_path / name, CONTROL_AND_NULL, rounds=1, heap_profiles=["bare"]) for name in ("a", "b")
    )
    assert hashes(first) == hashes(second)
    other = write_campaign(tmp_path / "c", CONTROL_AND_NULL, rounds=1, seed=2)
    assert set(hashes(other).values()) != set(hashes(first).values())


def test_what_was_not_measured_has_no_folder(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, rounds=1, missing=[PLACE], probes=False)
    campaign = folder.read()
    assert [run.label for run in campaign.runs if run.run_id is None] == ["lean"]
    assert campaign.finished_utc is None
    assert len(list(folder.runs.iterdir())) == len(campaign.runs) - 1
