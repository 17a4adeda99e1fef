"""`agentdyno report` and `agentdyno site`: from raw files to pages, and what a user's mistake is answered with."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from agentdyno.cli import run
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison
from agentdyno.contract.run import ExitCode
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.report.campaign_report import write_report
from tests.analysis.campaigns import Planted, write_campaign
from tests.browser import Browser
from tests.report.comparisons import comparison, empty

ENTRIES = (Planted("bare"), Planted("bare#2"), Planted("slow", cpu_ms=30.0, latency_ms=40.0, capacity_rps=40.0))


def test_a_campaign_is_reported_from_its_raw_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], browser: Browser
) -> None:
    invalid = [(2, LoadName.STEADY, "slow")]
    folder = write_campaign(tmp_path, ENTRIES, requests=200, invalid=invalid, heap_profiles=["slow"])
    assert run(["report", str(folder.path)]) == ExitCode.VALID
    assert capsys.readouterr().out.splitlines()[-1] == str(folder.path / "report.html")
    assert {"comparison.json", "report.html", "report.md", "figures.csv"} <= {f.name for f in folder.path.iterdir()}
    found = msgspec.json.decode((folder.path / "comparison.json").read_bytes(), type=Comparison)
    assert found.ranking[-1] == "slow"
    before = [
        (folder.path / name).read_bytes() for name in ("comparison.json", "report.html", "report.md", "figures.csv")
    ]
    assert run(["report", str(folder.path)]) == ExitCode.VALID
    assert before == [
        (folder.path / name).read_bytes() for name in ("comparison.json", "report.html", "report.md", "figures.csv")
    ]
    seen = browser.open(folder.path / "report.html", width=390)
    assert (seen.errors, seen.requested, seen.overflow()) == ([], [seen.url], 0)
    text = seen.evaluate("document.body.innerText")
    assert "17 of 18 runs count" in text
    assert seen.evaluate("document.querySelectorAll('tr.left-out').length") == 1
    assert seen.evaluate("document.querySelectorAll('#latency-steady path.line:not(.key *)').length") == 3
    assert "make_a" in seen.evaluate("document.querySelector('.heaps').textContent")


def test_one_run_is_reported_by_the_beginning_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_campaign(tmp_path, ENTRIES[:1], rounds=1, requests=100, loads=[LoadName.STEADY], probes=False)
    assert run(["report", "001", "--runs", str(folder.runs)]) == ExitCode.VALID
    assert capsys.readouterr().out.strip() == str(folder.runs / "001-bare-steady" / "report.html")
    assert (folder.runs / "001-bare-steady" / "report.html").is_file()


def test_a_folder_that_is_none_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path / "nowhere")]) == ExitCode.USAGE
    assert "is no run folder" in capsys.readouterr().err
    (tmp_path / "campaign.json").write_text("{")
    assert run(["report", str(tmp_path)]) == ExitCode.USAGE
    assert "campaign.json is not what this version writes" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["capacity.json", "sweep.json", "soak.json"])
def test_a_folder_that_is_no_run_is_not_shown_as_an_empty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = write_campaign(tmp_path, ENTRIES[:1], rounds=1, requests=10, loads=[LoadName.STEADY], probes=False)
    path = folder.runs / "001-bare-steady"
    (path / name).write_text("{}")
    for asked in ([str(path)], ["001", "--runs", str(folder.runs)]):
        assert run(["report", *asked]) == ExitCode.USAGE
        said = capsys.readouterr().err
        assert f"whose result is in its {name}. A page is made of runs and campaigns." in said
    assert not (path / "report.html").exists()


def test_the_index_lists_campaigns_the_newest_first_and_links_to_them(tmp_path: Path, browser: Browser) -> None:
    old = msgspec.structs.replace(comparison(), started_utc="2025-12-31T23:00:00Z")
    for name, what in (("20260102-new", comparison("bare", "<b>x</b>")), ("a b", old), ("nothing", empty())):
        folder = CampaignFolder(tmp_path / name)
        folder.path.mkdir()
        write_report(folder, what)
    (tmp_path / "not a campaign").mkdir()
    assert run(["site", str(tmp_path)]) == ExitCode.VALID
    page = (tmp_path / "index.html").read_text()
    links = re.findall(r'href="([^"]*/report\.html)"', page)
    assert list(dict.fromkeys(links))[-1] == "a%20b/report.html"
    assert len(set(links)) == 3
    assert not re.search(r"https?://", page)
    for width in (1280, 390):
        seen = browser.open(tmp_path / "index.html", width=width, dark=width == 390)
        assert (seen.errors, seen.requested, seen.overflow(), seen.hard_to_read()) == ([], [seen.url], 0, [])
    seen.click('a[href="a%20b/report.html"]')
    seen.wait_for("location.pathname.endsWith('/a%20b/report.html') && document.readyState === 'complete'")
    assert seen.errors == []


def test_the_index_of_nothing_and_of_something_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["site", str(tmp_path)]) == ExitCode.VALID
    assert "no campaign in this folder yet" in (tmp_path / "index.html").read_text()
    assert run(["site", str(tmp_path / "gone")]) == ExitCode.USAGE
    assert "is no folder" in capsys.readouterr().err
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "comparison.json").write_text(json.dumps({"schema_version": 1}))
    assert run(["site", str(tmp_path)]) == ExitCode.USAGE
    assert "has no report.html" in capsys.readouterr().err
    (tmp_path / "one" / "report.html").write_text("")
    assert run(["site", str(tmp_path)]) == ExitCode.USAGE
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entries", "requests", "traced"),
    [
        ((Planted("bare"), Planted("dead", capacity_rps=1e-6)), 60, True),
        ((Planted("bare"), Planted("one")), 1, True),
        ((Planted("bare"), Planted("blind")), 60, False),
    ],
    ids=["zero successes", "one sample", "no phases"],
)
def test_little_data_makes_a_whole_report(
    tmp_path: Path, browser: Browser, entries: tuple[Planted, ...], requests: int, traced: bool
) -> None:
    folder = write_campaign(tmp_path, entries, rounds=2, requests=requests, traced=traced, probes=False)
    assert run(["report", str(folder.path)]) == ExitCode.VALID
    json.loads((folder.path / "comparison.json").read_bytes(), parse_constant=pytest.fail)
    seen = browser.open(folder.path / "report.html", width=390)
    assert (seen.errors, seen.overflow()) == ([], 0)
    text = seen.evaluate("document.body.innerText")
    words = set(re.findall(r"\w+", (folder.path / "report.md").read_text() + text))
    assert not words & {"nan", "NaN", "inf", "Infinity", "undefined", "None"}
    assert not re.search(r"\b(nan|inf)\b", (folder.path / "figures.csv").read_text())
