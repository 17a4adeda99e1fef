"""Goals, spreads, and what was not measured."""

import json

import msgspec
import pytest

from agentdyno.selfcheck.result import CheckResult, Figure, at_least, at_most, exactly, figure


def result(*figures: Figure, failed: str | None = None) -> CheckResult:
    return CheckResult(
        name="it",
        title="a check",
        figures=figures,
        failed=failed,
        took_s=1.0,
        load_average_before=None,
        load_average_after=None,
    )


def test_the_median_is_held_against_the_goal() -> None:
    found = figure("lateness", "ms", [9.0, 1.0, 2.0], at_most(2.0))
    assert (found.median, found.min, found.max, found.met) == (2.0, 1.0, 9.0, True)
    assert figure("lateness", "ms", [9.0, 1.0, 2.1], at_most(2.0)).met is False
    assert figure("rate", "", [9.0, 1.0, 2.0], at_least(2.0)).met is True
    assert figure("rate", "", [9.0, 1.0, 1.9], at_least(2.0)).met is False


def test_an_exact_goal_holds_for_every_repeat() -> None:
    assert figure("arrivals", "", [12_000, 12_000], exactly(12_000)).met is True
    assert figure("arrivals", "", [12_000, 12_000, 11_999], exactly(12_000)).met is False


@pytest.mark.parametrize("values", [[], [None], [1.0, None]])
def test_what_was_not_measured_is_null_and_meets_no_goal(values: list[float | None]) -> None:
    found = figure("p99", "ms", values, at_most(5.0))
    assert (found.median, found.min, found.max, found.met) == (None, None, None, False)
    assert json.loads(msgspec.json.encode(found))["median"] is None
    assert figure("p99", "ms", values).met is None


def test_a_check_is_met_when_it_was_measured_and_misses_nothing() -> None:
    good, missed = figure("a", "", [1.0], at_most(2.0)), figure("b", "", [3.0], at_most(2.0))
    assert result(good, figure("c", "", [1.0])).met
    assert not result(good, missed).met
    assert not result(failed="The host died.").met
