"""One check, one broken campaign: that check fails and says where, the others do not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentdyno.analysis.comparison import compare_campaign
from agentdyno.contract.campaign import LoadName, PlannedRun
from agentdyno.contract.comparison import CheckRow
from agentdyno.record.campaign_folder import CampaignFolder
from tests.analysis.campaigns import Planted, write_campaign

ENTRIES = [Planted("bare"), Planted("lean", llm_calls=1)]
Manifest = dict[str, Any]


def checks(folder: CampaignFolder) -> dict[str, CheckRow]:
    return {check.name: check for check in compare_campaign(folder).checks}


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    return write_campaign(tmp_path, ENTRIES, rounds=1, requests=60, probes=False)


def break_one(folder: CampaignFolder, change: Callable[[Manifest], None]) -> PlannedRun:
    run = folder.read().runs[0]
    file = folder.run(run.run_id or "") / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    change(manifest)
    file.write_text(json.dumps(manifest), encoding="utf-8")
    return run


def test_of_a_sound_campaign_all_pass(folder: CampaignFolder) -> None:
    found = checks(folder)
    assert {name for name, check in found.items() if check.passed is not True} == set()
    assert found["conservation of arrivals"].sentence == "240 arrivals: 240 ok."
    assert "1 by lean; 4 by bare" in found["same work"].sentence


def area(manifest: Manifest) -> None:
    manifest["workers"][0]["in_flight_area_s"] += 0.5 * manifest["plan"]["duration_s"]


def busy(manifest: Manifest) -> None:
    manifest["workers"][0]["cpu_s"] = 0.9 * manifest["plan"]["duration_s"]


def rate(manifest: Manifest) -> None:
    manifest["plan"]["rate"] *= 1.05


def slow(manifest: Manifest) -> None:
    manifest["calibration"]["after"]["median_ms"] *= 1.3


def other_commit(manifest: Manifest) -> None:
    manifest["commit"] = "f" * 40


def other_machine(manifest: Manifest) -> None:
    manifest["machine"]["kernel"] = "7.0"


@pytest.mark.parametrize(
    ("change", "name", "words", "counts"),
    [
        (area, "Little's law", "differ by at most", False),
        (busy, "generator against host", "used 90 % of a core", False),
        (rate, "achieved rate", "off the requested one (no. 1", False),
        (slow, "speed of the host's core", "apart", True),
        (other_commit, "one machine, one program", "differ in: program", True),
        (other_machine, "one machine, one program", "differ in: machine", True),
    ],
)
def test_what_is_broken_is_found(
    folder: CampaignFolder, change: Callable[[Manifest], None], name: str, words: str, counts: bool
) -> None:
    run = break_one(folder, change)
    comparison = compare_campaign(folder)
    failed = {check.name: check.sentence for check in comparison.checks if check.passed is False}
    assert set(failed) == {name} | (set() if counts else {"runs"})
    assert words in failed[name]
    assert comparison.runs[run.number - 1].counted is counts


def test_lost_arrivals(tmp_path: Path) -> None:
    place = (1, LoadName.STANDARD, "lean")
    found = checks(write_campaign(tmp_path, ENTRIES, rounds=1, requests=60, invalid=[place], probes=False))
    assert found["conservation of arrivals"].passed is False
    assert "(lean, standard), which do not count" in found["conservation of arrivals"].sentence
    assert found["runs"].passed is False
    assert "Of 4 planned runs 3 count. Not counted: no. " in found["runs"].sentence


def test_a_repeat_mends_the_runs_and_is_told(tmp_path: Path) -> None:
    place = (1, LoadName.STANDARD, "lean")
    found = checks(write_campaign(tmp_path, ENTRIES, rounds=1, requests=60, repeated=[place], probes=False))
    assert found["runs"].passed is True
    assert "Measured once more, because the rig or the machine had spoilt it: 1." in found["runs"].sentence
