"""Plots as geometry: positions from 0 to 1, which the templates draw as inline SVG.

Made on the server and not by a library in the page: so they print as lines and not as pixels, follow a dark or light
scheme by style sheet alone, are there without JavaScript, and fit any width with text that keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentdyno.analysis.metrics import rounded
from agentdyno.contract.comparison import CurvePoint

STYLES = 10
_LABEL_GAP = 0.052


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on an axis. minor: may be left out where room is short."""

    at: float
    text: str
    minor: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """From low to high; a logarithmic one needs low > 0. title: with the unit."""

    title: str
    low: float
    high: float
    log: bool = False
    named: tuple[tuple[float, str, bool], ...] = ()

    def at(self, value: float) -> float:
        """Where a value stands, 0 to 1; what lies outside is put on the edge."""
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    @property
    def ticks(self) -> list[Tick]:
        """Round numbers, or the named places."""
        if self.named:
            return [Tick(self.at(value), text, minor) for value, text, minor in self.named]
        values = _log_steps(self.low, self.high) if self.log else _even_steps(self.low, self.high)
        return [Tick(self.at(value), rounded(value), minor) for value, minor in values]


def linear_axis(title: str, values: Sequence[float], low: float = 0.0) -> Axis:
    """From `low` to a little above the largest value."""
    return Axis(title, low, max([low + 1e-9, *values]) * 1.04 or 1.0)


def log_axis(title: str, values: Sequence[float]) -> Axis:
    """Around all values above 0, a little wider."""
    positive = [value for value in values if value > 0] or [1.0]
    return Axis(title, min(positive) / 1.15, max(positive) * 1.15, log=True)


def _even_steps(low: float, high: float) -> list[tuple[float, bool]]:
    rough = (high - low) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(n * step, n % 2 == 1) for n in range(first, last + 1)]


def _log_steps(low: float, high: float) -> list[tuple[float, bool]]:
    """Decades, with 2 and 5 between them where there are few; finer ones where there is not even a decade."""
    decades = math.log10(high / low)
    factors: tuple[float, ...] = (1.0, 2.0, 5.0) if decades < 4 else (1.0,)
    if decades < 0.75:
        factors = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [(f * 10.0**p, f not in (1.0, 2.0, 5.0)) for p in powers for f in factors]
    return [(value, minor) for value, minor in found if low <= value <= high]


@dataclass(frozen=True, slots=True)
class Series:
    """One line to draw. style: which of the line styles, 0 for the control. dotted: mark each point."""

    label: str
    style: int
    points: Sequence[CurvePoint]
    dotted: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A series as drawn: path in a square of 1000, its points for the marks, where its label stands (from above)."""

    label: str
    style: int
    path: str
    dots: tuple[tuple[float, float], ...]
    label_at: float
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class LinePlot:
    """Lines on two axes. name: of its element in the page. missing: a sentence on who is not drawn, and why."""

    name: str
    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    missing: str = ""


def line_plot(name: str, title: str, x: Axis, y: Axis, series: Sequence[Series], why: str) -> LinePlot:
    """Lay it out; a series without points is not drawn. why: a series has none."""
    drawn = [one for one in series if one.points]
    ends = _spread([1 - y.at(one.points[-1].y) for one in drawn])
    lines = tuple(_line(one, x, y, end) for one, end in zip(drawn, ends, strict=True))
    absent = [one.label for one in series if not one.points]
    return LinePlot(name, title, x, y, lines, f"Not drawn, {why}: {', '.join(absent)}." if absent else "")


def _line(series: Series, x: Axis, y: Axis, label_at: float) -> Line:
    places = [(x.at(point.x) * 1000, (1 - y.at(point.y)) * 1000) for point in series.points]
    path = "M" + "L".join(f"{at:.1f} {up:.1f}" for at, up in places)
    dots = tuple((round(at, 1), round(up, 1)) for at, up in places) if series.dotted or len(places) == 1 else ()
    raw = tuple((float(f"{point.x:.6g}"), float(f"{point.y:.5g}")) for point in series.points)
    return Line(series.label, series.style, path, dots, label_at, raw)


def _spread(wanted: Sequence[float]) -> list[float]:
    """Places as near to those wanted as can be without one label on another."""
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    placed, above = [0.0] * len(wanted), -1.0
    for n in order:
        placed[n] = above = max(wanted[n], above + _LABEL_GAP)
    below = max(1.0, 0.5 + len(wanted) * _LABEL_GAP / 2)
    for n in reversed(order):
        placed[n] = below = min(placed[n], below)
        below -= _LABEL_GAP
    return placed


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a stacked bar, in percent of its length."""

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar. whole: what its pieces add up to. missing: why there is nothing to draw."""

    label: str
    segments: tuple[Segment, ...]
    whole: float | None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class BarPlot:
    """Stacked bars, all of the same length: where one takes 3 ms and another 6 s, no common scale shows both."""

    title: str
    bars: tuple[Bar, ...]


def bar_plot(title: str, bars: Sequence[tuple[str, Sequence[tuple[str, float]], str | None]]) -> BarPlot:
    """bars: label, the pieces (kind, value), and why there are none."""
    return BarPlot(title, tuple(_bar(label, pieces, missing) for label, pieces, missing in bars))


def _bar(label: str, pieces: Sequence[tuple[str, float]], missing: str | None) -> Bar:
    whole = sum(value for _, value in pieces)
    if not whole > 0:
        return Bar(label, (), None, missing or "it took no time that can be shared out")
    segments, before = [], 0.0
    for kind, value in pieces:
        segments.append(Segment(kind, round(100 * before / whole, 3), round(100 * value / whole, 3)))
        before += value
    return Bar(label, tuple(segments), whole, missing)


@dataclass(frozen=True, slots=True)
class Whisker:
    """A ratio with its interval, in percent of the width. sure: the interval does not cover 1."""

    label: str
    at: float | None
    low: float | None
    high: float | None
    sure: bool
    text: str


@dataclass(frozen=True, slots=True)
class WhiskerPlot:
    """Ratios on a logarithmic axis. one: where 1 stands. groups: a heading and its whiskers."""

    x: Axis
    one: float
    groups: tuple[tuple[str, tuple[Whisker, ...]], ...] = field(default=())


def plot_data(plots: list[LinePlot]) -> dict[str, Any]:
    """What the page's script reads values from: the drawn points, by the plot's name."""
    return {
        plot.name: {
            "log": plot.x.log,
            "low": plot.x.low,
            "high": plot.x.high,
            "shares": bool(plot.x.named),
            "unit": "" if plot.x.named else plot.x.title.rpartition(", ")[2],
            "lines": [{"label": line.label, "points": line.points} for line in plot.lines],
        }
        for plot in plots
    }
