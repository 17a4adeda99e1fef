"""A series over versions in words."""

from __future__ import annotations

from agentdyno.analysis.history import History, Point
from agentdyno.analysis.steps import ALARM, POINTS_NEEDED
from agentdyno.report.comparison_words import DASH
from agentdyno.report.gate import change


def series_title(series: History) -> str:
    """What is drawn, and in which order."""
    load = f", {series.load} load" if series.load is not None else ""
    order = "by version" if series.by_version else "by date"
    return f"{series.label}, {series.metric.title}{load}: {len(series.points)} points, {order}"


def asked_for(series: History) -> str:
    """What is the same in all points."""
    return ", ".join(f"{name} {DASH if value is None else value}" for name, value in series.asked.items())


def steps_sentence(series: History) -> str:
    """Which steps there are, or why none is marked."""
    count = len(series.points)
    if count < POINTS_NEEDED:
        return f"No step can be marked: that needs {POINTS_NEEDED} points, and there are {count}."
    chance = f"the chance of a mark where there is no step is {ALARM:.0%}".replace("%", " %")
    if not series.steps:
        return f"No step ({chance})."
    said = [
        f"at {version_of(series.points[step.at])} ({series.points[step.at].where}): {change(step.ratio)}"
        for step in series.steps
    ]
    return f"{'Steps' if len(said) > 1 else 'A step'} {'; '.join(said)} ({chance})."


def version_of(point: Point) -> str:
    """The framework's version, or the commit that measured where it has none."""
    return point.version or (point.commit[:12] if point.commit else DASH)
