"""A capacity search's options, and a sweep's: checked before anything is started."""

import pytest

from agentdyno.analysis.capacity import step_seconds
from agentdyno.contract.capacity import SearchPlan
from agentdyno.contract.errors import UserError
from agentdyno.rig.series.search_words import SearchWords, read_plan
from agentdyno.rig.series.sweep import read_tiers

WORDS = {
    "slo": "p99<2s,errors<0.1%",
    "max_rate": "1000",
    "max_steps": "40",
    "step": "10s",
    "max_step": "60s",
    "resolution": "5%",
}


def plan(first_rate: float = 10.0, **words: str) -> SearchPlan:
    return read_plan(first_rate, SearchWords(**(WORDS | words)))


def test_a_step_is_as_long_as_its_percentile_needs() -> None:
    found = plan()
    assert found.step_arrivals >= 459
    for rate in (found.least_rate, 10.0, 13.7, 33.3, 47.0):
        assert rate * step_seconds(found, rate) >= 459
        assert step_seconds(found, rate) <= 60
    assert step_seconds(found, 500) == 10


def test_no_step_begins_where_the_objective_cannot_be_told() -> None:
    assert plan(first_rate=1.0).first_rate == plan().least_rate > 459 / 60
    assert plan(first_rate=2.0, slo="p50<1s").first_rate == 2.0
    assert plan(first_rate=5000.0, max_rate="300").first_rate == 300.0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"slo": ""}, "is no clause"),
        ({"max_rate": "0"}, "MAX_RATE"),
        ({"max_rate": "fast"}, "MAX_RATE"),
        ({"max_rate": "5"}, "Raise MAX_STEP or MAX_RATE"),
        ({"slo": "p999<2s", "max_rate": "50"}, "Raise MAX_STEP or MAX_RATE"),
        ({"max_steps": "3"}, "MAX_STEPS"),
        ({"max_steps": "many"}, "MAX_STEPS"),
        ({"step": "0s"}, "STEP"),
        ({"step": "2h"}, "longer than 1 hours"),
        ({"step": "30s", "max_step": "10s"}, "less than STEP"),
        ({"resolution": "0.1%"}, "RESOLUTION"),
        ({"resolution": "5"}, "RESOLUTION"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(words: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        plan(**words)


def test_tiers_of_users() -> None:
    assert read_tiers("1,10,20,50,100") == (1, 10, 20, 50, 100)
    assert read_tiers(" 5 , 2") == (5, 2)


@pytest.mark.parametrize(
    "text", ["", "0", "1,,2", "1,1", "10,ten", "-1", "1.5", "1001", ",".join(map(str, range(1, 40)))]
)
def test_no_tiers(text: str) -> None:
    with pytest.raises(UserError, match="CONCURRENCY"):
        read_tiers(text)
