"""The arrival schedule: when each request is due, and the loop that follows it. No clock of its own.

Arrival i is due at t0 + i/rate, computed for each i from exact fractions and never accumulated, so that the
last arrival of ten minutes is as exact as the first. Warm-up, measurement and cool-down are parts of one
continuous schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from agentdyno.contract.proof import Stage
from agentdyno.contract.run import LoadPlan

NS_PER_S = 1_000_000_000
# Late arrivals fired without a pause: enough to catch up at once after a stall, few enough that a generator that
# cannot keep up still reads its answers.
BURST = 500


def exact(number: float) -> Fraction:
    """The simplest fraction that `number` is the nearest float of: 1/3 for 20/min, 3/10 for 0.3.

    Taken literally, 0.3 is a little less than 3/10, and 0.3 a second for 10 s would be two arrivals, not three.
    """
    for digits in range(1, 18):
        simple = Fraction(number).limit_denominator(10**digits)
        if float(simple) == number:
            return simple
    return Fraction(number)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One scheduled request: its place in the run and in its stage, and when it is due after t0."""

    index: int
    stage: Stage
    stage_index: int
    intended_ns: int


class Schedule:
    """All arrivals of a plan. A stage has floor(rate * its duration) of them, by exact arithmetic."""

    def __init__(self, plan: LoadPlan) -> None:
        """Raises ValueError with a sentence when the plan's rate or durations cannot be followed."""
        if not 0 < plan.rate < float("inf"):
            raise ValueError(f"The rate must be a number of requests per second above zero, not {plan.rate}.")
        if plan.workers < 1:
            raise ValueError(f"A plan needs at least one worker, not {plan.workers}.")
        self._rate = exact(plan.rate)
        self._workers = plan.workers
        self._counts: dict[Stage, int] = {}
        for stage, duration_s in (
            (Stage.WARMUP, plan.warmup_s),
            (Stage.MEASURE, plan.duration_s),
            (Stage.COOLDOWN, plan.cooldown_s),
        ):
            if not 0 <= duration_s < float("inf"):
                raise ValueError(f"The duration of {stage.value} must be zero seconds or more, not {duration_s}.")
            self._counts[stage] = int(self._rate * exact(duration_s))
        if self._counts[Stage.MEASURE] == 0:
            raise ValueError(
                f"At {plan.rate:g} requests a second, {plan.duration_s:g} s are too short for a single arrival; "
                "raise the rate or the duration."
            )
        self._warm = self._counts[Stage.WARMUP]
        self._cold = self._warm + self._counts[Stage.MEASURE]
        self.arrivals = self._cold + self._counts[Stage.COOLDOWN]
        # The window starts with its first arrival; that is the end of warm-up, to within one interval.
        self.measure_start_ns = self.due_ns(self._warm)
        self.measure_end_ns = self.measure_start_ns + int(exact(plan.duration_s) * NS_PER_S)

    def count(self, stage: Stage) -> int:
        """The number of arrivals of one stage."""
        return self._counts[stage]

    def due_ns(self, index: int) -> int:
        """When arrival `index` is due, in nanoseconds after t0, rounded down."""
        return index * NS_PER_S * self._rate.denominator // self._rate.numerator

    def arrival(self, index: int) -> Arrival:
        """Arrival `index` of the run."""
        if not 0 <= index < self.arrivals:
            raise IndexError(f"There is no arrival {index}; the run has {self.arrivals}.")
        if index < self._warm:
            stage, first = Stage.WARMUP, 0
        elif index < self._cold:
            stage, first = Stage.MEASURE, self._warm
        else:
            stage, first = Stage.COOLDOWN, self._cold
        return Arrival(index, stage, index - first, self.due_ns(index))

    def stage_at(self, elapsed_ns: int) -> Stage:
        """The stage that a moment after t0 belongs to."""
        if elapsed_ns < self.measure_start_ns:
            return Stage.WARMUP
        return Stage.MEASURE if elapsed_ns < self.measure_end_ns else Stage.COOLDOWN

    def share(self, worker: int) -> Iterator[Arrival]:
        """The arrivals of one worker: every index that is `worker` modulo the number of workers."""
        if not 0 <= worker < self._workers:
            raise IndexError(f"There is no worker {worker}; the plan has {self._workers}.")
        return (self.arrival(index) for index in range(worker, self.arrivals, self._workers))


class Due(Protocol):
    """Anything with a due time after t0, in nanoseconds."""

    @property
    def intended_ns(self) -> int:
        """When it is due."""


DueT = TypeVar("DueT", bound=Due)


def follow(
    arrivals: Iterable[DueT],
    t0_ns: int,
    clock_ns: Callable[[], int],
    wait_until_ns: Callable[[int], None],
    fire: Callable[[DueT], None],
) -> None:
    """Fire each arrival when it is due, in order; after a stall, all that were missed at once, none skipped.

    wait_until_ns may return early (it is called again) or late. It is also called with a moment that has passed,
    once in BURST late arrivals: it must then let others run and return. `arrivals` may be lazy: the next one is
    taken before the wait for it, so that what it costs to prepare is not lateness.
    """
    burst = 0
    for arrival in arrivals:
        due_ns = t0_ns + arrival.intended_ns
        if clock_ns() >= due_ns:
            burst += 1
            if burst == BURST:
                burst = 0
                wait_until_ns(due_ns)
        else:
            burst = 0
            while clock_ns() < due_ns:
                wait_until_ns(due_ns)
        fire(arrival)
