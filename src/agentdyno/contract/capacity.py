"""`capacity.json`: the highest constant rate that meets an objective, and the curve on the way there and beyond.

It is a function of the search's folder alone: `search.json` (what was asked), and for each step a run folder with its
raw records and `step.json` (what only the rig saw). Computed twice it is the same to the byte.
"""

from __future__ import annotations

from enum import StrEnum
from statistics import median

import msgspec

from agentdyno.contract.comparison import LoadStep, SearchOutcome
from agentdyno.contract.objective import Clause
from agentdyno.contract.run import SCHEMA_VERSION, Finding
from agentdyno.contract.summary import Framework, Latency


class StepKind(StrEnum):
    """Why a rate was tried: the way up (or down), halving the gap, the failure above the knee again, the result again,
    and the rates beyond it.
    """

    RAMP = "ramp"
    BISECT = "bisect"
    ABOVE = "above"
    CONFIRM = "confirm"
    BEYOND = "beyond"


class Answer(StrEnum):
    """What one step says. `not told`: too few samples. `invalid`: the generator was late, or short of CPU, or the
    records do not add up; it says nothing about the framework.
    """

    MET = "met"
    NOT_MET = "not met"
    NOT_TOLD = "not told"
    INVALID = "invalid"


class SearchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`search.json`: what was asked for. resolution: the search ends when the rates around the knee differ by
    less, as a share of the lower one. least_rate: below it the objective needs more than most_step_s to be told.
    confirmations: repeats of the rate found, of which confirmed_by must hold. step_arrivals: the fewest of a step.
    """

    schema_version: int = SCHEMA_VERSION
    objective: tuple[Clause, ...]
    first_rate: float
    least_rate: float
    max_rate: float
    max_steps: int
    resolution: float
    confirmations: int
    confirmed_by: int
    beyond: tuple[float, ...]
    step_arrivals: int
    least_step_s: float
    most_step_s: float
    settle_s: float
    recovery_bound_s: float


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What host and mock have counted up to one moment; None for what they do not offer."""

    monotonic_ns: int
    host_in_flight: int | None = None
    host_outcomes: dict[str, int] | None = None
    llm_in_flight: int | None = None
    llm_calls: int | None = None
    llm_cancelled: int | None = None


class ProbeAnswer(msgspec.Struct, frozen=True):
    """A single request to an idle host: when it was sent, and how long it took; None: no right answer."""

    monotonic_ns: int
    ms: float | None


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`step.json`: what only the rig saw of one step. host_process: which one in turn, from 1. idle: probes of that
    process before any load. before, after: counters before the load, and when nothing was in flight any more (or the
    time for it was up). probes: after that, until they were as fast as when idle.
    """

    number: int
    kind: StepKind
    rate: float
    host_process: int
    idle: tuple[ProbeAnswer, ...]
    before: Counters
    after: Counters
    looks: tuple[Counters, ...] = ()
    probes: tuple[ProbeAnswer, ...] = ()


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a step was steady: latency and requests in flight did not rise from its beginning to its end.

    steady: None when there were too few arrivals to tell. *_rise: by how much they rose over the step, as a share of
    their middle (Theil and Sen's slope); *_rising: more than chance, and more than matters.
    """

    steady: bool | None
    latency_rise: float | None = None
    latency_rising: bool = False
    in_flight_rise: float | None = None
    in_flight_rising: bool = False


class ClauseResult(msgspec.Struct, frozen=True):
    """One clause on one step: the value in its unit, None when it could not be told."""

    clause: Clause
    value: float | None
    met: bool | None


class Aftermath(msgspec.Struct, frozen=True, kw_only=True):
    """What came after a step's last arrival. Seconds count from the end of the measurement window.

    drained_s: until nothing was in flight in the host and the mock. recovered_s: until probes were as fast as when
    idle; None: not within the bound. left: clients that gave up. answered_in_vain: answers that the host finished and
    nobody took. llm_calls_in_vain: LLM calls served for requests that came to no answer. llm_calls_broken_off: calls
    whose caller hung up.
    """

    drained_s: float | None
    recovered_s: float | None
    idle_ms: float | None
    probe_ms: float | None
    left: int
    answered_in_vain: int | None
    llm_calls_in_vain: int | None
    llm_calls_broken_off: int | None


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """One step. goodput_rps: verified answers that finished within the window, per second of it. noisy: the host had to
    wait for its own core, which something outside the search took.
    """

    number: int
    kind: StepKind
    rate: float
    seconds: float
    run_id: str
    host_process: int
    answer: Answer
    sentence: str
    arrivals: int
    outcomes: dict[str, int]
    goodput_rps: float | None
    latency_ms: Latency
    in_flight_max: int | None
    cpu_ms_per_request: float | None
    clauses: tuple[ClauseResult, ...]
    trend: Trend
    aftermath: Aftermath
    reasons: tuple[Finding, ...] = ()
    noisy: bool = False


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The repeats of the rate found. held: of so many runs; needed: of so many at most."""

    rate: float
    held: int
    runs: int
    needed: int
    at_most: int
    arrivals: int
    errors: int


class CapacityResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole search. capacity_rps: None when there is none to state; `reason` says why, or how it was found.

    at_least_rps: a confirmed rate that is only a lower bound, where MAX_RATE or the generator ended the search.
    environment_sha256: of the lock the framework's environment was built from. complete: the search came to its own
    end. overload_step: the valid step furthest beyond it, for its aftermath. warning: a sentence, when steps were
    noisy: then a quiet machine has another capacity. files: SHA-256 of each raw file, by
    its path within the folder.
    """

    schema_version: int = SCHEMA_VERSION
    framework: Framework
    environment_sha256: str | None = None
    workload_hash: str
    objective: tuple[Clause, ...]
    capacity_rps: float | None
    at_least_rps: float | None
    met_nowhere: bool
    complete: bool
    reason: str
    steps: tuple[StepResult, ...]
    confirmation: Confirmation | None
    overload_step: int | None
    warning: str | None = None
    findings: tuple[Finding, ...] = ()
    files: dict[str, str] = {}


def search_outcome(result: CapacityResult) -> SearchOutcome:
    """What the search came to."""
    return SearchOutcome(
        objective=tuple(str(clause) for clause in result.objective),
        capacity_rps=result.capacity_rps,
        at_least_rps=result.at_least_rps,
        reason=result.reason if result.warning is None else f"{result.reason} {result.warning}",
    )


def load_steps(result: CapacityResult) -> tuple[LoadStep, ...]:
    """The curve, one point a rate: the medians of its valid steps; met where most of them met the objective."""
    valid = [step for step in result.steps if step.answer is not Answer.INVALID]
    return tuple(
        _point(rate, [step for step in valid if step.rate == rate]) for rate in sorted({s.rate for s in valid})
    )


def _point(rate: float, steps: list[StepResult]) -> LoadStep:
    met = sum(step.answer is Answer.MET for step in steps)
    told = sum(step.answer is not Answer.NOT_TOLD for step in steps)
    return LoadStep(
        rate=rate,
        goodput_rps=_median([step.goodput_rps for step in steps]),
        p50_ms=_median([step.latency_ms.p50 for step in steps]),
        p95_ms=_median([step.latency_ms.p95 for step in steps]),
        p99_ms=_median([step.latency_ms.p99 for step in steps]),
        met=2 * met > told if told else None,
    )


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
