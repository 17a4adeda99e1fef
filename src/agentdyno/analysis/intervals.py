"""The 95 % interval of a median of few rounds, and the chance that it is 0 for all that: one construction, any count.

A percentile bootstrap of three to ten values is far too narrow (at three it raises a false alarm one time in four),
and no distribution-free interval of 95 % exists below six. So the bootstrap is studentised and parametric: the median
over the standard deviation has, for normal values, a distribution that depends on their count alone. It is drawn once,
with a fixed seed. Values are differences of logarithms (ratios), so the assumption is log-normal noise from round to
round; under heavier tails the interval is wider than it had to be, never narrower. Figures: METHODOLOGY.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from agentdyno.analysis.percentiles import Samples

CONFIDENCE = 0.95
LEAST_ROUNDS = 3
_DRAWS = 100_000
_SEED = 20_260_101
_SAME = 1e-9  # closer to 0 is rounding of equal figures


def middle(values: Sequence[float]) -> float | None:
    """The median; of an even count the mean of the two in the middle. None of nothing."""
    return float(np.median(values)) if len(values) else None


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of their median: median +- c(n) x standard deviation. None with fewer than three values."""
    if len(values) < LEAST_ROUNDS:
        return None
    about, reach = float(np.median(values)), _reach(values, CONFIDENCE)
    return about - reach, about + reach


def chance_of_none(values: Sequence[float]) -> float | None:
    """How often a median at least this far from 0 comes by chance when the true one is 0; None with fewer than three.

    It is below 5 % just when the interval does not cover 0.
    """
    if len(values) < LEAST_ROUNDS:
        return None
    about, spread = abs(float(np.median(values))), _spread(values)
    if about <= _SAME:
        return 1.0
    drawn = _studentised(len(values))
    beyond = 0 if spread == 0.0 else drawn.size - int(np.searchsorted(drawn, about / spread))
    return (1 + beyond) / (1 + drawn.size)


def holm(chances: Mapping[str, float], alarm: float = 1 - CONFIDENCE) -> tuple[str, ...]:
    """Which of several tests found something, so that *any* false alarm among all of them is as rare as `alarm`.

    Holm (1979): the smallest chance against alarm / m, the next against alarm / (m - 1), up to the first that fails.
    """
    found: list[str] = []
    for left, name in enumerate(sorted(chances, key=lambda name: (chances[name], name))):
        if chances[name] > alarm / (len(chances) - left):
            break
        found.append(name)
    return tuple(found)


def _reach(values: Sequence[float], confidence: float) -> float:
    spread = _spread(values)
    return spread * float(np.quantile(_studentised(len(values)), confidence)) if spread else 0.0


def _spread(values: Sequence[float]) -> float:
    spread = float(np.std(values, ddof=1))
    return spread if spread > _SAME * max(1.0, abs(float(np.mean(values)))) else 0.0


@cache
def _studentised(count: int) -> Samples:
    """|median| / standard deviation of so many standard normal values, drawn often and sorted."""
    drawn = np.random.default_rng(_SEED).standard_normal((_DRAWS, count))
    ratios: Samples = np.sort(np.abs(np.median(drawn, axis=1)) / drawn.std(axis=1, ddof=1))
    return ratios
