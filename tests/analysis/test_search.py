"""The search against known curves: it finds the knee, is not fooled by a hiccup, and always comes to an end."""

import math
import random
from collections.abc import Callable

import pytest

from agentdyno.analysis.search import Conclusion, Search, Trial
from agentdyno.contract.capacity import Answer, SearchPlan, StepKind
from agentdyno.contract.objective import parse_objective

Curve = Callable[[Trial, int], Answer]


def plan(**changes: object) -> SearchPlan:
    fields = {
        "objective": parse_objective("p99<2s,errors<0.1%"),
        "first_rate": 10.0,
        "least_rate": 1.0,
        "max_rate": 1000.0,
        "max_steps": 40,
        "resolution": 0.05,
        "confirmations": 3,
        "confirmed_by": 2,
        "beyond": (1.25, 1.5, 2.0),
        "step_arrivals": 482,
        "least_step_s": 10.0,
        "most_step_s": 60.0,
        "settle_s": 2.0,
        "recovery_bound_s": 30.0,
    }
    return SearchPlan(**(fields | changes))


def run(curve: Curve, **changes: object) -> tuple[Conclusion, list[tuple[Trial, Answer]]]:
    search = Search(plan(**changes))
    steps: list[tuple[Trial, Answer]] = []
    while (trial := search.next()) is not None:
        assert search.next() == trial  # asking changes nothing
        answer = curve(trial, len(steps))
        search.tell(trial, answer)
        steps.append((trial, answer))
        assert len(steps) <= 40
    return search.conclusion(), steps


def knee(at: float) -> Curve:
    return lambda trial, _: Answer.MET if trial.rate <= at else Answer.NOT_MET


def kinds(steps: list[tuple[Trial, Answer]]) -> list[StepKind]:
    return [trial.kind for trial, _ in steps]


@pytest.mark.parametrize("at", [1.0, 1.7, 9.9, 10.0, 28.4, 137.0, 511.0, 900.0])
def test_a_knee_is_found_to_the_resolution(at: float) -> None:
    found, steps = run(knee(at))
    assert found.found is not None
    assert at / 1.06 <= found.found <= at
    assert (found.bounded, found.complete, found.met_nowhere) == (True, True, False)
    assert kinds(steps).count(StepKind.CONFIRM) == 2
    assert kinds(steps).count(StepKind.ABOVE) == 1
    assert all(trial.rate <= 1000 for trial, _ in steps)


def test_the_curve_goes_to_twice_the_capacity_and_no_rate_there_is_tried_in_vain() -> None:
    found, steps = run(knee(20))
    beyond = [trial.rate for trial, _ in steps if trial.kind is StepKind.BEYOND]
    assert found.found is not None
    assert beyond[-1] == pytest.approx(2 * found.found, rel=0.01)
    assert steps[-1][0].kind is StepKind.BEYOND
    others = [trial.rate for trial, _ in steps if trial.kind is not StepKind.BEYOND]
    assert not any(abs(rate - other) <= 0.04 * rate for rate in beyond[:-1] for other in others)


def test_always_met_is_a_lower_bound_and_nothing_more() -> None:
    found, steps = run(knee(math.inf), max_rate=300.0)
    assert (found.found, found.bounded, found.complete) == (300.0, False, True)
    assert max(trial.rate for trial, _ in steps) == 300.0
    assert "at least" in found.sentence


def test_never_met_is_said_once_the_lowest_rate_is_tried() -> None:
    found, steps = run(knee(0))
    assert (found.found, found.met_nowhere, found.complete) == (None, True, True)
    assert [trial.rate for trial, _ in steps][-2:] == [1.0, 1.0]  # the last word has been heard twice
    assert "not met at 1/s" in found.sentence


def test_a_hiccup_at_the_lowest_rate_is_not_the_end() -> None:
    found, steps = run(lambda trial, number: Answer.NOT_MET if number == 0 else knee(30)(trial, number), first_rate=1.0)
    assert steps[1] == (Trial(StepKind.ABOVE, 1.0), Answer.MET)
    assert found.found is not None
    assert 30 / 1.06 <= found.found <= 30


def test_what_cannot_be_told_at_the_lowest_rate_is_not_called_a_failure() -> None:
    found, _ = run(lambda *_: Answer.NOT_TOLD)
    assert (found.found, found.met_nowhere, found.complete) == (None, False, True)
    assert "not told" in found.sentence


def test_a_hiccup_on_the_way_up_does_not_halve_the_capacity() -> None:
    def curve(trial: Trial, number: int) -> Answer:
        return Answer.NOT_MET if number == 2 else knee(137)(trial, number)  # the third step, at 40/s

    found, steps = run(curve)
    assert steps[2] == (Trial(StepKind.RAMP, 40.0), Answer.NOT_MET)
    assert found.found is not None
    assert 130 <= found.found <= 137


def test_a_rate_met_by_chance_is_not_confirmed_and_a_lower_one_is_found() -> None:
    lucky = iter([True])

    def curve(trial: Trial, number: int) -> Answer:
        if trial.rate > 30 and trial.kind is StepKind.RAMP and next(lucky, False):
            return Answer.MET
        return knee(30)(trial, number)

    found, steps = run(curve)
    assert (Trial(StepKind.RAMP, 40.0), Answer.MET) in steps
    assert found.found is not None
    assert 30 / 1.06 <= found.found <= 30


def test_noise_moves_the_answer_by_no_more_than_it_is_wide() -> None:
    """Within 10 % of the knee each step is a coin that falls the surer the further off it is."""
    for seed in range(200):
        draw = random.Random(seed)

        def curve(trial: Trial, _: int, draw: random.Random = draw) -> Answer:
            excess = (trial.rate / 100 - 1) / 0.1
            return Answer.MET if draw.random() > (excess + 1) / 2 else Answer.NOT_MET

        found, _ = run(curve, max_steps=40)
        if found.found is not None:
            assert 85 <= found.found <= 112
        else:
            assert not found.complete


def test_a_second_island_above_is_shown_and_not_taken_for_the_capacity() -> None:
    def curve(trial: Trial, _: int) -> Answer:
        return Answer.MET if trial.rate <= 30 or trial.rate > 55 else Answer.NOT_MET

    found, _ = run(curve, first_rate=12.0)
    assert found.found is not None
    assert found.found <= 30
    assert "too: see the curve" in found.sentence


def test_an_invalid_step_is_tried_again_and_never_a_capacity() -> None:
    seen: set[float] = set()

    def once(trial: Trial, number: int) -> Answer:
        if trial.rate not in seen:
            seen.add(trial.rate)
            return Answer.INVALID
        return knee(137)(trial, number)

    found, _ = run(once)
    assert found.found is not None
    assert 130 <= found.found <= 137
    assert found.bounded


def test_where_the_generator_gives_up_there_is_a_lower_bound_only() -> None:
    found, steps = run(lambda trial, _: Answer.MET if trial.rate <= 60 else Answer.INVALID)
    assert found.found is not None
    assert (found.bounded, found.complete) == (False, True)
    assert 56 <= found.found <= 60
    assert "generator did not keep up" in found.sentence
    assert StepKind.BEYOND not in kinds(steps) or all(
        a is Answer.INVALID for t, a in steps if t.kind is StepKind.BEYOND
    )


def test_a_generator_that_never_keeps_up_ends_the_search_without_an_answer() -> None:
    found, steps = run(lambda *_: Answer.INVALID)
    assert found.found is None
    assert not found.met_nowhere
    assert len(steps) <= 40


@pytest.mark.parametrize("most", [6, 8, 11, 14])
def test_steps_are_bounded_and_an_early_end_says_so(most: int) -> None:
    found, steps = run(knee(137), max_steps=most)
    assert len(steps) <= most
    if found.found is None:
        assert not found.complete
        assert "ended" in found.sentence


def test_a_generator_that_was_only_late_for_a_while_does_not_hide_the_capacity() -> None:
    """Three invalid steps in a row look like its limit; the rate is tried once more before it is believed."""

    def curve(trial: Trial, number: int) -> Answer:
        return Answer.INVALID if 2 <= number <= 4 else knee(50)(trial, number)

    found, steps = run(curve)
    assert [answer for _, answer in steps[2:5]] == [Answer.INVALID] * 3
    assert found.found is not None
    assert found.bounded
    assert 50 / 1.06 <= found.found <= 50


def test_repeats_that_are_invalid_do_not_count_for_or_against() -> None:
    left = iter(range(6))  # two times the three in a row with which a rate is given up on the way to it

    def curve(trial: Trial, number: int) -> Answer:
        if trial.kind is StepKind.CONFIRM and next(left, None) is not None:
            return Answer.INVALID
        return knee(50)(trial, number)

    found, steps = run(curve)
    repeats = [answer for trial, answer in steps if trial.kind is StepKind.CONFIRM]
    assert repeats == [Answer.INVALID] * 6 + [Answer.MET] * 2
    assert found.bounded
