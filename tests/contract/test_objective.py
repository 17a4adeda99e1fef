"""The words of an objective: what they mean, and a sentence for what cannot be meant."""

import pytest

from agentdyno.contract.objective import IMPLIED_ERRORS_PERCENT, Clause, Measure, ObjectiveError, parse_objective


def test_the_published_objective() -> None:
    assert parse_objective("p99<2s,errors<0.1%") == (Clause(Measure.P99, 2000.0), Clause(Measure.ERRORS, 0.1))
    assert [str(clause) for clause in parse_objective("p99<2s,errors<0.1%")] == ["p99<2s", "errors<0.1%"]


@pytest.mark.parametrize(
    ("words", "limit_ms", "quantile"),
    [
        ("p50<250ms", 250, 0.5),
        ("p90<0.5s", 500, 0.9),
        ("p95<1.5s", 1500, 0.95),
        ("p999<60s", 60_000, 0.999),
        ("p99.9<60s", 60_000, 0.999),
        (" p99 < 20ms ", 20, 0.99),
    ],
)
def test_times(words: str, limit_ms: float, quantile: float) -> None:
    clause = parse_objective(words)[0]
    assert (clause.limit, clause.measure.quantile, clause.implied) == (limit_ms, quantile, False)
    assert parse_objective(str(clause))[0] == clause


def test_latency_alone_implies_that_answers_are_right() -> None:
    """A host that rejects nearly everything is fast."""
    assert parse_objective("p99<2s")[-1] == Clause(Measure.ERRORS, IMPLIED_ERRORS_PERCENT, implied=True)
    assert parse_objective("p99<2s,rejected<5%")[-1] == Clause(Measure.ERRORS, 5 + IMPLIED_ERRORS_PERCENT, implied=True)
    assert len(parse_objective("errors<1%")) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "is no clause"),
        ("p99", "is no clause"),
        ("p99>2s", "is no clause"),
        ("p99<=2s", "needs a time"),
        ("p99<2s,", "is no clause"),
        ("p99<2s errors<1%", "is no clause"),
        ("P99<2s", "is no clause"),
        ("p98<2s", "'p98' is not known; there are: p50, p90, p95, p99, p999, errors, rejected"),
        ("mean<2s", "is not known"),
        ("p99<2", "needs a time in ms or s"),
        ("p99<2%", "needs a time in ms or s"),
        ("p99<2m", "needs a time in ms or s"),
        ("p99<-2s", "needs a time"),
        ("p99<nans", "needs a time"),
        ("p99<0ms", "can never tell anything"),
        ("p99<2h", "needs a time"),
        ("p99<99999s", "can never tell anything"),
        ("errors<1s", "needs a share in %"),
        ("errors<1", "needs a share in %"),
        ("errors<0%", "can never tell anything"),
        ("errors<101%", "can never tell anything"),
        ("p99<2s,p99<3s", "names p99 twice"),
        ("p999<2s,p99.9<3s", "names p999 twice"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(words: str, sentence: str) -> None:
    with pytest.raises(ObjectiveError) as caught:
        parse_objective(words)
    assert sentence in str(caught.value)
    assert "SLO" in str(caught.value)
