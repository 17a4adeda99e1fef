"""The run that the analysis is timed on is a whole one: valid, traced, and all of it is computed."""

from pathlib import Path

import pytest

from agentdyno.analysis.comparison import compare_campaign
from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.run import Verdict
from agentdyno.selfcheck.analysis_work import work
from agentdyno.selfcheck.long_run import TRACE_EVERY, make_campaign


def test_it_is_valid_and_has_everything(tmp_path: Path) -> None:
    campaign, run = make_campaign(tmp_path, 6000)
    took = work(campaign)
    assert took.counted
    assert took.cpu_s > 0
    assert 50 < took.peak_mb < 5000
    summary = summarise(read_run(run.path))
    assert summary.verdict == Verdict(True)
    assert summary.load is not None
    assert summary.load.ok == 6000
    assert summary.latency_ms is not None
    assert summary.latency_ms.intended.p999 is not None
    assert summary.critical_path is not None
    assert summary.critical_path.of_requests == 6000 // TRACE_EVERY
    assert summary.phases_ms["plan"] is not None
    assert summary.phases_ms["plan"].share == pytest.approx(0.45, abs=0.001)
    assert summary.cpu_ms_per_request is not None
    assert summary.gc.collections == 30
    made = {file.name for file in campaign.path.iterdir()}
    assert {"comparison.json", "report.html", "report.md", "figures.csv"} <= made
    assert compare_campaign(campaign).under_load[0].arrivals == 6000
