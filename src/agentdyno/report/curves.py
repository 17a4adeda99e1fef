"""The two curves of a run and of a comparison as plots: how latency is distributed, and memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log10

from agentdyno.contract.comparison import CurvePoint
from agentdyno.report.plots import Axis, LinePlot, Series, line_plot, linear_axis, log_axis

_PERCENTILES = (
    (1.0, "fastest", True), (0.5, "p50", False), (0.1, "p90", False), (0.05, "p95", True), (0.01, "p99", False),
    (0.001, "p99.9", False), (0.0001, "p99.99", False), (0.00001, "p99.999", False), (0.000001, "p99.9999", False),
)  # fmt: skip


def distribution(
    name: str, title: str, series: Sequence[Series], why: str, y_title: str = "latency from the intended start, ms"
) -> LinePlot | None:
    """Latency by percentile; None where nothing is to be drawn. why: one of the series may have no points.

    x of the series: the share that took longer, y: ms. Drawn on -log10 of the share, so that p90, p99 and p99.9 are
    as far from each other, and on a logarithmic axis of ms, so that equal ratios are as far.
    """
    drawn = [replace(one, points=[_place(p) for p in one.points if p.x > 0 and p.y > 0]) for one in series]
    points = [point for one in drawn for point in one.points]
    if not points:
        return None
    rarest = max(1.0, *(point.x for point in points))
    places = [(-log10(share), text, minor) for share, text, minor in _PERCENTILES]
    named = tuple(place for place in places if place[0] <= rarest + 1e-9)
    x = Axis("percentile of verified answers (logarithmic in the share that took longer)", 0.0, rarest, named=named)
    y = log_axis(y_title, [point.y for point in points])
    return line_plot(name, title, x, y, drawn, why)


def _place(point: CurvePoint) -> CurvePoint:
    return CurvePoint(-log10(point.x), point.y)


def memory_over_time(name: str, title: str, series: Sequence[Series], why: str) -> LinePlot | None:
    """RSS from 0 MB on; None where nothing is to be drawn. x of the series: s, y: MB."""
    points = [point for one in series for point in one.points]
    if not points:
        return None
    least, most = min(point.x for point in points), max(point.x for point in points)
    x = Axis("time since the schedule's origin, s", min(0.0, least), max(most, least + 1))
    y = linear_axis("RSS of the host's processes, MB", [point.y for point in points])
    return line_plot(name, title, x, y, series, why)
