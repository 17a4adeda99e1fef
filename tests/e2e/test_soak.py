"""A short real soak of an adapter that keeps 4 KiB of every request; what is no leak is in analysis/test_growth."""

import json
from pathlib import Path

import pytest

from tests.e2e.benches import ADAPTERS, PROGRAM, Benches, Ended

pytestmark = pytest.mark.e2e
VARIABLES = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}
LOAD = ("--rate", "150", "--duration", "24s", "--warmup", "4s", "--timeout", "5s")


def soak(benches: Benches, framework: str) -> tuple[Ended, dict]:
    ended = benches.start(framework, *LOAD, program=(str(PROGRAM), "soak"), **VARIABLES).end(200)
    ended.check_clean()
    return ended, json.loads((Path(ended.folder) / "soak.json").read_text())


def test_a_leak_is_caught(benches: Benches) -> None:
    ended, found = soak(benches, "leaks")
    growth = found["growth"]
    assert (ended.code, growth["verdict"], found["failure"]) == (1, "grows", None)
    # 4096 bytes of it, 33 of the bytes object, a list of two.
    assert growth["slope_mb"] == pytest.approx(42, rel=0.25)
    assert growth["low_mb"] <= growth["slope_mb"] <= growth["high_mb"]
    assert growth["r2"] > 0.9
    assert growth["sentence"] in ended.out
    assert len(found["segments"]) == 13
    assert found["segments"][-1]["uss_bytes"] <= found["segments"][-1]["rss_bytes"]
