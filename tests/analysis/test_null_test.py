"""The null test over many simulated campaigns: any false alarm in one of twenty, and a real difference is found."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from agentdyno.analysis.metrics import METRICS, Metric
from agentdyno.analysis.null_test import Twice, null_test
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Difference, NullTest

PAIR = ("bare", "bare#2")
CAMPAIGNS = 1000
HEADLINES = [(load, metric) for load in LoadName for metric in METRICS if load in metric.headline]
CPU = next(metric for metric in METRICS if metric.name == "cpu_per_request")


def noise(metric: Metric) -> float:
    """As metrics go: CPU repeats within 2 %, tails and collections are restless, counts are constant."""
    return {"tokens": 0.0, "goodput": 0.0, "cpu_per_request": 0.01}.get(metric.name, (metric.cv_max or 0.1) / 4)


def campaign(rng: np.random.Generator, rounds: int, cpu_factor: float = 1.0) -> NullTest:
    figures = []
    for load, metric in HEADLINES:
        machine = rng.lognormal(3.0, 0.05, rounds)  # each round's own: pairing takes it out
        one, other = (machine * rng.lognormal(0.0, noise(metric), rounds) for _ in range(2))
        factor = cpu_factor if metric is CPU else 1.0
        figures.append(Twice(load, metric, one.tolist(), (other * factor).tolist()))
    return null_test(PAIR, figures)


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_any_false_alarm_is_as_frequent_as_said(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    failed = sum(campaign(rng, rounds).passed is False for _ in range(CAMPAIGNS))
    # Two of the figures are constant and cannot raise one, so it is a little below 5 %.
    assert 0.01 <= failed / CAMPAIGNS <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / CAMPAIGNS)


@pytest.mark.parametrize(("rounds", "least"), [(5, 0.75), (10, 0.99)])
def test_five_per_cent_of_cpu_are_found_among_all_metrics(rounds: int, least: float) -> None:
    rng = np.random.default_rng(7)
    found = [campaign(rng, rounds, 1.05) for _ in range(200)]
    assert sum("cpu_per_request" in each.found for each in found) / 200 >= least


def twice(one: Sequence[float | None], other: Sequence[float | None]) -> NullTest:
    return null_test(PAIR, [Twice(LoadName.STEADY, CPU, one, other)])


def test_what_it_says() -> None:
    passed = twice([1.0, 1.02, 0.99], [1.01, 1.0, 1.0])
    assert passed.passed is True
    assert "no difference on any of 1 figures" in passed.sentence
    failed = twice([1.0, 1.001, 0.999], [1.5, 1.501, 1.499])
    assert failed.passed is False
    assert failed.found == ("cpu_per_request",)
    assert "differs on CPU per request under the steady load" in failed.sentence
    assert failed.rows[0].ratio.difference is Difference.LOWER


def test_too_few_rounds_tell_nothing() -> None:
    found = twice([1.0, 1.0, None], [9.0, 9.0, 9.0])
    assert found.passed is None
    assert found.found == ()
    assert found.rows[0].ratio.difference is Difference.UNCLEAR
    assert "not tested" in found.sentence
