"""A percentile of all rounds' raw samples together, with the band in which the true one lies."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from agentdyno.analysis.percentiles import Samples, percentile
from agentdyno.contract.comparison import Pooled

_MISSED = 0.025  # on each side of a 95 % band
_REACH = 12  # standard deviations around the mean beyond which a binomial count is not looked for


def pooled(sorted_samples: Samples, quantile: float) -> Pooled:
    """The sample at rank ceil(q x n) and its band between two samples' ranks; samples in ascending order.

    value, low, high: None with fewer samples than the percentile's floor.
    """
    value = percentile(sorted_samples, quantile)
    if value is None:
        return Pooled(n=int(sorted_samples.size))
    low, high = band_ranks(int(sorted_samples.size), quantile)
    return Pooled(
        n=int(sorted_samples.size),
        value=value,
        low=float(sorted_samples[low - 1]) if low is not None else None,
        high=float(sorted_samples[high - 1]) if high is not None else None,
    )


@cache
def band_ranks(count: int, quantile: float) -> tuple[int | None, int | None]:
    """The ranks (from 1) between which the true quantile lies with 95 %, whatever the distribution; None: no such rank.

    How many of `count` independent samples lie at or below the true quantile is binomial(count, quantile). The lower
    rank is the highest that more than that many samples would be needed for in at most 2.5 % of cases, the upper one
    likewise (David and Nagaraja, Order Statistics, 7.1).
    """
    mean, deviation = count * quantile, math.sqrt(count * quantile * (1 - quantile))
    first = max(0, math.floor(mean - _REACH * deviation - _REACH))
    last = min(count, math.ceil(mean + _REACH * deviation + _REACH))
    counts = np.arange(first, last + 1, dtype=np.float64)
    # log of P(k) / P(k - 1), summed up from the first: no factorials of a million
    steps = np.log((count - counts[1:] + 1) / counts[1:]) + math.log(quantile / (1 - quantile))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chances = np.exp(logs - logs.max())
    at_most = np.cumsum(chances / chances.sum())
    below = np.flatnonzero(at_most <= _MISSED)  # counts k with P(at most k) <= 2.5 %: rank k + 1 is above too rarely
    above = np.flatnonzero(at_most >= 1 - _MISSED)
    low = first + int(below[-1]) + 1 if below.size else None
    high = first + int(above[0]) + 1
    return low, high if high <= count else None
