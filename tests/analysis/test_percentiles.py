"""A printed percentile is a sample, at the exact rank, and is left out below its floor."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.analysis.percentiles import latency, percentile, samples_needed

QUANTILES = {"0.5": 7, "0.9": 44, "0.95": 90, "0.99": 459, "0.999": 4603}
NAMES = ("p50", "p90", "p95", "p99", "p999")

milliseconds = st.floats(min_value=0, max_value=1e7, allow_nan=False)
# A few values each repeated: ties at the rank, and enough samples for every floor.
samples_ms = st.lists(milliseconds, min_size=1, max_size=40).flatmap(
    lambda values: st.integers(1, 200).map(lambda times: np.array(values * times))
)
quantile = st.sampled_from(sorted(QUANTILES))


def rank(text: str, n: int) -> int:
    return math.ceil(Fraction(text) * n)


@pytest.mark.parametrize(("text", "floor"), QUANTILES.items())
def test_floor_is_exact_at_its_border(text: str, floor: int) -> None:
    q = float(text)
    assert samples_needed(q) == floor
    assert Fraction(text) ** floor <= Fraction(1, 100) < Fraction(text) ** (floor - 1)
    assert percentile(np.ones(floor - 1), q) is None
    assert percentile(np.ones(floor), q) == 1.0


@given(samples_ms, quantile)
def test_agrees_with_a_sorted_list(samples: np.ndarray, text: str) -> None:
    found = percentile(samples, float(text))
    if samples.size < QUANTILES[text]:
        assert found is None
    else:
        assert found == sorted(samples.tolist())[rank(text, samples.size) - 1]


@given(samples_ms, quantile)
def test_is_a_sample_that_the_share_asked_for_does_not_exceed(samples: np.ndarray, text: str) -> None:
    found = percentile(samples, float(text))
    if found is not None:
        assert found in samples
        assert (samples <= found).sum() >= rank(text, samples.size)
        assert (samples < found).sum() < rank(text, samples.size)


@pytest.mark.parametrize("text", QUANTILES)
def test_rank_is_exact_for_every_count(text: str) -> None:
    for n in [*range(QUANTILES[text], QUANTILES[text] + 1500), 10_000, 12_000, 120_000, 1_000_000]:
        assert percentile(np.arange(1.0, n + 1), float(text)) == rank(text, n)


@given(samples_ms)
def test_percentiles_are_in_order(samples: np.ndarray) -> None:
    found = latency(samples)
    printed = [v for v in (*(getattr(found, name) for name in NAMES), found.max) if v is not None]
    assert printed == sorted(printed)
    assert found.n == samples.size
    assert found.max == max(samples)
    assert found.mean == pytest.approx(math.fsum(samples) / samples.size)


@given(samples_ms, st.randoms(use_true_random=False))
def test_order_of_the_samples_changes_nothing(samples: np.ndarray, random) -> None:
    other = samples.tolist()
    random.shuffle(other)
    before, after = latency(samples), latency(np.array(other))
    assert [getattr(before, name) for name in (*NAMES, "n", "max")] == [
        getattr(after, name) for name in (*NAMES, "n", "max")
    ]


def test_no_samples_are_no_figures() -> None:
    found = latency(np.array([]))
    assert found.n == 0
    assert {found.mean, found.max, *(getattr(found, name) for name in NAMES)} == {None}
