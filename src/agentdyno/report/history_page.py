"""A history as one HTML file that stands on its own."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from agentdyno.analysis.history import Found, History
from agentdyno.contract.comparison import CurvePoint
from agentdyno.report.gate import change
from agentdyno.report.history_words import asked_for, series_title, steps_sentence, version_of
from agentdyno.report.page import page
from agentdyno.report.plots import Axis, LinePlot, Series, line_plot, linear_axis, plot_data

_READ_AS: dict[str, Any] = {"shares": False, "unit": "(place in the order)"}  # the axis carries names, not numbers
_TICKS = 12  # that many versions have room below the plot; every second of them may give way
_LEVEL, _MEASURED = 0, 1  # line styles


def history_page(found: Found) -> str:
    """The page: for each series a plot, the steps in words, and the points as a table."""
    plots = [_plot(f"history-{number}", series) for number, series in enumerate(found.series)]
    return page(
        "history.html",
        title=f"{found.series[0].metric.title} over versions",
        metric=found.series[0].metric,
        series=[
            {
                "plot": plot,
                "title": series_title(one),
                "asked": asked_for(one),
                "steps": steps_sentence(one),
                "rows": _rows(one),
            }
            for one, plot in zip(found.series, plots, strict=True)
        ],
        notes=found.notes,
        plot_data={name: data | _READ_AS for name, data in plot_data(plots).items()},
    )


def _plot(name: str, series: History) -> LinePlot:
    """The points, and the level between steps: the median of its points."""
    metric = series.metric
    values = [point.value for point in series.points]
    title = f"{metric.title}, {metric.unit}".rstrip(", ")
    return line_plot(
        name,
        series_title(series),
        _versions(series),
        linear_axis(title, values),
        [
            Series("measured", _MEASURED, [CurvePoint(float(n), v) for n, v in enumerate(values, 1)], dotted=True),
            Series("level", _LEVEL, _levels(series)),
        ],
        "",
    )


def _versions(series: History) -> Axis:
    """The points in their order, as many of their versions named as have room."""
    every = max(1, -(-len(series.points) // _TICKS))
    shown = range(0, len(series.points), every)
    names = tuple((at + 1.0, version_of(series.points[at]), n % 2 == 1) for n, at in enumerate(shown))
    return Axis("version" if series.by_version else "in the order of time", 0.5, len(series.points) + 0.5, named=names)


def _levels(series: History) -> list[CurvePoint]:
    borders = [0, *(step.at for step in series.steps), len(series.points)]
    found = []
    for begin, end in pairwise(borders):
        level = median(point.value for point in series.points[begin:end])
        found += [CurvePoint(begin + 0.5, level), CurvePoint(end + 0.5, level)]
    return found


def _rows(series: History) -> list[dict[str, object]]:
    steps = {step.at: change(step.ratio) for step in series.steps}
    return [
        {
            "version": version_of(point),
            "measured": point.started_utc,
            "where": point.where,
            "rounds": point.rounds,
            "value": point.value,
            "step": steps.get(at, ""),
        }
        for at, point in enumerate(series.points)
    ]
