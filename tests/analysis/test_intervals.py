"""Intervals of a median: as often wrong as they say, and not so wide that a real difference is missed."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentdyno.analysis.intervals import LEAST_ROUNDS, chance_of_none, holm, interval, middle

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
CAMPAIGNS = 3000
ROUNDS = (3, 5, 10)
ONE_PER_CENT = 0.01


def log_normal(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    return rng.standard_normal(size)


def heavy(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    """Student's t with five degrees of freedom, of standard deviation 1."""
    return rng.standard_t(5, size) / math.sqrt(5 / 3)


def disturbed(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    """In one run of ten something else happens on the machine, and it is slower by several deviations."""
    return rng.standard_normal(size) + np.where(rng.random(size) < 0.1, rng.exponential(5.0, size), 0.0)


def log_ratios(draw: Draw, rounds: int, shift: float, noise: float, seed: int = 1) -> NDArray[np.float64]:
    """One row a campaign: the logarithms of the ratios of two entries, each run with noise of its own."""
    rng = np.random.default_rng(seed)
    size = (CAMPAIGNS, rounds)
    return noise * (draw(rng, size) - draw(rng, size)) + shift


def share_found(ratios: NDArray[np.float64]) -> float:
    found = 0
    for row in ratios:
        low, high = interval(row) or (0.0, 0.0)
        found += not low <= 0.0 <= high
    return found / len(ratios)


def within(share: float, nominal: float, deviations: float = 3.5) -> bool:
    """Binomial: so many campaigns find `nominal` of false alarms give or take that."""
    return abs(share - nominal) <= deviations * math.sqrt(nominal * (1 - nominal) / CAMPAIGNS)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_false_alarms_are_as_frequent_as_said(rounds: int) -> None:
    assert within(share_found(log_ratios(log_normal, rounds, 0.0, 0.02)), 0.05)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("draw", [heavy, disturbed])
def test_heavier_tails_bring_no_more_of_them(rounds: int, draw: Draw) -> None:
    share = share_found(log_ratios(draw, rounds, 0.0, 0.02))
    assert share < 0.05 or within(share, 0.05)
    assert share > 0.01  # nor is the interval so wide that it says nothing


@pytest.mark.parametrize(("rounds", "least"), [(3, 0.75), (5, 0.97), (10, 0.99)])
def test_five_per_cent_of_cpu_are_found(rounds: int, least: float) -> None:
    """CPU per request repeats within 2 %: a standard deviation of 1 %."""
    assert share_found(log_ratios(log_normal, rounds, math.log(1.05), ONE_PER_CENT)) >= least


def test_why_it_is_not_the_percentile_bootstrap() -> None:
    """At three rounds that one raises five times as many false alarms as it says."""
    rng = np.random.default_rng(3)
    alarms = 0
    for row in log_ratios(log_normal, 3, 0.0, 0.02)[:500]:
        medians = np.median(row[rng.integers(0, 3, (400, 3))], axis=1)
        low, high = np.quantile(medians, [0.025, 0.975])
        alarms += not low <= 0.0 <= high
    assert alarms / 500 > 0.2


def test_few_values_have_no_interval() -> None:
    for values in ([], [1.0], [1.0, 2.0]):
        assert len(values) < LEAST_ROUNDS
        assert interval(values) is None
        assert chance_of_none(values) is None
    assert middle([]) is None
    assert middle([3.0, 1.0]) == 2.0


def test_equal_values_are_their_own_interval() -> None:
    assert interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    assert chance_of_none([0.0, 0.0, 0.0]) == 1.0
    chance = chance_of_none([0.5, 0.5, 0.5])
    assert chance is not None
    assert chance < 1e-4


def test_rounding_of_equal_figures_is_no_difference() -> None:
    assert chance_of_none([1e-16, 2e-16, -1e-16]) == 1.0


@settings(deadline=None)  # the first of a count draws its distribution
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=12))
def test_interval_and_chance_say_the_same(values: list[float]) -> None:
    low, high = interval(values) or (math.nan, math.nan)
    chance = chance_of_none(values)
    assert low <= float(np.median(values)) <= high
    assert chance is not None
    assert 0.0 < chance <= 1.0
    if abs(chance - 0.05) > 1e-3 and abs(float(np.median(values))) > 1e-9:
        assert (chance < 0.05) == (not low <= 0.0 <= high)


def test_holm_by_hand() -> None:
    assert holm({}) == ()
    # 0.01 <= 0.05 / 4, 0.015 <= 0.05 / 3, then 0.03 > 0.05 / 2 ends it, although 0.04 <= 0.05
    assert holm({1: 0.04, 2: 0.03, 3: 0.015, 4: 0.01}) == (4, 3)
    assert holm({1: 0.05}) == (1,)
    assert holm({1: 0.03, 2: 0.03}) == ()
