"""The audit of a campaign: what was left out, what does not belong, and a comparison that says something else."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentdyno.analysis.comparison import compare_campaign
from agentdyno.audit.campaign import audit_campaign
from agentdyno.audit.command import audit
from agentdyno.contract.campaign import Campaign, LoadName
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.checksums import write_checksums
from agentdyno.report.campaign_report import write_report
from tests.analysis.campaigns import Planted, write_campaign


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = [Planted("bare"), Planted("bare#2"), Planted("slow", cpu_ms=20.0)]
    folder = write_campaign(tmp_path_factory.mktemp("made"), entries, 3, requests=100, loads=[LoadName.STEADY])
    for run in folder.runs.iterdir():
        write_checksums(run)
    write_report(folder, compare_campaign(folder))
    write_checksums(folder.path)
    return folder.path


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Path:
    """A copy under the same name, to be changed."""
    return Path(shutil.copytree(made, tmp_path / made.name))


def faults(path: Path) -> list[str]:
    return [str(fault) for fault in audit_campaign(path).faults]


def change(path: Path, edit: Callable[[Campaign], Any]) -> None:
    """Change campaign.json, and the hashes with it."""
    folder = CampaignFolder(path)
    campaign = folder.read()
    edit(campaign)
    folder.write(campaign)
    write_checksums(path)


def test_a_good_campaign_has_no_fault(made: Path) -> None:
    found = audit_campaign(made)
    assert [str(fault) for fault in found.faults] == []
    assert found.figures > 1000
    assert found.files > 100


def test_a_figure_of_the_comparison_is_found_by_its_name(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = campaign / "comparison.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["under_load"][2]["figures"][1]["median"] = 19.0
    file.write_text(json.dumps(document), encoding="utf-8")
    write_checksums(campaign)
    assert audit(campaign) == 1
    out = capsys.readouterr().out
    assert "fault  comparison.json: under_load[2].figures[1].median: it says 19.0, but the raw files give 20." in out


@pytest.mark.parametrize(("name", "number"), [("report.html", b"20"), ("report.md", b"20"), ("figures.csv", b"20")])
def test_a_number_that_was_changed_in_a_report_is_found(campaign: Path, name: str, number: bytes) -> None:
    file = campaign / name
    before = file.read_bytes()
    file.write_bytes(before.replace(number, b"19", 1))
    found = audit_campaign(campaign)
    line = next(line for fault in found.faults if "this version makes" in (line := str(fault)))
    assert line.startswith(f"{name}: line ")
    assert line.endswith("on it is not what this version makes of comparison.json.")


def test_a_report_of_another_version_is_a_note_while_its_hash_holds(
    campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (campaign / "report.md").write_text("in other words\n", encoding="utf-8")
    write_checksums(campaign)
    found = audit_campaign(campaign)
    assert found.faults == []
    assert any(note.startswith("report.md was made by another version of this program") for note in found.notes)
    monkeypatch.setattr("agentdyno.audit.campaign.sources_sha256", lambda labels: "c" * 64)  # as the campaign says
    assert [fault.file for fault in audit_campaign(campaign).faults] == ["report.md"]


def test_a_changed_run_is_found_in_the_run_and_in_the_comparison(campaign: Path) -> None:
    run = next(path for path in campaign.glob("runs/*-slow-steady"))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    summary["memory_mb"]["rss_peak"] = 50.0
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    write_checksums(run)
    found = faults(campaign)
    assert any(
        line.startswith(f"runs/{run.name}/summary.json: memory_mb.rss_peak: it says 50.0, but") for line in found
    )
    assert any(line.startswith(f"runs/{run.name}/SHA256SUMS: Its SHA-256 is") for line in found)


def test_a_run_that_was_left_out_is_found(campaign: Path) -> None:
    extra = campaign / "runs" / "a-bad-one"
    shutil.copytree(next(campaign.glob("runs/*-slow-steady")), extra)
    assert "runs/a-bad-one: the folder is there, but campaign.json does not name the run." in faults(campaign)


def test_a_run_that_is_missing_is_found(campaign: Path) -> None:
    run = next(campaign.glob("runs/*-slow-steady"))
    shutil.rmtree(run)
    found = faults(campaign)
    assert f"runs/{run.name}: campaign.json names this run, but its folder is not there." in found
    assert any(line.startswith("comparison.json:") for line in found)


def test_a_run_in_anothers_place_is_found(campaign: Path) -> None:
    def swap(found: Campaign) -> None:
        at = next(n for n, run in enumerate(found.runs) if run.label == "slow")
        other = next(run for run in found.runs if run.label == "bare" and run.load == found.runs[at].load)
        found.runs[at] = msgspec.structs.replace(found.runs[at], run_id=other.run_id)

    change(campaign, swap)
    found = faults(campaign)
    assert any("stands in 2 places" in line for line in found)
    assert any('framework.name: it says "bare", but campaign.json' in line for line in found)


def test_a_place_without_a_run_is_found(campaign: Path) -> None:
    change(campaign, lambda found: found.runs.pop())
    assert any("in round 3, load" in line and "is missing" in line for line in faults(campaign))


def test_a_workload_that_is_not_its_hash(campaign: Path) -> None:
    def other(found: Campaign) -> None:
        found.workload = msgspec.structs.replace(found.workload, seed=99)

    change(campaign, other)
    assert any(line.startswith("campaign.json: workload_hash: it says") for line in faults(campaign))


def test_a_campaign_of_another_version_is_a_sentence(campaign: Path) -> None:
    (campaign / "campaign.json").write_text("{}", encoding="utf-8")
    write_checksums(campaign)
    (line,) = faults(campaign)
    assert line.startswith("campaign.json: ")
    assert "is not what this version writes" in line


def test_a_campaign_that_goes_on_has_no_comparison_yet(campaign: Path) -> None:
    (campaign / "comparison.json").unlink()
    write_checksums(campaign)
    found = audit_campaign(campaign)
    assert found.faults == []
    assert "There is no comparison.json: the campaign was not compared yet." in found.notes
