"""The ratio of two sets of rounds that were not measured side by side, with an exact interval for few of them.

Hodges and Lehmann's estimate: the median of all ratios candidate / baseline, one for each pair of a round of the one
and a round of the other. Its interval reaches from the k-th smallest to the k-th largest of these ratios, where k
follows from the exact distribution of Mann and Whitney's U (Hodges and Lehmann 1963; Hollander, Wolfe and Chicken,
Nonparametric Statistical Methods, 3rd ed., 4.3). Nothing is assumed of the figures' distribution but that the two sets
differ by a factor; with 4 rounds on either side the interval covers that factor in 97.1 % of cases, with 5 in 96.8 %.
(A bootstrap of 4 rounds covered 92 % in a simulation, and gives an interval even for one.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, median

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
_EXACT_UP_TO = 40  # rounds on a side; above, U is as good as normal


@dataclass(frozen=True, slots=True)
class UnpairedRatio:
    """Candidate over baseline. low, high: the interval, None where there are too few rounds for one.

    Either may be infinite, where a baseline is 0 and the candidate is not.
    """

    median: float | None
    low: float | None = None
    high: float | None = None


def unpaired_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> UnpairedRatio:
    """The ratio of two sets of figures, none of them negative; all None where a set is empty."""
    ratios = sorted(_ratio(before, after) for before in baseline for after in candidate)
    if not ratios:
        return UnpairedRatio(None)
    middle = median(ratios)
    k = rank_of_bound(len(baseline), len(candidate))
    return UnpairedRatio(middle) if k == 0 else UnpairedRatio(middle, ratios[k - 1], ratios[-k])


def rank_of_bound(m: int, n: int) -> int:
    """How far from either end of the sorted ratios the interval begins; 0 where even all of them cover less than
    CONFIDENCE: with 3 rounds on either side, say (4 and 4 are enough, or 3 and 5).
    """
    tail = (1 - CONFIDENCE) / 2
    if max(m, n) > _EXACT_UP_TO:
        deviation = math.sqrt(m * n * (m + n + 1) / 12)
        return max(0, math.floor(m * n / 2 - NormalDist().inv_cdf(1 - tail) * deviation))
    return int((np.cumsum(_u_distribution(m, n)) <= tail).sum())


@cache
def _u_distribution(m: int, n: int) -> NDArray[np.float64]:
    """Probability of each value of U from 0 to m * n, when both sets are of one distribution."""
    chances = np.zeros(m * n + 1)
    if m == 0 or n == 0:
        chances[0] = 1.0
        return chances
    # The largest of all is of the first set, and then above all n of the second; or it is of the second.
    chances[n:] += m / (m + n) * _u_distribution(m - 1, n)
    chances[: m * (n - 1) + 1] += n / (m + n) * _u_distribution(m, n - 1)
    return chances


def _ratio(before: float, after: float) -> float:
    if before == 0:
        return 1.0 if after == 0 else math.inf
    return after / before
