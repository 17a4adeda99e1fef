"""Steps: planted ones are found where they are, and a series without one is marked as seldom as is said."""

import numpy as np
import pytest

from agentdyno.analysis.steps import ALARM, POINTS_NEEDED, _midranks, find_steps


def noise(seed: int, count: int, spread: float = 0.02) -> list[float]:
    return np.random.default_rng(seed).lognormal(0.0, spread, count).tolist()


def test_a_planted_step_is_found_where_it_is_with_its_size() -> None:
    values = [v * (1.15 if n >= 12 else 1.0) for n, v in enumerate(noise(1, 24))]
    (step,) = find_steps(values)
    assert step.at == 12
    assert step.ratio.median == pytest.approx(1.15, abs=0.03)
    assert step.ratio.low is not None
    assert 1.1 < step.ratio.low < 1.15


def test_two_steps_in_a_row() -> None:
    levels = [1.0] * 12 + [1.3] * 12 + [0.9] * 12
    found = find_steps([level * v for level, v in zip(levels, noise(2, 36), strict=True)])
    assert [step.at for step in found] == [12, 24]
    assert [(step.ratio.median or 0) > 1 for step in found] == [True, False]


def test_an_outlier_is_no_step() -> None:
    values = noise(3, 20)
    values[7] = 50.0
    assert find_steps(values) == ()


def test_too_few_points_and_equal_ones_have_no_step() -> None:
    assert find_steps([]) == find_steps([1.0]) == ()
    assert find_steps([1.0] * 4 + [9.0] * (POINTS_NEEDED - 5)) == ()
    assert find_steps([0.0] * 30) == ()
    assert find_steps([2.0] * 30) == ()


def test_it_is_the_same_each_time() -> None:
    values = [v * (1.1 if n >= 6 else 1.0) for n, v in enumerate(noise(4, 14))]
    assert find_steps(values) == find_steps(values) != ()


def test_a_series_without_a_step_is_marked_as_seldom_as_is_said() -> None:
    source = np.random.default_rng(11)
    count = 600
    # Heavy tails and few distinct values are no excuse.
    alarms = sum(
        bool(find_steps(drawn.tolist()))
        for draw in (
            lambda: source.lognormal(0, 0.05, 10),
            lambda: source.standard_cauchy(10) ** 2,
            lambda: np.round(source.lognormal(0, 0.05, 10), 1),
        )
        for drawn in (draw() for _ in range(count // 3))
    )
    assert alarms / count <= ALARM + 3 * np.sqrt(ALARM * (1 - ALARM) / count)


def test_equal_values_share_their_rank() -> None:
    assert _midranks(np.array([5.0, 1.0, 5.0, 0.0])).tolist() == [3.5, 2.0, 3.5, 1.0]
