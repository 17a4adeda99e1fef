"""A comparison's figures as CSV in long form: one row a figure, full precision, the same bytes on every machine."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from agentdyno.contract.comparison import Comparison, FigureSet
from agentdyno.report.comparison_words import declared

COLUMNS = ("campaign", "load", "label", "metric", "unit", "statistic", "round", "value", "low", "high", "n")
_Figure = tuple[str, int | None, float | None, float | None, float | None, int | None]


def figures_csv(comparison: Comparison) -> str:
    """RFC 4180: lines end in CRLF, what needs it is quoted, the decimal point is a point. Empty: not measured.

    statistic: `round` (one round's own figure), `median` of the rounds, `cv` (standard deviation over mean, of them),
    `pooled` (of all rounds' samples), `ratio_to_control` and `tax` (paired by round). low, high: 95 % interval.
    n: rounds with a figure, samples, or pairs.
    """
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for under in comparison.under_load:
        for figure in under.figures:
            unit = declared(figure.metric).unit
            where = (comparison.campaign_id, under.load.value, under.label, figure.metric, unit)
            writer.writerows((*where, *row) for row in _rows(figure))
    return text.getvalue()


def _rows(figure: FigureSet) -> Iterator[_Figure]:
    for number, value in enumerate(figure.per_round, start=1):
        yield "round", number, value, None, None, None
    known = sum(value is not None for value in figure.per_round)
    yield "median", None, figure.median, figure.low, figure.high, known
    yield "cv", None, figure.cv, None, None, known
    if (pooled := figure.pooled) is not None:
        yield "pooled", None, pooled.value, pooled.low, pooled.high, pooled.n
    if (ratio := figure.ratio_to_control) is not None:
        yield "ratio_to_control", None, ratio.median, ratio.low, ratio.high, ratio.pairs
    if (tax := figure.tax) is not None:
        yield "tax", None, tax.median, tax.low, tax.high, tax.pairs
