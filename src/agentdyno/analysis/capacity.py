"""A capacity search from its raw files: what each step said, and what they come to together."""

from __future__ import annotations

import math
from hashlib import sha256
from pathlib import Path
from statistics import median

import numpy as np

from agentdyno.analysis.figures import finished_in_window
from agentdyno.analysis.percentiles import samples_needed
from agentdyno.analysis.run_data import NS_PER_S, DataError, Requests, RunData, read_json, read_run
from agentdyno.analysis.search import Search, Trial
from agentdyno.analysis.steady import trend
from agentdyno.analysis.summary import summarise
from agentdyno.contract.capacity import (
    Aftermath,
    Answer,
    CapacityResult,
    ClauseResult,
    Confirmation,
    ProbeAnswer,
    SearchPlan,
    StepFacts,
    StepKind,
    StepResult,
    Trend,
)
from agentdyno.contract.objective import Clause, Measure
from agentdyno.contract.run import Outcome, Reason
from agentdyno.contract.summary import Latency, Load, Summary
from agentdyno.record.manifest import Manifest

PLAN_FILE, RESULT_FILE, FACTS_FILE, STEPS_FOLDER = "search.json", "capacity.json", "step.json", "steps"
# A few arrivals more than a percentile's floor, so that a failure or two within the objective does not leave it untold.
_SPARE = 1.05
# Recovered: the median of so many probes in a row is at most 1.5 times, or 5 ms more than, that of the idle host.
PROBES = 5
RECOVERED_RATIO = 1.5
RECOVERED_MS = 5.0
_HARMLESS = frozenset({Reason.NO_SUCCESS})


def arrivals_needed(objective: tuple[Clause, ...]) -> int:
    """The arrivals from which every percentile of an objective can be told."""
    floors = [samples_needed(clause.measure.quantile) for clause in objective if clause.measure.quantile is not None]
    return math.ceil(max([1, *floors]) * _SPARE)


def step_seconds(plan: SearchPlan, rate: float) -> float:
    """How long a step at `rate` is measured: until the objective can be told, within the bounds."""
    needed_s = math.ceil(plan.step_arrivals / rate * 10) / 10
    return min(plan.most_step_s, max(plan.least_step_s, needed_s))


def recovered(idle: list[float], probes: list[float | None]) -> bool:
    """Whether the last probes say that the host is as it was when idle."""
    last = probes[-PROBES:]
    known = [ms for ms in last if ms is not None]
    if len(known) < PROBES or not idle:
        return False
    return median(known) <= max(RECOVERED_RATIO * median(idle), median(idle) + RECOVERED_MS)


def read_result(folder: Path) -> CapacityResult:
    """Compute `capacity.json` from everything else in the folder.

    Raises DataError when a file is missing or broken, or the steps are not those that the search asks for.
    """
    plan = read_json(folder / PLAN_FILE, SearchPlan)
    manifest = read_json(folder / "manifest.json", Manifest)
    steps = [judge(path, plan) for path in sorted((folder / STEPS_FOLDER).glob("*")) if (path / FACTS_FILE).exists()]
    search = replay(plan, steps, folder)
    found = search.conclusion()
    ended = " ".join(finding.message for finding in manifest.findings)
    over = [step for step in steps if step.answer is Answer.NOT_MET and step.rate > (found.found or 0.0)]
    return CapacityResult(
        framework=manifest.framework,
        environment_sha256=manifest.environment.get("lock_sha256"),
        workload_hash=manifest.workload_hash,
        objective=plan.objective,
        capacity_rps=found.found if found.bounded else None,
        at_least_rps=None if found.bounded else found.found,
        met_nowhere=found.met_nowhere,
        complete=found.complete and not manifest.findings,
        reason=f"{ended} {found.sentence}".strip(),
        steps=tuple(steps),
        confirmation=None if found.found is None else _confirmation(plan, steps, found.found),
        overload_step=max(over, key=lambda step: step.rate).number if over else None,
        warning=_warning(steps),
        findings=tuple(manifest.findings),
        files=_hashes(folder),
    )


def _warning(steps: list[StepResult]) -> str | None:
    noisy = sum(step.noisy for step in steps)
    if not noisy:
        return None
    return (
        f"In {noisy} of {len(steps)} steps the host waited for its own core, on which other programs ran: "
        "a quiet machine has another, higher capacity."
    )


def replay(plan: SearchPlan, steps: list[StepResult], folder: Path) -> Search:
    """The search as the steps have answered it. Raises DataError when it would have asked for other ones."""
    search = Search(plan)
    for step in steps:
        asked = search.next()
        made = Trial(step.kind, step.rate)
        if asked != made:
            wanted = "no step" if asked is None else f"{asked.kind.value} at {asked.rate:g}/s"
            text = (
                f"{folder}: step {step.number} is {made.kind.value} at {made.rate:g}/s; the search asks for {wanted}."
            )
            raise DataError(text)
        search.tell(made, step.answer)
    return search


def judge(path: Path, plan: SearchPlan) -> StepResult:
    """One step from its run folder and `step.json`. Raises DataError."""
    facts = read_json(path / FACTS_FILE, StepFacts)
    data = read_run(path)
    summary = summarise(data)
    requests, load = data.requests, summary.load
    reasons = tuple(finding for finding in summary.verdict.reasons if finding.code not in _HARMLESS)
    steady = trend(requests, data.window()) if requests is not None else Trend(steady=None)
    clauses = tuple(_clause(clause, load, summary) for clause in plan.objective)
    answer, sentence = (Answer.INVALID, reasons[0].message) if reasons else _answer(clauses, steady, plan)
    return StepResult(
        number=facts.number,
        kind=facts.kind,
        rate=facts.rate,
        seconds=data.window().seconds,
        run_id=path.name,
        host_process=facts.host_process,
        answer=answer,
        sentence=sentence,
        arrivals=load.arrivals if load is not None else 0,
        outcomes={} if load is None else {outcome.value: getattr(load, outcome.value) for outcome in Outcome},
        goodput_rps=None if requests is None else finished_in_window(requests, data.window()) / data.window().seconds,
        latency_ms=summary.latency_ms.intended if summary.latency_ms is not None else Latency(0),
        in_flight_max=load.in_flight_max if load is not None else None,
        cpu_ms_per_request=summary.cpu_ms_per_request,
        clauses=clauses,
        trend=steady,
        aftermath=_aftermath(facts, data),
        reasons=reasons,
        noisy=any(note.code is Reason.NOISY for note in summary.verdict.notes),
    )


def _clause(clause: Clause, load: Load | None, summary: Summary) -> ClauseResult:
    if load is None or not load.arrivals:
        return ClauseResult(clause, None, None)
    value: float | None
    if clause.measure is Measure.ERRORS:
        value = 100 * (load.arrivals - load.ok) / load.arrivals
    elif clause.measure is Measure.REJECTED:
        value = 100 * load.rejected / load.arrivals
    else:
        value = None if summary.latency_ms is None else getattr(summary.latency_ms.intended, clause.measure.value)
    return ClauseResult(clause, value, None if value is None else value < clause.limit)


def _answer(clauses: tuple[ClauseResult, ...], steady: Trend, plan: SearchPlan) -> tuple[Answer, str]:
    """A clause that is broken decides, whatever cannot be told beside it."""
    broken = [result for result in clauses if result.met is False]
    if broken:
        return Answer.NOT_MET, "; ".join(f"{_value(result)}, not {result.clause}" for result in broken) + "."
    untold = [str(result.clause) for result in clauses if result.met is None]
    if untold:
        return (
            Answer.NOT_TOLD,
            f"Too few right answers for {', '.join(untold)}; {plan.step_arrivals} arrivals are meant.",
        )
    if steady.steady is None:
        return Answer.NOT_TOLD, "Too few arrivals to tell whether it was steady."
    if not steady.steady:
        what = " and ".join(
            f"{name} rose by {share:.0%} of its middle"
            for name, share, rising in (
                ("latency", steady.latency_rise or 0.0, steady.latency_rising),
                ("the number in flight", steady.in_flight_rise or 0.0, steady.in_flight_rising),
            )
            if rising
        )
        return Answer.NOT_MET, f"Not steady: {what} from beginning to end."
    return Answer.MET, "; ".join(_value(result) for result in clauses) + "."


def _value(result: ClauseResult) -> str:
    clause = result.clause
    return f"{clause.measure.value} {result.value:.4g}{' ' if clause.measure.quantile else ''}{clause.measure.unit}"


def _aftermath(facts: StepFacts, data: RunData) -> Aftermath:
    requests, before, after = data.requests, facts.before, facts.after
    window_ns = data.window_ns()
    idle = [probe.ms for probe in facts.idle if probe.ms is not None]
    back = _back(idle, facts.probes)
    # A time-out with a status is the host's own 504: that client was still there.
    left = None if requests is None else requests.outcome(Outcome.TIMEOUT) & np.isnan(requests.numbers("status"))
    return Aftermath(
        drained_s=_since(window_ns, _drained_ns(facts, data)),
        recovered_s=_since(window_ns, back),
        idle_ms=median(idle) if idle else None,
        probe_ms=median(known) if (known := [p.ms for p in facts.probes[-PROBES:] if p.ms is not None]) else None,
        left=0 if left is None else int(left.sum()),
        answered_in_vain=_answered_in_vain(facts, requests),
        llm_calls_in_vain=_more(before.llm_calls, after.llm_calls, _calls_answered(requests)),
        llm_calls_broken_off=_more(before.llm_cancelled, after.llm_cancelled, 0),
    )


def _drained_ns(facts: StepFacts, data: RunData) -> int | None:
    """When the last client had its answer or had gone, if the first look at host and mock found nothing in flight any
    more; else that of the first look that did.
    """
    t0_ns, requests = data.manifest.t0_monotonic_ns, data.requests
    empty = [look for look in facts.looks if not (look.host_in_flight or look.llm_in_flight)]
    if not empty or t0_ns is None or requests is None or not requests.has_ended.any():
        return None
    if empty[0] is facts.looks[0]:
        return t0_ns + int(requests.done_ns[requests.has_ended].max())
    return empty[0].monotonic_ns


def _back(idle: list[float], probes: tuple[ProbeAnswer, ...]) -> int | None:
    """When the probes began that were as fast as those of the idle host."""
    times = [probe.ms for probe in probes]
    for count in range(PROBES, len(probes) + 1):
        if recovered(idle, times[:count]):
            return probes[count - PROBES].monotonic_ns
    return None


def _since(window_ns: tuple[int, int] | None, moment_ns: int | None) -> float | None:
    return None if window_ns is None or moment_ns is None else max(0.0, (moment_ns - window_ns[1]) / NS_PER_S)


def _answered_in_vain(facts: StepFacts, requests: Requests | None) -> int | None:
    before, after = facts.before.host_outcomes, facts.after.host_outcomes
    if before is None or after is None or requests is None:
        return None
    taken = int((requests.numbers("status") == 200).sum())
    return _more(before.get("ok", 0), after.get("ok", 0), taken)


def _calls_answered(requests: Requests | None) -> int:
    """LLM calls of requests that came to an answer, by the host's count."""
    return 0 if requests is None else int(np.nansum(requests.numbers("llm_calls")))


def _more(before: int | None, after: int | None, known: int) -> int | None:
    return None if before is None or after is None else max(0, after - before - known)


def _confirmation(plan: SearchPlan, steps: list[StepResult], rate: float) -> Confirmation:
    runs = [step for step in steps if step.kind is StepKind.CONFIRM and step.rate == rate]
    runs = [step for step in runs if step.answer is not Answer.INVALID]
    held = [step for step in runs if step.answer is Answer.MET]
    return Confirmation(
        rate=rate,
        held=len(held),
        runs=len(runs),
        needed=plan.confirmed_by,
        at_most=plan.confirmations,
        arrivals=sum(step.arrivals for step in runs),
        errors=sum(step.arrivals - step.outcomes.get(Outcome.OK.value, 0) for step in runs),
    )


def _hashes(folder: Path) -> dict[str, str]:
    """Of all that the result is computed from."""
    names = (PLAN_FILE, FACTS_FILE, "manifest.json", "requests.parquet", "resources.parquet", "backend.json")
    files = sorted(file for file in folder.rglob("*") if file.name in names)
    return {file.relative_to(folder).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files}
