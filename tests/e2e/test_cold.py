"""Cold starts for real, of the control and of an adapter that cannot start."""

import json
import os
import signal

import pytest

from tests.e2e.benches import ADAPTERS, PROGRAM, Benches

pytestmark = pytest.mark.e2e
COLD = (str(PROGRAM), "cold")


def test_cold_starts_are_measured_in_fresh_processes(benches: Benches) -> None:
    ended = benches.start("bare", "--runs", "2", program=COLD).end()
    ended.check_clean()
    found = json.loads((ended.folder / "cold.json").read_text())
    assert (ended.code, found["failure"], len(found["starts"])) == (0, None, 2)
    for start in found["starts"]:
        assert start["import_ms"] > 0
        assert 0 < start["ready_ms"] < start["answered_ms"]
        assert 0 < start["rss_before_import_mb"] < start["rss_imported_mb"] < start["rss_ready_mb"]
        assert start["rss_ready_mb"] <= start["rss_answered_mb"] * 1.01
    spread = found["spreads"]["ready_ms"]
    values = sorted(start["ready_ms"] for start in found["starts"])
    assert (spread["min"], spread["max"]) == (values[0], values[1])
    assert spread["median"] == pytest.approx(sum(values) / 2)
    assert found["distributions"] > 10
    assert found["disk_mb"] > 1
    assert "Spawn to first answer" in ended.out


def test_an_adapter_that_does_not_start_is_said_with_its_log(benches: Benches) -> None:
    variables = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}
    ended = benches.start("dies-at-its-start", "--runs", "1", program=COLD, **variables).end()
    ended.check_clean()
    found = json.loads((ended.folder / "cold.json").read_text())
    assert ended.code == 3
    assert found["starts"] == []
    assert found["spreads"]["ready_ms"] is None
    assert "the model card is missing" in found["failure"]


def test_a_host_that_is_killed_leaves_the_starts_before_it(benches: Benches) -> None:
    bench = benches.start("bare", "--runs", "3", program=COLD)
    os.kill(bench.child("host-1"), signal.SIGKILL)
    ended = bench.end()
    ended.check_clean()
    found = json.loads((ended.folder / "cold.json").read_text())
    assert ended.code == 3
    assert "The host was killed by SIGKILL before it" in found["failure"]
    assert found["failure"] in ended.out
    assert len(found["starts"]) == 1
    assert found["spreads"]["ready_ms"]["median"] == found["starts"][0]["ready_ms"]


def test_a_host_that_dies_of_its_first_request(benches: Benches) -> None:
    variables = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}
    ended = benches.start("dies-at-its-first-request", "--runs", "1", program=COLD, **variables).end()
    ended.check_clean()
    found = json.loads((ended.folder / "cold.json").read_text())
    assert (ended.code, found["starts"]) == (3, [])
    assert "The host was killed by SIGKILL before it had answered its first request." in found["failure"]


@pytest.mark.parametrize("runs", ["0", "-1", "many", "1000"])
def test_a_number_of_runs_that_cannot_be_meant_is_a_sentence(benches: Benches, runs: str) -> None:
    ended = benches.start("bare", f"--runs={runs}", program=COLD).end()
    assert (ended.code, ended.folders) == (2, [])
    assert "RUNS" in ended.err
