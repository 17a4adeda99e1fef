"""Pooled percentiles: null below the floor, and a band that holds the true one as often as it says."""

import math

import numpy as np
import pytest

from agentdyno.analysis.percentiles import samples_needed
from agentdyno.analysis.pooled import band_ranks, pooled
from agentdyno.contract.comparison import Pooled

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


def at_most(count: int, quantile: float, k: int) -> float:
    """P(binomial <= k), by its definition."""
    return sum(math.comb(count, i) * quantile**i * (1 - quantile) ** (count - i) for i in range(k + 1))


@pytest.mark.parametrize("quantile", QUANTILES[:4])
@pytest.mark.parametrize("count", [7, 20, 44, 90, 200, 459, 600])
def test_ranks_are_the_narrowest_of_the_binomial(count: int, quantile: float) -> None:
    low, high = band_ranks(count, quantile)
    if low is None:
        assert at_most(count, quantile, 0) > 0.025
    else:
        assert at_most(count, quantile, low - 1) <= 0.025 < at_most(count, quantile, low)
    if high is None:
        assert at_most(count, quantile, count - 1) < 0.975
    else:
        assert at_most(count, quantile, high - 1) >= 0.975 > (at_most(count, quantile, high - 2) if high > 1 else 0)


@pytest.mark.parametrize("quantile", QUANTILES)
def test_from_the_floor_on_there_is_a_band(quantile: float) -> None:
    floor = samples_needed(quantile)
    samples = np.arange(1.0, floor + 1)
    assert pooled(samples[:-1], quantile) == Pooled(n=floor - 1)
    found = pooled(samples, quantile)
    assert found.n == floor
    assert found.low is not None
    assert found.value is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high


def test_the_band_holds_the_true_percentile() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        found = pooled(np.sort(rng.lognormal(1.0, 0.5, 1500)), 0.99)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= math.exp(1.0 + 0.5 * 2.3263478740408408) <= found.high
    assert 0.94 <= hits / 1000 <= 0.98


def test_a_million_samples_have_a_narrow_one() -> None:
    low, high = band_ranks(1_000_000, 0.5)
    assert (low, high) == (499_020, 500_981)
    low, high = band_ranks(1_000_000, 0.999)
    assert low is not None
    assert high is not None
    assert low == pytest.approx(999_000 - 62, abs=2)
    assert high == pytest.approx(999_000 + 62, abs=2)


def test_of_nothing() -> None:
    assert pooled(np.empty(0), 0.5) == Pooled(n=0)
