"""A short real sweep: users in a closed loop, tier by tier, and what they leave behind."""

import json
from pathlib import Path

import pytest
from msgspec import to_builtins

from agentdyno.analysis.sweep import read_sweep
from tests.e2e.benches import ADAPTERS, PROGRAM, Benches, strict_json

pytestmark = pytest.mark.e2e
SWEEP = (str(PROGRAM), "sweep")


def test_tiers_of_the_control(benches: Benches) -> None:
    ended = benches.start("bare", "--concurrency", "1,4", "--requests", "8", "--ttft", "20", program=SWEEP).end(200)
    ended.check_clean()
    found = strict_json((ended.folder / "sweep.json").read_text(encoding="utf-8"))
    assert (ended.code, found["complete"]) == (0, True), ended.out
    assert [(tier["users"], tier["arrivals"], tier["ok"]) for tier in found["tiers"]] == [(1, 8, 8), (4, 8, 8)]
    for tier in found["tiers"]:
        submit, first, total = (tier[name]["p50"] for name in ("submit_ms", "first_token_ms", "total_ms"))
        # One LLM call of 20 ms before the first event, three more before the first text of the answer.
        assert 20 <= submit < first <= total
        assert first >= 80
        assert tier["total_ms"]["p95"] is None
        assert "8 right answers are too few for p95, which needs 90." in tier["notes"]
        assert tier["clean"] == {"clean": True, "seconds": tier["clean"]["seconds"], "deleted": 8, "left": []}
        assert tier["rss_peak_mb"] >= tier["rss_before_mb"] > 0
    assert "A closed loop: each user waits" in ended.out
    assert json.loads(json.dumps(to_builtins(read_sweep(ended.folder)))) == found


def test_what_fails_is_counted_and_not_timed(benches: Benches) -> None:
    bench = benches.start(
        "fails-after-the-first",
        *("--concurrency", "3", "--requests", "6"),
        program=SWEEP,
        AGENTDYNO_ADAPTERS=str(ADAPTERS),
    )
    ended = bench.end(200)
    found = json.loads((Path(ended.folder) / "sweep.json").read_text())
    assert ended.code == 3, ended.err  # it does not even answer the requests that its idle level is made of
    assert found["findings"][0]["code"] == "no_success"
