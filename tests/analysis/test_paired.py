"""Ratios and differences paired by round, and what they do where something is missing."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentdyno.analysis.paired import pairs, ratio, tax
from agentdyno.contract.comparison import Difference, Ratio, Tax

figures = st.lists(st.tuples(*[st.none() | st.floats(0, 1e9)] * 2), max_size=8)


def test_paired_by_round() -> None:
    """The machine is twice as slow in the second round: between entries nothing changes."""
    found = ratio([2.0, 4.2, 2.0], [1.0, 2.0, 1.0])
    assert found.pairs == 3
    assert found.median == pytest.approx(2.0)
    assert found.low is not None
    assert found.high is not None
    assert 1.0 < found.low < 2.0 < found.high
    assert found.difference is Difference.HIGHER
    assert tax([2.0, 4.2, 2.0], [1.0, 2.0, 1.0]).median == pytest.approx(1.0)


def test_no_difference_when_the_interval_covers_one() -> None:
    assert ratio([1.0, 1.1, 0.9], [1.0, 1.0, 1.0]).difference is Difference.NONE
    assert ratio([0.50, 0.51, 0.49], [1.0, 1.0, 1.0]).difference is Difference.LOWER
    assert ratio([5.0, 5.0, 5.0], [5.0, 5.0, 5.0]).difference is Difference.NONE


def test_only_rounds_that_both_have() -> None:
    one, other = [2.0, None, 2.0, 8.0], [1.0, 1.0, None, 4.0]
    assert pairs(one, other) == [(2.0, 1.0), (8.0, 4.0)]
    assert ratio(one, other) == Ratio(pairs=2, median=pytest.approx(2.0))
    assert tax(one, other) == Tax(pairs=2, median=2.5)


def test_nothing_in_common() -> None:
    assert ratio([None, 1.0], [1.0, None]) == Ratio(pairs=0)
    assert tax([], []) == Tax(pairs=0)


def test_a_zero_has_no_ratio_and_still_a_difference() -> None:
    assert ratio([1.0, 2.0, 3.0], [1.0, 0.0, 1.0]) == Ratio(pairs=3)
    assert ratio([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]) == Ratio(pairs=3)
    assert tax([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]) == Tax(pairs=3, median=-1.0, low=-1.0, high=-1.0)


@settings(deadline=None)
@given(figures)
def test_the_other_way_round_is_the_inverse(both: list[tuple[float | None, float | None]]) -> None:
    one, other = [a for a, _ in both], [b for _, b in both]
    forth, back = ratio(one, other), ratio(other, one)
    for found in (forth, back):
        assert all(value is None or math.isfinite(value) for value in (found.median, found.low, found.high))
    assert forth.pairs == back.pairs
    assert (forth.median is None) == (back.median is None)
    if forth.median is not None and back.median is not None:
        assert forth.median * back.median == pytest.approx(1.0)
    mirrored = {Difference.HIGHER: Difference.LOWER, Difference.LOWER: Difference.HIGHER}
    assert mirrored.get(forth.difference, forth.difference) is back.difference


@settings(deadline=None)
@given(figures)
def test_a_difference_is_finite_or_none(both: list[tuple[float | None, float | None]]) -> None:
    found = tax([a for a, _ in both], [b for _, b in both])
    assert all(value is None or math.isfinite(value) for value in (found.median, found.low, found.high))
    assert (found.low is None) == (found.pairs < 3)
