"""One metric's figures over the rounds: median, interval, spread, and whether they may be quoted as one figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from agentdyno.analysis.intervals import LEAST_ROUNDS, interval, middle, times_of
from agentdyno.analysis.metrics import Metric, rounded
from agentdyno.analysis.paired import PerRound


class OverRounds(NamedTuple):
    """median, low, high: with its 95 % interval. cv: standard deviation over mean."""

    median: float | None
    low: float | None
    high: float | None
    cv: float | None


def over_rounds(per_round: PerRound) -> OverRounds:
    """On a log scale where all figures are above 0, so that the interval is too."""
    values = [value for value in per_round if value is not None]
    median = middle(values)
    if median is None:
        return OverRounds(None, None, None, None)
    if min(values) > 0:
        logs = [math.log(value) for value in values]
        about, around = middle(logs) or 0.0, interval(logs)
        low, high = (None, None) if around is None else (median * times_of(edge - about) for edge in around)
    else:
        low, high = interval(values) or (None, None)
    return OverRounds(median, low, high, _cv(values))


def _cv(values: Sequence[float]) -> float | None:
    mean = fmean(values)
    return stdev(values) / abs(mean) if len(values) > 1 and mean else None


def instability(metric: Metric, per_round: PerRound, found: OverRounds) -> str | None:
    """A sentence when the rounds differ by more than the metric's do on a quiet machine; None with too few rounds."""
    values = [value for value in per_round if value is not None]
    if metric.cv_max is None or found.cv is None or len(values) < LEAST_ROUNDS or found.cv <= metric.cv_max:
        return None
    span = f"{rounded(min(values))} to {rounded(max(values))} {metric.unit}".rstrip()
    return (
        f"{metric.title} is unstable: over {len(values)} rounds it went from {span} (CV {found.cv:.0%}; "
        f"{metric.cv_max:.0%} is usual). Do not quote it as one figure."
    )
