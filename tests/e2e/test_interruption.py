"""Ctrl-C and SIGTERM in each stage of a run: exit 130, the folder says so, and what was measured is kept."""

import signal
import time
from pathlib import Path

import pytest

from tests.e2e.benches import ADAPTERS, LONG, Bench, Benches, Ended, wait_for

pytestmark = pytest.mark.e2e
FAULTS = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}
SHORTEST = ("--rate", "20", "--warmup", "0s", "--duration", "1s", "--cooldown", "0s")


def check_interrupted(ended: Ended) -> None:
    assert ended.code == 130, ended.err
    assert ended.manifest["status"] == "interrupted"
    assert "interrupted" in ended.reasons
    assert ended.summary["verdict"]["valid"] is False
    assert "interrupted: The run was interrupted" in ended.out
    assert ended.err.endswith("agentdyno: interrupted.\n")
    ended.check_clean()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_starting(benches: Benches, number: signal.Signals) -> None:
    bench = benches.start("never-ready", *LONG, **FAULTS)
    bench.child("host")
    bench.interrupt(number)
    ended = bench.end()
    check_interrupted(ended)
    assert ended.summary["load"] is None


def test_in_warm_up(benches: Benches) -> None:
    bench = benches.start("bare", "--rate", "20", "--warmup", "60s", "--duration", "60s")
    bench.stage("warmup")
    bench.interrupt(signal.SIGINT)
    ended = bench.end()
    check_interrupted(ended)
    rows = ended.requests()
    assert rows
    assert {row["stage"] for row in rows} == {"warmup"}
    assert ended.summary["load"]["ok"] == 0
    assert ended.summary["load"]["excluded"]["warmup"]["ok"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_measuring(benches: Benches, number: signal.Signals) -> None:
    """With two workers; and twice, with different signals."""
    bench = benches.start("bare", *LONG, "--workers", "2" if number is signal.SIGINT else "1")
    bench.stage("measure")
    bench.interrupt(number)
    if number is signal.SIGTERM:
        bench.interrupt(signal.SIGINT)
    ended = bench.end()
    check_interrupted(ended)
    ended.check_conserved()
    assert ended.summary["load"]["ok"] > 0
    assert ended.summary["load"]["excluded"]["warmup"]["ok"] == 30
    assert ended.summary["latency_ms"]["service"]["max"] > 0
    assert ended.backend["stats"]["stages"]["m"]["calls"] >= 4 * ended.summary["load"]["ok"]
    assert not (ended.folder / "raw").exists()
    assert {row["reason"] for row in ended.requests()} <= {None, "interrupted"}


def test_while_ending_and_more_than_once(benches: Benches) -> None:
    """An impatient user: the ending goes on, and everything is kept."""
    bench = benches.start("bare", *SHORTEST)
    wait_for(lambda: list(bench.out.glob("*/raw/end-0.json")), "the end of the load")
    for _ in range(3):
        bench.interrupt(signal.SIGINT)
        time.sleep(0.1)  # two signals of a kind that come together are one
    ended = bench.end()
    check_interrupted(ended)
    assert ended.summary["load"]["ok"] == 20
    assert "Already ending: the children are being stopped and the folder written." in ended.err


def test_before_there_is_a_run(benches: Benches) -> None:
    """As soon as Python can be interrupted at all: no folder, or one that says what happened."""
    bench = benches.start("bare", *LONG)
    wait_for(lambda: _has_handler(bench), "the program's first lines")
    bench.interrupt(signal.SIGTERM)
    ended = bench.end()
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert (ended.left, ended.temporary) == ({}, [])
    for folder in ended.folders:
        assert (folder / "manifest.json").exists()


def _has_handler(bench: Bench) -> bool:
    """Whether the program catches SIGTERM already."""
    try:
        lines = Path(f"/proc/{bench.process.pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_under_make(benches: Benches) -> None:
    """A terminal sends Ctrl-C to make too, which waits and then names the program's exit code."""
    options = [f"{name}={value}" for name, value in (("RATE", "20"), ("WARMUP", "0s"), ("DURATION", "120s"))]
    bench = benches.start("bare", program=("make", "-s", "bench", "FRAMEWORK=bare", *options))
    bench.stage("measure")
    bench.interrupt(signal.SIGINT)
    ended = bench.end()
    assert ended.code in (2, -signal.SIGINT), ended.err
    assert "Error 130" in ended.err or "Interrupt" in ended.err
    assert ended.manifest["status"] == "interrupted"
    assert ended.summary["load"]["ok"] > 0
    ended.check_clean()
