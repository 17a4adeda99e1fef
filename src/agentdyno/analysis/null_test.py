"""The null test: one adapter twice, which must not differ. What differs between all the others is judged by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentdyno.analysis.intervals import CONFIDENCE, LEAST_ROUNDS, chance_of_none, holm
from agentdyno.analysis.metrics import Metric
from agentdyno.analysis.paired import PerRound, log_ratios, ratio
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import NullTest, PairRow


class Twice(NamedTuple):
    """One metric under one load, by round: of the adapter, and of the same adapter again."""

    load: LoadName
    metric: Metric
    one: PerRound
    other: PerRound


def null_test(pair: tuple[str, str], figures: Sequence[Twice]) -> NullTest:
    """pair: the two labels. figures: every headline metric where it is compared.

    With a dozen metrics one would differ by chance in every second campaign; Holm's correction keeps the chance of any
    false alarm in a whole campaign at 5 %.
    """
    chances: dict[int, float] = {}
    for at, figure in enumerate(figures):
        chance = chance_of_none(log_ratios(figure.one, figure.other) or ())
        if chance is not None:
            chances[at] = chance
    found = [figures[at] for at in holm(chances)]
    return NullTest(
        a=pair[0],
        b=pair[1],
        passed=not found if chances else None,
        rows=tuple(
            PairRow(load=f.load, metric=f.metric.name, a=pair[0], b=pair[1], ratio=ratio(f.one, f.other))
            for f in figures
        ),
        found=tuple(dict.fromkeys(figure.metric.name for figure in found)),
        sentence=_sentence(pair, len(chances), found),
    )


def _sentence(pair: tuple[str, str], tested: int, found: Sequence[Twice]) -> str:
    who = f"{pair[0]} against itself ({pair[1]})"
    if not tested:
        return f"{who}: not tested, for want of {LEAST_ROUNDS} rounds in which both were valid."
    if not found:
        return f"{who}: no difference on any of {tested} figures, as it must be."
    which = ", ".join(f"{figure.metric.title} under the {figure.load.value} load" for figure in found)
    return (
        f"{who}: differs on {which}, of {tested} figures, where chance alone would do so in {1 - CONFIDENCE:.0%} of "
        "campaigns. Something beside the frameworks changed: differences of this size are not to be trusted here."
    )
