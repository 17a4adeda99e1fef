"""The search for the highest rate that meets an objective: which rate to try next, and what the answers come to.

No clock and no load: it is told what each step said. So it can be played again from the records, step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentdyno.contract.capacity import Answer, SearchPlan, StepKind

RAMP_FACTOR = 2.0
INVALID_TRIES = 3
_FALSE_FAILURES_MAX = 2
_NEAR = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """A rate to try, and why."""

    kind: StepKind
    rate: float


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the answers so far come to. found: confirmed. bounded: and something above it was not met, so that it is
    the capacity; otherwise it is only a lower bound. met_nowhere: not even at the least rate.
    """

    found: float | None
    bounded: bool
    met_nowhere: bool
    complete: bool
    sentence: str


class Search:
    """Ramp by doubling from the first rate, halve the gap around the knee geometrically, try the lowest failure once
    more (it may have been a hiccup), repeat the rate found, then go beyond it.
    """

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._told: list[tuple[Trial, Answer]] = []
        self._met: set[float] = set()
        self._failed: dict[float, Answer] = {}
        self._checked: set[float] = set()
        self._reversed = 0
        self._repeats: dict[float, list[bool]] = {}
        self._retry: Trial | None = None
        self._tries = 0

    def next(self) -> Trial | None:
        """The next step; None when the search is at its end. Asking changes nothing."""
        if len(self._told) >= self._plan.max_steps:
            return None
        if self._retry is not None:
            return self._retry
        if self._confirmed() is not None:
            return self._beyond()
        if len(self._told) >= self._plan.max_steps - len(self._plan.beyond):
            return None
        return self._closer()

    def tell(self, trial: Trial, answer: Answer) -> None:
        """What the step came to."""
        self._told.append((trial, answer))
        if answer is Answer.INVALID:
            self._tries += 1
            if self._tries < INVALID_TRIES:
                self._retry = trial
                return
        self._retry, self._tries = None, 0
        if trial.kind is StepKind.BEYOND:
            return
        if trial.kind is StepKind.CONFIRM:
            if answer is not Answer.INVALID:  # that says nothing of the rate, which has been met before
                self._repeated(trial.rate, answer)
        elif answer is Answer.MET:
            self._reversed += trial.kind is StepKind.ABOVE
            self._failed.pop(trial.rate, None)
            self._met.add(trial.rate)
        else:
            if trial.kind is StepKind.ABOVE:
                self._checked.add(trial.rate)
            if answer is not Answer.INVALID or trial.rate not in self._failed:
                self._failed[trial.rate] = answer

    def conclusion(self) -> Conclusion:
        """What is known now."""
        found = self._confirmed()
        complete = self.next() is None
        if found is not None:
            return self._found(found, complete)
        low, high = self._low(), self._high()
        if low is None and high is not None and self._at_the_bottom():
            told = self._failed[high] is Answer.NOT_MET
            text = (
                f"The objective was not met at {high:g}/s, the lowest rate that can be told."
                if told
                else (f"At {high:g}/s, the lowest rate tried, the steps were {self._failed[high].value}.")
            )
            return Conclusion(None, False, told, complete, text)
        reach = "No rate has met it yet." if low is None else f"It was met at {low:g}/s, but that is not confirmed."
        above = "" if high is None else f" At {high:g}/s it was {self._failed[high].value}."
        ended = f"The search ended after {len(self._told)} steps, before a rate was confirmed."
        return Conclusion(None, False, False, False, f"{ended} {reach}{above}")

    # what is known

    def _low(self) -> float | None:
        return max(self._met, default=None)

    def _high(self) -> float | None:
        """The lowest rate above the highest that was met, or the lowest of all."""
        low = self._low() or 0.0
        return min((rate for rate in self._failed if rate > low), default=None)

    def _confirmed(self) -> float | None:
        low = self._low()
        held = sum(self._repeats.get(low, ())) if low is not None else 0
        return low if held >= self._plan.confirmed_by else None

    def _at_the_bottom(self) -> bool:
        return min(self._failed, default=math.inf) <= self._plan.least_rate

    # the way to it

    def _closer(self) -> Trial | None:
        plan, low, high = self._plan, self._low(), self._high()
        if high is None:
            if low is None:
                return Trial(StepKind.RAMP, plan.first_rate)
            if low >= plan.max_rate:
                return Trial(StepKind.CONFIRM, low)
            return Trial(StepKind.RAMP, min(plan.max_rate, tidy(low * RAMP_FACTOR)))
        if low is None:
            if self._at_the_bottom():
                return None if high in self._checked else Trial(StepKind.ABOVE, high)
            return Trial(StepKind.RAMP, max(plan.least_rate, tidy(high / RAMP_FACTOR)))
        middle = tidy(math.sqrt(low * high))
        if high / low > 1 + plan.resolution and low < middle < high:
            return Trial(StepKind.BISECT, middle)
        if high not in self._checked and self._reversed < _FALSE_FAILURES_MAX:
            return Trial(StepKind.ABOVE, high)
        return Trial(StepKind.CONFIRM, low)

    def _repeated(self, rate: float, answer: Answer) -> None:
        repeats = self._repeats.setdefault(rate, [])
        repeats.append(answer is Answer.MET)
        failures = len(repeats) - sum(repeats)
        if failures > self._plan.confirmations - self._plan.confirmed_by:
            self._met.discard(rate)
            self._failed[rate] = answer
            self._checked.add(rate)

    def _beyond(self) -> Trial | None:
        found = self._confirmed()
        if found is None or self._high() is None:
            return None
        rates = [tidy(found * factor) for factor in self._plan.beyond]
        tried = [trial.rate for trial, answer in self._told if answer is not Answer.INVALID]
        done = [trial.rate for trial, _ in self._told if trial.kind is StepKind.BEYOND]
        for rate in rates:
            near = rate != rates[-1] and any(abs(rate - other) <= _NEAR * rate for other in tried)
            if rate <= self._plan.max_rate and not near and not any(other >= rate for other in done):
                return Trial(StepKind.BEYOND, rate)
        return None

    def _found(self, found: float, complete: bool) -> Conclusion:
        repeats, high = self._repeats[found], self._high()
        held = f"{found:g}/s met the objective, and again in {sum(repeats)} of {len(repeats)} repeats"
        if high is None:
            text = f"{held}; it is the highest rate that was asked for, so the capacity is at least that."
            return Conclusion(found, False, False, complete, text)
        if self._failed[high] is Answer.INVALID:
            text = f"{held}; at {high:g}/s the load generator did not keep up, so the capacity is at least that."
            return Conclusion(found, False, False, complete, text)
        odd = sorted({t.rate for t, a in self._told if t.kind is StepKind.BEYOND and a is Answer.MET})
        also = f" It was met at {', '.join(f'{rate:g}/s' for rate in odd)} too: see the curve." if odd else ""
        text = f"{held}; at {high:g}/s it was {self._failed[high].value}.{also}"
        return Conclusion(found, True, False, complete, text)


def tidy(rate: float) -> float:
    """To three digits: what a person can read, and an exact schedule can follow."""
    return float(f"{rate:.3g}")
