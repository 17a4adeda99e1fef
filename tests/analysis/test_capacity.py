"""What one step says, from a run whose every figure is known, and what came after it."""

from pathlib import Path

import msgspec
import pytest

from agentdyno.analysis.capacity import FACTS_FILE, PROBES, judge, recovered
from agentdyno.contract.capacity import (
    Aftermath,
    Answer,
    CapacityResult,
    Counters,
    ProbeAnswer,
    SearchPlan,
    StepFacts,
    StepKind,
    StepResult,
    Trend,
    load_steps,
    search_outcome,
)
from agentdyno.contract.comparison import LoadStep, SearchOutcome
from agentdyno.contract.objective import parse_objective
from agentdyno.contract.run import Outcome, Reason
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import Framework, Latency
from tests.analysis.test_search import plan as search_plan
from tests.golden.run import END, HOST, MS, T0, GoldenRun, S

IDLE = tuple(ProbeAnswer(0, 4.0) for _ in range(15))


def facts(**changes: object) -> StepFacts:
    """1000 arrivals of warm-up, 5000 measured and 500 of cool-down, each of 4 LLM calls; nothing in vain."""
    before = Counters(
        monotonic_ns=T0 - S, host_in_flight=0, host_outcomes={"ok": 10}, llm_in_flight=0, llm_calls=40, llm_cancelled=0
    )
    after = Counters(
        monotonic_ns=T0 + END + 700 * MS,
        host_in_flight=0,
        host_outcomes={"ok": 6510},
        llm_in_flight=0,
        llm_calls=40 + 4 * 6500,
        llm_cancelled=0,
    )
    probes = tuple(ProbeAnswer(T0 + END + (800 + 10 * n) * MS, 4.5) for n in range(PROBES))
    made = StepFacts(
        number=1,
        kind=StepKind.RAMP,
        rate=1000.0,
        host_process=1,
        idle=IDLE,
        before=before,
        after=after,
        looks=(after,),
        probes=probes,
    )
    return msgspec.structs.replace(made, **changes)


def judged(run: GoldenRun, parent: Path, slo: str, made: StepFacts | None = None) -> StepResult:
    folder = run.write(parent)
    folder.write_json(FACTS_FILE, made or facts())
    plan: SearchPlan = search_plan(objective=parse_objective(slo))
    return judge(folder.path, plan)


def test_a_step_that_meets_its_objective(tmp_path: Path) -> None:
    found = judged(GoldenRun(), tmp_path, "p99<60ms,errors<0.1%")
    assert (found.answer, found.trend.steady, found.reasons) == (Answer.MET, True, ())
    assert found.sentence.startswith("p99 51 ms; errors 0%")
    assert (found.arrivals, found.outcomes["ok"], found.seconds) == (5000, 5000, 5.0)


@pytest.mark.parametrize("slo", ["p99<50ms,errors<1%", "p50<25ms"])
def test_a_percentile_above_its_limit(tmp_path: Path, slo: str) -> None:
    found = judged(GoldenRun(), tmp_path, slo)
    assert found.answer is Answer.NOT_MET
    assert f"not {slo.partition(',')[0]}" in found.sentence


def test_errors_are_all_that_is_not_a_right_answer(tmp_path: Path) -> None:
    run = GoldenRun()
    outcomes = (Outcome.FAILED, Outcome.TIMEOUT, Outcome.REJECTED)
    for number, outcome in enumerate(outcomes):
        run.change(number, outcome=outcome, reason="because", llm_calls=None)
    run.backend = None
    found = judged(run, tmp_path, "errors<0.05%")
    assert found.answer is Answer.NOT_MET
    assert found.clauses[0].value == pytest.approx(0.06)
    assert judged(run, tmp_path, "errors<0.07%").answer is Answer.MET
    assert judged(run, tmp_path, "rejected<0.01%,errors<1%").answer is Answer.NOT_MET
    assert judged(run, tmp_path, "rejected<0.03%").answer is Answer.MET


def test_a_percentile_with_too_few_samples_is_not_told_and_a_broken_clause_decides_beside_it(tmp_path: Path) -> None:
    run = GoldenRun()
    for number in range(4600):
        run.change(number, outcome=Outcome.REJECTED, reason="http_429", llm_calls=None)
    run.backend = None
    assert judged(run, tmp_path, "p99<60ms,errors<95%").answer is Answer.NOT_TOLD
    assert judged(run, tmp_path, "p99<60ms,errors<90%").answer is Answer.NOT_MET


def test_a_late_generator_makes_a_step_invalid_whatever_the_figures(tmp_path: Path) -> None:
    run = GoldenRun()
    for number in range(100):
        record = run.records[1000 + number]
        run.change(number, sent_ns=record.intended_ns + 11 * MS, done_ns=record.done_ns + 11 * MS)
    found = judged(run, tmp_path, "p99<1s")
    assert found.answer is Answer.INVALID
    assert Reason.GENERATOR_LATE in {reason.code for reason in found.reasons}


def test_a_generator_short_of_cpu_makes_a_step_invalid(tmp_path: Path) -> None:
    run = GoldenRun()
    run.ends[0] = msgspec.structs.replace(run.ends[0], cpu_s=4.9)
    assert judged(run, tmp_path, "p99<1s").answer is Answer.INVALID


def test_a_queue_that_grows_does_not_meet_an_objective_that_it_has_not_broken_yet(tmp_path: Path) -> None:
    run = GoldenRun()
    for number in range(5000):
        record = run.records[1000 + number]
        run.change(number, sent_ns=record.intended_ns, done_ns=record.intended_ns + (5 * MS + number * 40_000))
    area_s = sum(5 * MS + number * 40_000 for number in range(5000)) / S
    late = sum(max(0, run.records[1000 + number].done_ns - END) for number in range(5000)) / S
    run.ends = [msgspec.structs.replace(end, in_flight_area_s=(area_s - late) / 2) for end in run.ends]
    found = judged(run, tmp_path, "p99<1s")
    assert (found.answer, found.trend.steady) == (Answer.NOT_MET, False)
    assert found.sentence.startswith("Not steady: latency rose by")


def test_the_aftermath_of_a_step_that_left_nothing(tmp_path: Path) -> None:
    found = judged(GoldenRun(), tmp_path, "p99<60ms").aftermath
    last_done_ns = max(record.done_ns for record in GoldenRun().records)
    assert found == Aftermath(
        drained_s=pytest.approx((last_done_ns - END) / S),
        recovered_s=0.8,
        idle_ms=4.0,
        probe_ms=4.5,
        left=0,
        answered_in_vain=0,
        llm_calls_in_vain=0,
        llm_calls_broken_off=0,
    )


def test_work_for_clients_who_had_left_is_counted(tmp_path: Path) -> None:
    """12 clients gave up; for 5 of them the host finished, for 7 it broke off after two calls of four each."""
    run = GoldenRun()
    for number in range(12):
        run.change(number, outcome=Outcome.TIMEOUT, status=None, reason="client_timeout", llm_calls=None)
    for number in range(12, 15):  # these were told 504 by the host: they had not left
        run.change(number, outcome=Outcome.TIMEOUT, status=504, reason="http_504", llm_calls=None)
    run.backend = None
    answered = {"ok": 10 + 6500 - 10, "client_gone": 7, "timeout": 3}
    calls = 40 + 4 * 6485 + 4 * 5 + 2 * 7 + 3 * 3
    after = msgspec.structs.replace(facts().after, host_outcomes=answered, llm_calls=calls, llm_cancelled=7)
    found = judged(run, tmp_path, "p99<1s", facts(after=after)).aftermath
    assert (found.left, found.answered_in_vain) == (12, 5)
    assert (found.llm_calls_in_vain, found.llm_calls_broken_off) == (43, 7)


def test_a_host_that_still_worked_is_drained_when_a_look_says_so(tmp_path: Path) -> None:
    busy = msgspec.structs.replace(facts().after, host_in_flight=3)
    empty = msgspec.structs.replace(facts().after, monotonic_ns=T0 + END + 3 * S)
    slow = tuple(ProbeAnswer(T0 + END + 4 * S + n, 30.0) for n in range(4))
    found = judged(GoldenRun(), tmp_path, "p99<60ms", facts(looks=(busy, empty), after=empty, probes=slow)).aftermath
    assert (found.drained_s, found.recovered_s) == (3.0, None)


def test_what_a_program_of_its_own_does_not_tell_is_not_zero(tmp_path: Path) -> None:
    silent = Counters(monotonic_ns=T0)
    found = judged(GoldenRun(), tmp_path, "p99<60ms", facts(before=silent, after=silent)).aftermath
    assert (found.answered_in_vain, found.llm_calls_in_vain, found.llm_calls_broken_off) == (None, None, None)


def test_recovered_is_as_fast_as_when_idle() -> None:
    idle = [4.0] * 15
    assert recovered(idle, [30.0, *[4.0] * PROBES])
    assert recovered(idle, [4.0, 4.0, 8.9, 8.9, 8.9])
    assert not recovered(idle, [9.1] * PROBES)
    assert not recovered(idle, [4.0] * (PROBES - 1))
    assert not recovered(idle, [4.0, 4.0, None, 4.0, 4.0])
    assert recovered([100.0] * 15, [149.0] * PROBES)
    assert not recovered([100.0] * 15, [151.0] * PROBES)


def test_the_curve_of_a_campaign_has_one_point_a_rate() -> None:
    def step(number: int, rate: float, answer: Answer, p99: float | None) -> StepResult:
        aftermath = Aftermath(
            drained_s=None,
            recovered_s=None,
            idle_ms=None,
            probe_ms=None,
            left=0,
            answered_in_vain=None,
            llm_calls_in_vain=None,
            llm_calls_broken_off=None,
        )
        return StepResult(
            number=number,
            kind=StepKind.RAMP,
            rate=rate,
            seconds=10.0,
            run_id=f"{number}",
            host_process=1,
            answer=answer,
            sentence="",
            arrivals=100,
            outcomes={"ok": 100},
            goodput_rps=rate - number,
            latency_ms=Latency(100, p50=1.0, p95=p99, p99=p99),
            in_flight_max=1,
            cpu_ms_per_request=None,
            clauses=(),
            trend=Trend(steady=True),
            aftermath=aftermath,
        )

    steps = (
        step(1, 20.0, Answer.NOT_MET, None),
        step(2, 10.0, Answer.MET, 5.0),
        step(3, 10.0, Answer.INVALID, 900.0),
        step(4, 10.0, Answer.MET, 7.0),
        step(5, 10.0, Answer.NOT_MET, 9.0),
        step(6, 30.0, Answer.INVALID, 9.0),
    )
    result = CapacityResult(
        framework=Framework("x", None, "default", "llm"),
        workload_hash=Workload().hash(),
        objective=parse_objective("p99<2s"),
        capacity_rps=10.0,
        at_least_rps=None,
        met_nowhere=False,
        complete=True,
        reason="",
        steps=steps,
        confirmation=None,
        overload_step=None,
    )
    assert search_outcome(result) == SearchOutcome(
        objective=("p99<2s", "errors<1%"), capacity_rps=10.0, at_least_rps=None, reason=""
    )
    assert load_steps(result) == (
        LoadStep(rate=10.0, goodput_rps=6.0, p50_ms=1.0, p95_ms=7.0, p99_ms=7.0, met=True),
        LoadStep(rate=20.0, goodput_rps=19.0, p50_ms=1.0, p95_ms=None, p99_ms=None, met=False),
    )


def test_a_step_beside_other_programs_is_noisy(tmp_path: Path) -> None:
    run = GoldenRun()
    assert run.samples is not None
    waiting = [
        msgspec.structs.replace(
            sample,
            reading=msgspec.structs.replace(sample.reading, run_queue_wait_s=0.1 * (sample.monotonic_ns - T0) / S + 1),
        )
        for sample in run.samples
        if sample.pid == HOST
    ]
    run.samples = waiting
    assert judged(run, tmp_path, "p99<60ms").noisy
    assert not judged(GoldenRun(), tmp_path, "p99<60ms").noisy
