"""How a running bench is found, and one that has ended or died is not."""

import os
import subprocess
import sys
from pathlib import Path

from agentdyno.record.live import LiveRun, alive, running, tell


def told(runs: Path, name: str, pid: int) -> LiveRun:
    raw = runs / name / "raw"
    raw.mkdir(parents=True)
    run = LiveRun(
        run_id=name,
        framework="bare",
        scenario="chain",
        backend="mock",
        pid=pid,
        metrics={"rig": "http://127.0.0.1:1/metrics"},
    )
    tell(raw, run)
    return run


def a_pid_that_has_ended() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_newest_that_is_alive_comes_first(tmp_path: Path) -> None:
    older = told(tmp_path, "20260101T000000Z-bare-1", os.getpid())
    newer = told(tmp_path, "20260102T000000Z-bare-2", os.getpid())
    told(tmp_path, "20260103T000000Z-bare-3", a_pid_that_has_ended())
    assert running([tmp_path]) == [newer, older]
    (tmp_path / newer.run_id / "raw" / "live.json").unlink()
    assert running([tmp_path]) == [older]


def test_the_runs_of_a_campaign_are_found_too_whatever_folder_is_given(tmp_path: Path) -> None:
    """And its searches, of which each is watched as one run and not by its steps."""
    runs, campaigns = tmp_path / "runs", tmp_path / "campaigns"
    campaign = campaigns / "20260105T000000Z-ab" / "runs"
    first = told(runs, "20260104T000000Z-bare-1", os.getpid())
    second = told(campaign, "20260106T000000Z-bare-2", os.getpid())
    third = told(runs, "20260107T000000Z-bare-3", os.getpid())
    (campaign / second.run_id / "steps" / "01-search-10" / "raw").mkdir(parents=True)
    assert running([runs, campaigns]) == [third, second, first]
    assert running([campaigns]) == running([campaign]) == [second]


def test_where_there_is_nothing_nothing_runs(tmp_path: Path) -> None:
    assert running([tmp_path / "not there"]) == []


def test_another_users_process_is_alive() -> None:
    assert alive(1)
    assert alive(os.getpid())
    assert not alive(a_pid_that_has_ended())
