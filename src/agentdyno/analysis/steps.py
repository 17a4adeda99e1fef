"""Steps in a series: from where on its level is another one, with a known chance of a false mark.

At each place the points before it are held against those from it on by Mann and Whitney's rank statistic, in standard
deviations; where it is largest is the candidate (Pettitt 1979, A non-parametric approach to the change-point problem;
standardised as by Hawkins and Deng 2010). How large it becomes in a series without a step is found by shuffling the
points: without a step any order is as likely as any other, whatever the points' distribution, so such a series is
marked with a chance of ALARM at most. Where a step is found the parts on either side are searched in the same way
(binary segmentation, Scott and Knott 1974). Ranks, because one outlier is no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentdyno.analysis.unpaired import UnpairedRatio, unpaired_ratio

ALARM = 0.01
POINTS_NEEDED = 10  # with fewer no order of the points is rare enough
LEAST_ON_A_SIDE = 3
_SHUFFLES = 9_999
_AT_ONCE = 500
_SEED = 20_260_102

_Ranks = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """at: the first point of the new level. ratio: the new level over the one before, with its 95 % interval."""

    at: int
    ratio: UnpairedRatio


def find_steps(values: Sequence[float]) -> tuple[Step, ...]:
    """The steps of a series in its order; none where it has fewer than POINTS_NEEDED points. None may be negative."""
    places = sorted(_search(np.asarray(values, dtype=np.float64), 0))
    borders = [0, *places, len(values)]
    return tuple(
        Step(at, unpaired_ratio(values[borders[n] : at], values[at : borders[n + 2]])) for n, at in enumerate(places)
    )


def _search(values: NDArray[np.float64], offset: int) -> list[int]:
    if len(values) < POINTS_NEEDED:
        return []
    ranks = _midranks(values)
    if ranks.min() == ranks.max():
        return []
    observed = _statistics(ranks[np.newaxis])[0]
    largest = float(observed.max())
    if _chance(ranks, largest) > ALARM:
        return []
    at = int(observed.argmax()) + LEAST_ON_A_SIDE
    return [*_search(values[:at], offset), offset + at, *_search(values[at:], offset + at)]


def _chance(ranks: _Ranks, largest: float) -> float:
    """How often a shuffled series has a statistic at least as large; the series itself is counted among them."""
    source = np.random.default_rng(_SEED)
    beyond = 0
    for begin in range(0, _SHUFFLES, _AT_ONCE):
        count = min(_AT_ONCE, _SHUFFLES - begin)
        shuffled = source.permuted(np.broadcast_to(ranks, (count, len(ranks))), axis=1)
        beyond += int((_statistics(shuffled).max(axis=1) >= largest - 1e-9).sum())
    return (1 + beyond) / (1 + _SHUFFLES)


def _statistics(ranks: _Ranks) -> NDArray[np.float64]:
    """For each row, at each place with enough points on either side, how far the rank sum is from what chance gives, in
    standard deviations.
    """
    n = ranks.shape[1]
    before = np.arange(LEAST_ON_A_SIDE, n - LEAST_ON_A_SIDE + 1)
    sums = ranks.cumsum(axis=1)[:, before - 1]
    found: NDArray[np.float64] = np.abs(sums - before * (n + 1) / 2) / np.sqrt(before * (n - before) * (n + 1) / 12)
    return found


def _midranks(values: NDArray[np.float64]) -> _Ranks:
    """Ranks from 1; equal values share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks: _Ranks = (last - (counts - 1) / 2)[place]
    return ranks
