"""The 95 % interval of a median of few rounds, and the chance that it is 0 for all that: one construction, any count.

A percentile bootstrap of three to ten values is far too narrow (at three it raises a false alarm one time in four),
and no distribution-free interval of 95 % exists below six. So the bootstrap is studentised and parametric: the median
over the standard deviation has, for normal values, a distribution that depends on their count alone. It is drawn once,
with a fixed seed. Values are differences of logarithms (ratios), so the assumption is log-normal noise from round to
round; under heavier tails the interval is wider than it had to be, never narrower. Figures: METHODOLOGY.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean, median

import numpy as np

from agentdyno.analysis.percentiles import Samples

CONFIDENCE = 0.95
LEAST_ROUNDS = 3
_DRAWS = 100_000
_SEED = 20_260_101
_LOG_MAX = 600.0  # e**709 is the last that there is
_SAME = 1e-9  # closer to 0 is rounding of equal figures


def middle(values: Sequence[float]) -> float | None:
    """The median; of an even count the mean of the two in the middle. None of nothing."""
    return float(median(values)) if values else None


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of their median: median +- factor(n) x standard deviation. None with fewer than three."""
    if len(values) < LEAST_ROUNDS:
        return None
    about = median(values)
    reach = _spread(values) * _factor(len(values))
    return about - reach, about + reach


def chance_of_none(values: Sequence[float]) -> float | None:
    """How often a median at least this far from 0 comes by chance when the true one is 0; None with fewer than three.

    It is below 5 % just when the interval does not cover 0.
    """
    if len(values) < LEAST_ROUNDS:
        return None
    about, spread = abs(median(values)), _spread(values)
    if about <= _SAME:
        return 1.0
    drawn = _studentised(len(values))
    beyond = 0 if spread == 0.0 else drawn.size - int(np.searchsorted(drawn, about / spread))
    return (1 + beyond) / (1 + drawn.size)


def holm(chances: Mapping[int, float], alarm: float = 1 - CONFIDENCE) -> tuple[int, ...]:
    """Which of several tests found something, so that *any* false alarm among all of them is as rare as `alarm`.

    Holm (1979): the smallest chance against alarm / m, the next against alarm / (m - 1), up to the first that fails.
    """
    found: list[int] = []
    for done, test in enumerate(sorted(chances, key=lambda test: (chances[test], test))):
        if chances[test] > alarm / (len(chances) - done):
            break
        found.append(test)
    return tuple(found)


def times_of(logarithm: float) -> float:
    """The ratio that a difference of logarithms stands for; finite, however wide an interval is."""
    return math.exp(max(-_LOG_MAX, min(_LOG_MAX, logarithm)))


def _spread(values: Sequence[float]) -> float:
    spread = math.dist(values, [fmean(values)] * len(values)) / math.sqrt(len(values) - 1)
    return spread if spread > _SAME * max(1.0, abs(fmean(values))) else 0.0


@cache
def _factor(count: int) -> float:
    return float(np.quantile(_studentised(count), CONFIDENCE))


@cache
def _studentised(count: int) -> Samples:
    """|median| / standard deviation of so many standard normal values, drawn often and sorted."""
    drawn = np.random.default_rng(_SEED).standard_normal((_DRAWS, count))
    ratios: Samples = np.sort(np.abs(np.median(drawn, axis=1)) / drawn.std(axis=1, ddof=1))
    return ratios
