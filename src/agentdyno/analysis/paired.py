"""Two entries on one metric, paired by round: their ratio, their difference, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentdyno.analysis.intervals import interval, middle, times_of
from agentdyno.contract.comparison import Difference, Ratio, Tax

PerRound = Sequence[float | None]


def pairs(one: PerRound, other: PerRound) -> list[tuple[float, float]]:
    """The figures of each round that both have."""
    return [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]


def log_ratios(one: PerRound, other: PerRound) -> list[float] | None:
    """The logarithms of one / other by round; None when a figure is 0, whose ratio says nothing."""
    both = pairs(one, other)
    if any(a <= 0 or b <= 0 for a, b in both):
        return None
    return [math.log(a) - math.log(b) for a, b in both]


def ratio(one: PerRound, other: PerRound) -> Ratio:
    """one / other: the median of the rounds' ratios with its 95 % interval, on a log scale, so that the ratio the
    other way round is its inverse.

    "No difference" when the interval covers 1. Unclear with fewer than three pairs, or where a figure is 0.
    """
    logs = log_ratios(one, other)
    if not logs:
        return Ratio(pairs=len(pairs(one, other)))
    about, around = middle(logs), interval(logs)
    median = None if about is None else times_of(about)
    if around is None:
        return Ratio(pairs=len(logs), median=median)
    low, high = around
    return Ratio(pairs=len(logs), median=median, low=times_of(low), high=times_of(high), difference=_said(low, high))


def _said(low: float, high: float) -> Difference:
    if low > 0:
        return Difference.HIGHER
    return Difference.LOWER if high < 0 else Difference.NONE


def tax(framework: PerRound, control: PerRound) -> Tax:
    """framework - control by round: the median difference with its 95 % interval, in the metric's unit."""
    differences = [a - b for a, b in pairs(framework, control)]
    low, high = interval(differences) or (None, None)
    return Tax(pairs=len(differences), median=middle(differences), low=low, high=high)
