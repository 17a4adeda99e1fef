"""What a capacity search is asked for: its own options, from words to a checked plan."""

from __future__ import annotations

from dataclasses import dataclass

from agentdyno.analysis.capacity import arrivals_needed
from agentdyno.contract.capacity import SearchPlan
from agentdyno.contract.objective import parse_objective
from agentdyno.contract.quantities import parse_percent
from agentdyno.rig.option_values import OptionError, rate_rps, seconds, whole

CONFIRMATIONS, CONFIRMED_BY = 3, 2
BEYOND = (1.25, 1.5, 2.0)
SETTLE_S = 2.0
RECOVERY_BOUND_S = 30.0
_MAX_STEP_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWords:
    """The search's own options as they were written."""

    slo: str
    max_rate: str
    max_steps: str
    step: str
    max_step: str
    resolution: str


def read_plan(first_rate: float, words: SearchWords) -> SearchPlan:
    """Check the search's options. Raises OptionError, or ObjectiveError, with a sentence."""
    objective = parse_objective(words.slo)
    max_rate = rate_rps("MAX_RATE", words.max_rate)
    least_s = seconds("STEP", words.step, _MAX_STEP_S)
    most_s = seconds("MAX_STEP", words.max_step, _MAX_STEP_S)
    if most_s < least_s:
        raise OptionError(f"MAX_STEP is {most_s:g} s, which is less than STEP, {least_s:g} s.")
    needed = arrivals_needed(objective)
    # A hundredth of slack, so that rounding the rate does not leave the last arrival out.
    least_rate = float(f"{max(needed / most_s, 1 / least_s) * 1.01:.3g}")
    if least_rate > max_rate:
        raise OptionError(
            f"The objective takes {needed} arrivals in a step; at MAX_RATE, {max_rate:g} a second, {most_s:g} s have "
            "fewer. Raise MAX_STEP or MAX_RATE, or ask for a lower percentile."
        )
    return SearchPlan(
        objective=objective,
        first_rate=min(max_rate, max(first_rate, least_rate)),
        least_rate=least_rate,
        max_rate=max_rate,
        max_steps=whole("MAX_STEPS", words.max_steps, 6, 1000),
        resolution=_resolution(words.resolution),
        confirmations=CONFIRMATIONS,
        confirmed_by=CONFIRMED_BY,
        beyond=BEYOND,
        step_arrivals=needed,
        least_step_s=least_s,
        most_step_s=most_s,
        settle_s=SETTLE_S,
        recovery_bound_s=RECOVERY_BOUND_S,
    )


def _resolution(text: str) -> float:
    try:
        percent = parse_percent(text)
    except ValueError as error:
        raise OptionError(f"RESOLUTION: {error}") from error
    if not 1 <= percent <= 100:
        raise OptionError(f"RESOLUTION={text!r} must be from 1% to 100%; finer than that a busy machine cannot tell.")
    return percent / 100
