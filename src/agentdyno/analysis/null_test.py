"""The null test: one adapter twice, which must not differ. What differs between all the others is judged by it."""

from __future__ import annotations

from collections.abc import Sequence

from agentdyno.analysis.intervals import CONFIDENCE, LEAST_ROUNDS, chance_of_none, holm
from agentdyno.analysis.metrics import METRICS, Metric
from agentdyno.analysis.paired import log_ratios, ratio
from agentdyno.analysis.under_load import Rounds
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import NullTest, PairRow


def null_test(pair: tuple[str, str], by_load: Sequence[tuple[Rounds, Rounds]]) -> NullTest:
    """Every headline metric where it is compared. by_load: the rounds of the two, under each load.

    With a dozen metrics one would differ by chance in every second campaign; Holm's correction keeps the chance of any
    false alarm in a whole campaign at 5 %.
    """
    rows: list[PairRow] = []
    chances: dict[str, float] = {}
    names: dict[str, tuple[Metric, LoadName]] = {}
    for one, other in by_load:
        for metric in METRICS:
            if one.load not in metric.headline:
                continue
            a, b = one.per_round(metric), other.per_round(metric)
            rows.append(PairRow(load=one.load, metric=metric.name, a=one.label, b=other.label, ratio=ratio(a, b)))
            chance = chance_of_none(log_ratios(a, b) or ())
            if chance is not None:
                key = f"{metric.name} {one.load.value}"
                chances[key], names[key] = chance, (metric, one.load)
    found = [names[key] for key in holm(chances)]
    return NullTest(
        a=pair[0],
        b=pair[1],
        passed=not found if chances else None,
        rows=tuple(rows),
        found=tuple(dict.fromkeys(metric.name for metric, _ in found)),
        sentence=_sentence(pair, len(chances), found),
    )


def _sentence(pair: tuple[str, str], tested: int, found: Sequence[tuple[Metric, LoadName]]) -> str:
    who = f"{pair[0]} against itself ({pair[1]})"
    if not tested:
        return f"{who}: not tested, for want of {LEAST_ROUNDS} rounds in which both were valid."
    if not found:
        return f"{who}: no difference on any of {tested} figures, as it must be."
    which = ", ".join(f"{metric.title} under the {load.value} load" for metric, load in found)
    return (
        f"{who}: differs on {which}, of {tested} figures, where chance alone would do so in {1 - CONFIDENCE:.0%} of "
        "campaigns. Something beside the frameworks changed: differences of this size are not to be trusted here."
    )
