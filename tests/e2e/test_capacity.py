"""Real searches with a capacity that is known: the mock serves so many calls at once, each for so long.

2 seats and 25 ms to the first token make 80 calls a second; a request takes four of them, one after the other: 20 a
second and no more. Timers round up and the host adds its own, so somewhat less is found, and never more.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentdyno.analysis.capacity import read_result
from agentdyno.analysis.run_data import DataError
from agentdyno.contract.capacity import Answer, StepKind, load_steps
from tests.e2e.benches import ADAPTERS, PROGRAM, Bench, Benches, Ended, strict_json, wait_for

pytestmark = pytest.mark.e2e

KNOWN_RPS = 20.0
_WANTED = "AGENTDYNO_KNOWN_CAPACITY"
_KNOWN = pytest.mark.skipif(
    not os.environ.get(_WANTED), reason="a search of 5 minutes that wants a quiet machine: make test-capacity"
)
SEARCH = (str(PROGRAM), "capacity")
MOCK = ("--seats", "2", "--ttft", "25", "--slo", "p95<600ms,errors<1%", "--step", "5s", "--resolution", "20%")
FROM_15 = (*MOCK, "--rate", "15", "--max-rate", "60", "--max-steps", "22")


@pytest.fixture(scope="module")
def searched(module_benches: Benches) -> Ended:
    return module_benches.start("bare", *FROM_15, program=SEARCH).end(600)


def result(ended: Ended) -> dict[str, Any]:
    found = strict_json((ended.folder / "capacity.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def in_first_step(bench: Bench) -> None:
    wait_for(lambda: list(bench.out.glob("*/steps/*/raw/requests-*.jsonl")), "the first step")


@_KNOWN
@pytest.mark.timeout(700)
def test_the_known_capacity_is_found(searched: Ended) -> None:
    """Within the resolution and 15 % for what the mock's timers and the host add; a busy machine may leave a bound."""
    searched.check_clean()
    found = result(searched)
    rate = found["capacity_rps"] if found["capacity_rps"] is not None else found["at_least_rps"]
    if rate is None:
        late = [step for step in found["steps"] if step["answer"] == "invalid"]
        assert late, found["reason"]
        pytest.skip(f"this machine was too busy: the load generator was late in {len(late)} steps")
    assert rate <= KNOWN_RPS
    if found["capacity_rps"] is not None:
        assert rate >= KNOWN_RPS * 0.85 / 1.2
    assert searched.code == 0
    assert found["confirmation"]["held"] == 2
    assert f"{rate:g}/s met the objective" in searched.out


@_KNOWN
@pytest.mark.timeout(700)
def test_the_knee_shows_in_the_curve(searched: Ended) -> None:
    found = read_result(searched.folder)
    for step in found.steps:
        if step.answer is Answer.INVALID:
            continue
        assert step.goodput_rps is not None
        assert step.goodput_rps <= KNOWN_RPS * 1.05  # what the seats let through, however much is asked for
        assert step.answer is (Answer.MET if step.rate <= 16 else step.answer)
        assert step.answer is (Answer.NOT_MET if step.rate >= 24 else step.answer)
        assert step.aftermath.recovered_s is not None
    rates = [point.rate for point in load_steps(found)]
    assert rates == sorted(set(rates))
    kinds = {step.kind for step in found.steps}
    if found.confirmation is not None:
        assert kinds >= {StepKind.RAMP, StepKind.CONFIRM}
        processes = {step.kind: step.host_process for step in found.steps}
        assert processes[StepKind.CONFIRM] > processes[StepKind.RAMP]


@_KNOWN
@pytest.mark.timeout(700)
def test_everything_is_recomputed_from_the_raw_files(searched: Ended, tmp_path: Path) -> None:
    assert json.loads(json.dumps(msgspec.to_builtins(read_result(searched.folder)))) == result(searched)
    changed = searched.folder / "steps" / result(searched)["steps"][0]["run_id"] / "step.json"
    before = changed.read_bytes()
    try:
        changed.write_bytes(before.replace(b'"rate": 15.0', b'"rate": 14.0'))
        with pytest.raises(DataError, match="the search asks for ramp at 15/s"):
            read_result(searched.folder)
    finally:
        changed.write_bytes(before)


def test_ctrl_c_keeps_the_folder(benches: Benches) -> None:
    bench = benches.start("bare", *FROM_15, program=SEARCH)
    in_first_step(bench)
    bench.interrupt(signal.SIGINT)
    ended = bench.end()
    assert ended.code == 130
    assert ended.manifest["status"] == "interrupted"
    found = result(ended)
    assert (found["capacity_rps"], found["complete"]) == (None, False)
    assert "interrupted" in found["reason"]
    assert json.loads(json.dumps(msgspec.to_builtins(read_result(ended.folder)))) == found
    ended.check_clean()


def test_a_host_that_dies_ends_the_search_and_says_so(benches: Benches) -> None:
    bench = benches.start("bare", *FROM_15, program=SEARCH)
    in_first_step(bench)
    os.kill(bench.child("host"), signal.SIGKILL)
    ended = bench.end()
    assert ended.code == 3
    found = result(ended)
    assert found["capacity_rps"] is None
    assert [finding["code"] for finding in found["findings"]] == ["host_failed"]
    assert "killed by SIGKILL" in ended.out
    ended.check_clean()


def test_an_agent_that_is_wrong_is_not_searched(benches: Benches) -> None:
    bench = benches.start("always-fails", *FROM_15, program=SEARCH, AGENTDYNO_ADAPTERS=str(ADAPTERS))
    ended = bench.end()
    assert ended.code == 3
    assert [finding["code"] for finding in result(ended)["findings"]] == ["no_success"]


@pytest.mark.parametrize(("slo", "sentence"), [("p99<2", "needs a time in ms or s"), ("", "is no clause")])
def test_bad_words_start_nothing(benches: Benches, slo: str, sentence: str) -> None:
    ended = benches.start("bare", "--slo", slo, program=SEARCH).end()
    assert (ended.code, ended.out, ended.folders) == (2, "", [])
    assert sentence in ended.err
    assert len(ended.err.splitlines()) == 1
