"""What a campaign measures: contestants, order, the rate that all hold, and what a budget allows."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.campaign import LoadName, Probe
from agentdyno.rig.campaign.plan import (
    HEAP_OVERHEAD_S,
    MIN_ROUNDS,
    SEARCH_S,
    Times,
    draw,
    labels_of,
    steady_rate,
    variant_of,
    within_budget,
)
from agentdyno.rig.option_values import OptionError


def probe(label: str, capacity_rps: float | None) -> Probe:
    return Probe(label=label, run_id="r", rate=200, capacity_rps=capacity_rps)


def test_the_control_comes_first_and_once_more_for_the_null_test() -> None:
    assert labels_of(["langchain"], null_test=True) == (["bare", "langchain", "bare#2"], ("bare", "bare#2"))
    assert labels_of(["langchain", "bare"], null_test=False) == (["bare", "langchain"], None)


def test_a_pair_that_was_named_is_the_null_test() -> None:
    assert labels_of(["bare", "bare#2"], null_test=True) == (["bare", "bare#2"], ("bare", "bare#2"))
    named = labels_of(["langchain", "langchain#2"], null_test=True)
    assert named == (["bare", "langchain", "langchain#2"], ("langchain", "langchain#2"))
    assert variant_of("langchain#2") == "langchain"


@pytest.mark.parametrize(("names", "said"), [(["x", "x"], "x#2"), (["x#2"], "without x")])
def test_names_that_cannot_be_meant(names: list[str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        labels_of(names, null_test=True)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32))
def test_every_round_holds_every_entry_once_under_each_load(entries: int, rounds: int, seed: int) -> None:
    labels = [f"f{number}" for number in range(entries)]
    runs = draw(labels, rounds, seed)
    places = Counter((run.round, run.load, run.label) for run in runs)
    assert places == Counter(
        (number, load, label) for number in range(1, rounds + 1) for load in LoadName for label in labels
    )
    assert [run.number for run in runs] == list(range(1, len(runs) + 1))
    assert [run.round for run in runs] == sorted(run.round for run in runs)
    assert runs == draw(labels, rounds, seed)


def test_the_order_is_random_and_another_in_each_round() -> None:
    labels = [f"f{number}" for number in range(8)]
    runs = draw(labels, 40, seed=1)
    orders = {tuple((run.load, run.label) for run in runs if run.round == number) for number in range(1, 41)}
    assert len(orders) == 40
    first = Counter(next(run.label for run in runs if run.round == number) for number in range(1, 41))
    assert len(first) > 4  # no entry has the first place to itself
    assert draw(labels, 1, seed=1) != draw(labels, 1, seed=2)


@pytest.mark.parametrize(
    ("held", "rate"),
    [([200, 8.06], 4.0), ([200, 200], 100.0), ([1000.0], 200.0), ([0.3], 0.15), ([0.0617, None], 0.03)],
)
def test_the_steady_rate_is_half_of_what_the_slowest_holds(held: list[float | None], rate: float) -> None:
    probes = [probe(f"f{number}", capacity) for number, capacity in enumerate(held)]
    assert steady_rate(probes, 200.0) == rate


def test_what_an_entry_holds_is_the_most_that_it_answered() -> None:
    assert steady_rate([probe("slow", 3.0), probe("fast", 100.0), probe("slow", 8.0)], 200.0) == 4.0


def test_no_rate_where_nothing_was_answered() -> None:
    with pytest.raises(OptionError, match="answered anything"):
        steady_rate([probe("a", None)], 200.0)


@given(st.floats(600, 100_000), st.integers(1, 10), st.sampled_from([None, 3, 5, 8]), st.booleans(), st.booleans())
def test_a_budget_is_kept(budget_s: float, entries: int, rounds: int | None, heap: bool, curves: bool) -> None:
    heaps, searches = entries * heap, entries * curves

    def whole_s(times: Times) -> float:
        profiles_s = heaps * (times.duration_s + times.warmup_s + HEAP_OVERHEAD_S)
        return times.campaign_s(entries) + entries * 19 + profiles_s + searches * SEARCH_S

    try:
        times = within_budget(budget_s, entries, rounds, warmup_s=5.0, heaps=heaps, searches=searches)
    except OptionError:
        assert whole_s(Times(rounds or MIN_ROUNDS, 8.0, 5.0)) > budget_s
        return
    assert whole_s(times) <= budget_s
    assert times.rounds == rounds or (rounds is None and times.rounds in (3, 5))
    assert times.duration_s >= 8.0


def test_a_budget_that_is_too_short_says_what_would_do() -> None:
    with pytest.raises(OptionError, match=r"too short: 3 rounds of 8 entries .* about 20m"):
        within_budget(600, 8, None, warmup_s=5.0)
    said = r"of warm-up, and 7 heap profiles, and 7 capacity searches, take about 52m"
    with pytest.raises(OptionError, match=said):
        within_budget(600, 8, None, warmup_s=5.0, heaps=7, searches=7)
