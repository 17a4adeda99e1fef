"""Which plots a comparison has: phases, latency distribution, rate against latency, memory over time, ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentdyno.analysis.metrics import METRICS, Better
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
    capitalized,
    declared,
    figure_of,
    load_title,
    times,
    under_of,
    why_missing,
    within,
)
from agentdyno.report.curves import distribution, memory_over_time
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
    log_axis,
)


def style(comparison: Comparison, label: str) -> int:
    """An entry's line style, the same in every plot: 0 for the control."""
    at = next((n for n, entry in enumerate(comparison.entries) if entry.label == label), 0)
    return at if at < STYLES else 1 + (at - 1) % (STYLES - 1)


def phase_bars(comparison: Comparison, load: LoadName) -> BarPlot | None:
    """Each phase's share of a traced request's mean time, and the whole; None where nothing was traced."""
    there = _under(comparison, load)
    if not any(under.phases for under in there):
        return None
    bars = [
        (
            under.label,
            [(phase.phase, phase.mean_ms) for phase in under.phases or ()],
            None if under.phases else _untraced(under),
        )
        for under in there
    ]
    return bar_plot(load_title(load, comparison), bars)


def _untraced(under: EntryUnderLoad) -> str:
    return "no traces of it" if under.valid_runs else why_missing(under, None)


def latency_plot(comparison: Comparison, load: LoadName) -> LinePlot | None:
    """Latency by the share of answers that took longer, both logarithmic; None where nobody was answered."""
    series = [
        Series(under.label, style(comparison, under.label), under.latency_curve) for under in _under(comparison, load)
    ]
    why = "as too few requests were answered in runs that count"
    return distribution(f"latency-{load.value}", load_title(load, comparison), series, why)


def memory_plot(comparison: Comparison, load: LoadName) -> LinePlot | None:
    """RSS over the run; None where it was not sampled."""
    series = [
        Series(under.label, style(comparison, under.label), under.memory_curve) for under in _under(comparison, load)
    ]
    why = "as its memory was not sampled in a run that counts"
    return memory_over_time(f"memory-{load.value}", load_title(load, comparison), series, why)


def step_plots(comparison: Comparison) -> list[LinePlot]:
    """Rate against latency and against goodput, of those whose capacity was searched; none where nobody's was."""
    kinds: list[tuple[str, str, Callable[[LoadStep], float | None]]] = [
        ("p50", "latency p50, ms", lambda step: step.p50_ms),
        ("p95", "latency p95, ms", lambda step: step.p95_ms),
        ("p99", "latency p99, ms", lambda step: step.p99_ms),
        ("goodput", "goodput, verified answers a second", lambda step: step.goodput_rps),
    ]
    searched = [entry for entry in comparison.entries if entry.steps]
    rates = [step.rate for entry in searched for step in entry.steps]
    found = []
    for kind, title, value in kinds:
        curves = {entry.label: _steps(entry, value) for entry in searched}
        values = [point.y for points in curves.values() for point in points]
        if not values:
            continue
        series = [Series(label, style(comparison, label), pts, dotted=True) for label, pts in curves.items()]
        axes = log_axis("rate, requests a second", rates), log_axis(title, values)
        heading = capitalized(title.partition(",")[0])
        found.append(line_plot(f"steps-{kind}", heading, *axes, series, "as no step had enough answers for it"))
    return found


def _steps(entry: EntryFacts, value: Callable[[LoadStep], float | None]) -> list[CurvePoint]:
    steps = sorted(entry.steps, key=lambda step: step.rate)
    return [CurvePoint(step.rate, y) for step in steps if (y := value(step)) is not None and y > 0]


def ratio_plot(comparison: Comparison) -> WhiskerPlot | None:
    """Each entry's ratio to the control, on each load's headline metrics that have a better and a worse."""
    groups: list[tuple[str, list[tuple[str, Ratio | None, str]]]] = []
    for load in LoadName:
        for metric in METRICS:
            if load not in metric.headline or metric.better is Better.NEITHER:
                continue
            entries = [under for under in _under(comparison, load) if under.label != comparison.control]
            rows = [_ratio_row(under, metric.name) for under in entries]
            if any(ratio is not None and ratio.median is not None for _, ratio, _ in rows):
                groups.append((f"{metric.title}, {load.value}", rows))
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
    sure = ratio.difference in (Difference.LOWER, Difference.HIGHER)
    return Whisker(label, middle, low, high, sure, f"{times(ratio)} ({within(ratio)})")


def _under(comparison: Comparison, load: LoadName) -> list[EntryUnderLoad]:
    """In the order of the entries."""
    found = (under_of(comparison, entry.label, load) for entry in comparison.entries)
    return [under for under in found if under is not None]
