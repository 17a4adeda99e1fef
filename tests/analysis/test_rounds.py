"""One metric over the rounds: median, interval, spread, and the sentence of a metric that will not hold still."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentdyno.analysis.metrics import METRICS, Metric
from agentdyno.analysis.rounds import OverRounds, instability, over_rounds


def metric(name: str) -> Metric:
    return next(each for each in METRICS if each.name == name)


def test_by_hand() -> None:
    found = over_rounds([1.0, 2.0, None, 3.0])
    assert found.median == 2.0
    assert found.cv == pytest.approx(0.5)
    assert found.low is not None
    assert found.high is not None
    assert 0.0 < found.low < 2.0 < found.high
    assert found.low * found.high == pytest.approx(4.0)  # symmetric by ratio


def test_figures_that_may_be_zero_have_an_interval_too() -> None:
    found = over_rounds([0.0, 1.0, 2.0])
    assert found.median == 1.0
    assert found.low is not None
    assert found.low < 0.0


def test_equal_figures_are_not_rounded() -> None:
    assert over_rounds([2060.0] * 3) == OverRounds(2060.0, 2060.0, 2060.0, 0.0)


def test_too_few() -> None:
    assert over_rounds([]) == OverRounds(None, None, None, None)
    assert over_rounds([None, 5.0]) == OverRounds(5.0, None, None, None)
    assert over_rounds([0.0, 0.0]) == OverRounds(0.0, None, None, None)


@settings(deadline=None)
@given(st.lists(st.none() | st.floats(0, 1e9), max_size=10))
def test_never_nan_nor_infinite(values: list[float | None]) -> None:
    found = over_rounds(values)
    assert all(value is None or math.isfinite(value) for value in found)
    if found.median is not None and found.low is not None and found.high is not None:
        assert found.low <= found.median * (1 + 1e-9)
        assert found.median <= found.high * (1 + 1e-9)
    for each in METRICS:
        instability(each, values, found)


def test_instability_in_words() -> None:
    cpu, p99 = metric("cpu_per_request"), metric("p99")
    restless = [10.0, 12.0, 11.0]
    sentence = instability(cpu, restless, over_rounds(restless))
    assert sentence is not None
    assert "CPU per request is unstable: over 3 rounds it went from 10 to 12 ms" in sentence
    assert instability(p99, restless, over_rounds(restless)) is None  # a tail may
    assert instability(cpu, [10.0, 10.1, 10.2], over_rounds([10.0, 10.1, 10.2])) is None
    assert instability(cpu, [10.0, 15.0], over_rounds([10.0, 15.0])) is None  # two tell nothing
    assert instability(metric("latency_max"), [1.0, 9.0, 90.0], over_rounds([1.0, 9.0, 90.0])) is None


def test_every_metric_with_an_interval_says_how_steady_it_is() -> None:
    never = {"latency_max", "gc_pause_max", "cold_start", "connections", "idle_cpu"}  # single moments, or a second
    assert {each.name for each in METRICS if each.cv_max is None} == never
    assert all(each.cv_max is not None for each in METRICS if each.headline)
