"""Ratios of unpaired rounds: exact intervals, their coverage, and what there is to say of few rounds and of zeros."""

import math
from itertools import combinations

import numpy as np
import pytest

from agentdyno.analysis.unpaired import _u_distribution, rank_of_bound, unpaired_ratio


def test_the_distribution_of_u_is_that_of_counting() -> None:
    for m, n in ((1, 1), (2, 3), (4, 4), (5, 3)):
        counts = np.zeros(m * n + 1)
        for places in combinations(range(m + n), m):
            counts[sum(place - at for at, place in enumerate(places))] += 1
        assert _u_distribution(m, n) == pytest.approx(counts / math.comb(m + n, m))


@pytest.mark.parametrize(
    ("m", "n", "rank"),
    # Hollander, Wolfe and Chicken's table: the critical value of U at 2.5 %, plus one.
    [(1, 1, 0), (3, 3, 0), (3, 5, 1), (4, 4, 1), (5, 5, 3), (6, 6, 6), (8, 8, 14), (10, 10, 24), (20, 20, 128)],
)
def test_the_rank_of_the_bound_is_that_of_the_tables(m: int, n: int, rank: int) -> None:
    assert rank_of_bound(m, n) == rank_of_bound(n, m) == rank


def test_many_rounds_follow_on_from_few() -> None:
    assert rank_of_bound(40, 40) < rank_of_bound(41, 40) < rank_of_bound(41, 41) < rank_of_bound(42, 42)


def test_a_ratio_is_the_median_of_all_ratios() -> None:
    found = unpaired_ratio([1.0, 2.0, 4.0, 8.0], [2.0, 4.0, 8.0, 16.0])
    assert (found.median, found.low, found.high) == (2.0, 0.25, 16.0)


def test_a_permutation_and_a_unit_change_nothing() -> None:
    one, other = [3.0, 1.0, 2.0, 5.0, 4.0], [6.5, 2.5, 4.5, 8.5, 10.5]
    found = unpaired_ratio(one, other)
    assert unpaired_ratio(one[::-1], sorted(other)) == found
    assert unpaired_ratio([v * 1024 for v in one], [v * 1024 for v in other]) == found


@pytest.mark.parametrize("counts", [(1, 1), (3, 3), (2, 7)])
def test_few_rounds_give_no_interval(counts: tuple[int, int]) -> None:
    found = unpaired_ratio([1.0] * counts[0], [1.5] * counts[1])
    assert (found.median, found.low, found.high) == (1.5, None, None)


def test_nothing_gives_nothing() -> None:
    assert unpaired_ratio([], [1.0]).median is None
    assert unpaired_ratio([1.0], []).median is None


def test_zeros() -> None:
    same = unpaired_ratio([0.0] * 4, [0.0] * 4)
    assert (same.median, same.low, same.high) == (1.0, 1.0, 1.0)
    assert unpaired_ratio([0.0] * 4, [3.0] * 4).low == math.inf
    assert unpaired_ratio([3.0] * 4, [0.0] * 4).high == 0.0


@pytest.mark.parametrize(("m", "n"), [(4, 4), (5, 5), (3, 6), (10, 10)])
def test_the_interval_covers_the_true_ratio_as_often_as_it_says(m: int, n: int) -> None:
    source = np.random.default_rng(7)
    draws = 4000
    hits = 0
    for _ in range(draws):
        found = unpaired_ratio(source.lognormal(0, 0.1, m).tolist(), (1.2 * source.lognormal(0, 0.1, n)).tolist())
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.2 <= found.high
    exact = 1 - 2 * float(np.cumsum(_u_distribution(m, n))[rank_of_bound(m, n) - 1])
    assert exact >= 0.95
    assert hits / draws == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / draws))
