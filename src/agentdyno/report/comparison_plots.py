"""Which plots a comparison has: phases, latency distribution, rate against latency, memory over time, ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import (
    Comparison,
    CurvePoint,
    Difference,
    EntryFacts,
    EntryUnderLoad,
    LoadStep,
    PairRow,
    Ratio,
)
from agentdyno.report.comparison_words import (
    DASH,
    declared,
    figure_of,
    interval,
    load_title,
    times,
    under_of,
    why_missing,
)
from agentdyno.report.plots import (
    STYLES,
    Axis,
    BarPlot,
    LinePlot,
    Series,
    Whisker,
    WhiskerPlot,
    bar_plot,
    line_plot,
    linear_axis,
    log_axis,
)

RATIOS = {
    LoadName.STEADY: ("cpu_per_request", "p50", "p99", "rss_peak", "gc_pause_total"),
    LoadName.STANDARD: ("goodput", "p99", "rss_peak", "gc_pause_total", "cpu_per_request"),
}
_PERCENTILES = (
    (1.0, "fastest", True), (0.5, "p50", False), (0.1, "p90", False), (0.05, "p95", True), (0.01, "p99", False),
    (0.001, "p99.9", False), (0.0001, "p99.99", False), (0.00001, "p99.999", False), (0.000001, "p99.9999", False),
)  # fmt: skip


def style(comparison: Comparison, label: str) -> int:
    """An entry's line style, the same in every plot: 0 for the control."""
    at = next((n for n, entry in enumerate(comparison.entries) if entry.label == label), 0)
    return at if at < STYLES else 1 + (at - 1) % (STYLES - 1)


def phase_bars(comparison: Comparison, load: LoadName) -> BarPlot | None:
    """Mean time of a traced request by phase; None where nothing was traced."""
    there = _under(comparison, load)
    if not any(under.phases for under in there):
        return None
    totals = [sum(phase.mean_ms for phase in under.phases or ()) for under in there]
    bars = [
        (
            under.label,
            [(phase.phase, phase.mean_ms) for phase in under.phases or ()],
            None if under.phases else _untraced(under),
        )
        for under in there
    ]
    return bar_plot(load_title(load, comparison), linear_axis("mean time per request, ms", totals), bars)


def _untraced(under: EntryUnderLoad) -> str:
    return "no traces of it" if under.valid_runs else why_missing(under, None)


def latency_plot(comparison: Comparison, load: LoadName) -> LinePlot | None:
    """Latency by the share of answers that took longer, both logarithmic; None where nobody was answered."""
    points = [point for under in _under(comparison, load) for point in under.latency_curve if point.x > 0]
    if not points:
        return None
    rarest = max(-log10(min(point.x for point in points)), 1)
    named = tuple((-log10(share), text, minor) for share, text, minor in _PERCENTILES if -log10(share) <= rarest)
    x = Axis("percentile of verified answers (logarithmic in the share that took longer)", 0.0, rarest, named=named)
    y = log_axis("latency from the intended start, ms", [point.y for point in points])

    def curve(under: EntryUnderLoad) -> Sequence[CurvePoint]:
        return [CurvePoint(-log10(p.x), p.y) for p in under.latency_curve if p.x > 0 and p.y > 0]

    return _lines(comparison, load, "latency", x, y, curve, "as no request was answered in a run that counts")


def memory_plot(comparison: Comparison, load: LoadName) -> LinePlot | None:
    """RSS over the run; None where it was not sampled."""
    points = [point for under in _under(comparison, load) for point in under.memory_curve]
    if not points:
        return None
    least, most = min(point.x for point in points), max(point.x for point in points)
    x = Axis("time since the schedule's origin, s", min(0.0, least), max(most, least + 1))
    y = linear_axis("RSS of the host's processes, MB", [point.y for point in points])
    return _lines(
        comparison,
        load,
        "memory",
        x,
        y,
        lambda under: under.memory_curve,
        "as its memory was not sampled in a run that counts",
    )


def _lines(
    comparison: Comparison,
    load: LoadName,
    kind: str,
    x: Axis,
    y: Axis,
    curve: Callable[[EntryUnderLoad], Sequence[CurvePoint]],
    why: str,
) -> LinePlot:
    curves = {under.label: curve(under) for under in _under(comparison, load)}
    series = [Series(label, style(comparison, label), points) for label, points in curves.items()]
    return line_plot(f"{kind}-{load.value}", load_title(load, comparison), x, y, series, why)


def step_plots(comparison: Comparison) -> list[LinePlot]:
    """Rate against latency and against goodput; none where no capacity was searched."""
    kinds: list[tuple[str, str, Callable[[LoadStep], float | None]]] = [
        ("p99", "latency p99, ms", lambda step: step.p99_ms),
        ("p50", "latency p50, ms", lambda step: step.p50_ms),
        ("goodput", "goodput, verified answers a second", lambda step: step.goodput_rps),
    ]
    rates = [step.rate for entry in comparison.entries for step in entry.steps]
    found = []
    for kind, title, value in kinds:
        curves = {entry.label: _steps(entry, value) for entry in comparison.entries}
        values = [point.y for points in curves.values() for point in points]
        if not values:
            continue
        y = linear_axis(title, values) if kind == "goodput" else log_axis(title, values)
        series = [Series(label, style(comparison, label), pts, dotted=True) for label, pts in curves.items()]
        x = log_axis("rate, requests a second", rates)
        found.append(
            line_plot(f"steps-{kind}", title.partition(",")[0].capitalize(), x, y, series, "as there is no such search")
        )
    return found


def _steps(entry: EntryFacts, value: Callable[[LoadStep], float | None]) -> list[CurvePoint]:
    steps = sorted(entry.steps, key=lambda step: step.rate)
    return [CurvePoint(step.rate, y) for step in steps if (y := value(step)) is not None and y > 0]


def ratio_plot(comparison: Comparison) -> WhiskerPlot | None:
    """Each entry's ratio to the control on the metrics that matter under each load."""
    groups: list[tuple[str, list[tuple[str, Ratio | None, str]]]] = []
    for load, metrics in RATIOS.items():
        for name in metrics:
            rows = [_ratio_row(under, name) for under in _under(comparison, load) if under.label != comparison.control]
            if any(ratio is not None and ratio.median is not None for _, ratio, _ in rows):
                groups.append((f"{declared(name).title}, {load.value}", rows))
    return _whiskers("ratio to the control (logarithmic)", groups)


def _ratio_row(under: EntryUnderLoad, name: str) -> tuple[str, Ratio | None, str]:
    figure = figure_of(under, name)
    missing = why_missing(under, figure) if figure is None or figure.median is None else "no pair with the control"
    return under.label, figure.ratio_to_control if figure is not None else None, missing


def null_plot(comparison: Comparison) -> WhiskerPlot | None:
    """The null test's ratios, by load."""
    if comparison.null_test is None:
        return None
    rows: dict[LoadName, list[PairRow]] = {}
    for row in comparison.null_test.rows:
        rows.setdefault(row.load, []).append(row)
    groups = [
        (load.value, [(declared(row.metric).title, row.ratio, "not measured in both") for row in found])
        for load, found in rows.items()
    ]
    return _whiskers(f"{comparison.null_test.b} over {comparison.null_test.a} (logarithmic)", groups)


def _whiskers(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, Ratio | None, str]]]]) -> WhiskerPlot | None:
    ratios = [ratio for _, rows in groups for _, ratio, _ in rows if ratio is not None]
    values = [v for ratio in ratios for v in (ratio.low, ratio.median, ratio.high) if v is not None and v > 0]
    if not values:
        return None
    axis = log_axis(title, [*values, 0.9, 1.12])
    drawn = tuple((heading, tuple(_whisker(axis, *row) for row in rows)) for heading, rows in groups)
    return WhiskerPlot(axis, axis.at(1.0) * 100, drawn)


def _whisker(axis: Axis, label: str, ratio: Ratio | None, missing: str) -> Whisker:
    if ratio is None or ratio.median is None or ratio.median <= 0:
        return Whisker(label, None, None, None, False, f"{DASH} {missing}")
    low, middle, high = ((axis.at(v) * 100 if v is not None and v > 0 else None)
                         for v in (ratio.low, ratio.median, ratio.high))  # fmt: skip
    within = interval(ratio.low, ratio.high)
    text = times(ratio) + (f" ({within})" if within else " (too few rounds for an interval)")
    return Whisker(label, middle, low, high, ratio.difference in (Difference.LOWER, Difference.HIGHER), text)


def _under(comparison: Comparison, load: LoadName) -> list[EntryUnderLoad]:
    """In the order of the entries."""
    found = (under_of(comparison, entry.label, load) for entry in comparison.entries)
    return [under for under in found if under is not None]
