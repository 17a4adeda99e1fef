"""A comparison as one HTML file that stands on its own: no outside address, on paper too, in any scheme and width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentdyno.analysis.metrics import METRICS
from agentdyno.analysis.percentiles import samples_needed
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison, Difference, EntryFacts, FigureSet, PairRow, PhaseMean, Ratio
from agentdyno.contract.phases import Phase
from agentdyno.report.comparison_plots import (
    latency_plot,
    memory_plot,
    null_plot,
    phase_bars,
    ratio_plot,
    step_plots,
)
from agentdyno.report.comparison_table import HeadlineTable, LedgerTable, headline, ledger, searches
from agentdyno.report.comparison_words import (
    command_again,
    declared,
    interval,
    load_sentence,
    load_title,
    number,
    times,
    title,
    verdict,
)
from agentdyno.report.facts import facts, machine_sentence, period
from agentdyno.report.page import page
from agentdyno.report.plots import plot_data

_CONTENTS = (
    ("results", "Results"), ("phases", "Phases"), ("latency", "Latency"), ("rates", "Rate against latency"),
    ("memory", "Memory"), ("ratios", "Against the control"), ("null", "Null test"), ("checks", "Checks"),
    ("work", "Same work"), ("figures", "Every figure"), ("runs", "Runs"), ("environment", "Environment"),
    ("definitions", "Definitions"), ("limits", "Not to conclude"), ("again", "Run it again"),
)  # fmt: skip
_PHASES = tuple(phase.value for phase in Phase)


def comparison_page(comparison: Comparison) -> str:
    """The whole page. Raises ValueError for NaN and the infinities."""
    latency = [plot for load in LoadName if (plot := latency_plot(comparison, load))]
    memory = [plot for load in LoadName if (plot := memory_plot(comparison, load))]
    steps = step_plots(comparison)
    return page(
        "comparison.html",
        c=comparison,
        title=title(comparison),
        when=period(comparison),
        machine=machine_sentence(comparison),
        verdict=verdict(comparison),
        contents=_CONTENTS,
        headlines=_headlines(comparison),
        phases=_PHASES,
        phase_plots=[bars for load in LoadName if (bars := phase_bars(comparison, load))],
        phase_rows=_phase_rows(comparison),
        latency_plots=latency,
        memory_plots=memory,
        searches=searches(comparison),
        step_plots=steps,
        heaps=[entry for entry in comparison.entries if _has_heap(entry)],
        ratio_plot=ratio_plot(comparison),
        matrices=_matrices(comparison),
        null_plot=null_plot(comparison),
        ledgers=_ledgers(comparison),
        all_figures=_all_figures(comparison),
        counted=sum(run.counted for run in comparison.runs),
        facts=facts(comparison),
        floors={quantile: samples_needed(quantile) for quantile in (0.5, 0.9, 0.95, 0.99)},
        metrics=METRICS,
        command=command_again(comparison),
        hashes=_hashes(comparison),
        sums=_sums(comparison),
        plot_data=plot_data([*latency, *memory, *steps]),
    )


def _headlines(comparison: Comparison) -> list[tuple[HeadlineTable, str, str]]:
    tables = {load: table for load in LoadName if (table := headline(comparison, load)) is not None}
    return [(t, load_title(load, comparison), load_sentence(load, comparison)) for load, t in tables.items()]


def _has_heap(entry: EntryFacts) -> bool:
    return any(rows is not None for rows in (entry.heap_bytes, entry.heap_objects, entry.heap_growth))


def _phase_rows(comparison: Comparison) -> list[tuple[str, list[tuple[str, Mapping[str, PhaseMean]]]]]:
    return [
        (
            load_title(load, comparison),
            [(u.label, {p.phase: p for p in u.phases or ()}) for u in comparison.under_load if u.load is load],
        )
        for load in LoadName
    ]


def _ledgers(comparison: Comparison) -> list[tuple[str, LedgerTable]]:
    found = [(load_title(load, comparison), ledger(comparison, load)) for load in LoadName]
    return [(name, table) for name, table in found if table is not None]


def _all_figures(comparison: Comparison) -> list[tuple[str, list[tuple[str, list[tuple[str, FigureSet, str]]]]]]:
    """By load, metric by metric: the figures of all entries, with their ratio in words."""
    found = []
    for load in LoadName:
        rows: dict[str, list[tuple[str, FigureSet, str]]] = {}
        for under in comparison.under_load:
            for figure in under.figures if under.load is load else ():
                rows.setdefault(_heading(figure.metric), []).append(
                    (under.label, figure, times(figure.ratio_to_control))
                )
        if rows:
            found.append((load_title(load, comparison), list(rows.items())))
    return found


def _heading(name: str) -> str:
    metric = declared(name)
    return f"{metric.title}, {metric.unit}" if metric.unit else metric.title


@dataclass(frozen=True, slots=True)
class Matrix:
    """Every entry over every other on one metric: text and interval."""

    title: str
    labels: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


def _matrices(comparison: Comparison) -> list[Matrix]:
    groups: dict[tuple[LoadName, str], list[PairRow]] = {}
    for row in comparison.pairs:
        groups.setdefault((row.load, row.metric), []).append(row)
    return [_matrix(comparison, load, metric, rows) for (load, metric), rows in groups.items()]


def _matrix(comparison: Comparison, load: LoadName, metric: str, rows: list[PairRow]) -> Matrix:
    ratios = {(row.a, row.b): row.ratio for row in rows}
    there = {label for pair in ratios for label in pair}
    labels = tuple(entry.label for entry in comparison.entries if entry.label in there)
    cells = tuple((a, tuple(_pair(ratios.get((a, b))) for b in labels)) for a in labels)
    return Matrix(f"{_heading(metric)}, {load.value}", labels, cells)


def _pair(ratio: Ratio | None) -> tuple[str, str]:
    if ratio is None or ratio.median is None:
        return "", ""
    mark = {Difference.NONE: "= ", Difference.UNCLEAR: "? "}.get(ratio.difference, "")
    return mark + number(ratio.median), interval(ratio.low, ratio.high)


def _hashes(comparison: Comparison) -> list[tuple[str, str]]:
    return [
        ("AgentDyno", comparison.agentdyno),
        ("Commit", comparison.commit or "not known: it was not run from a checkout"),
        ("Workload", comparison.workload_hash),
        ("Seed of the order", str(comparison.seed)),
        *((f"Lock of {entry.label}", entry.environment_sha256 or "not known") for entry in comparison.entries),
    ]


def _sums(comparison: Comparison) -> str:
    """As sha256sum writes them: two blanks between hash and path."""
    lines = [f"{digest}  runs/{run.run_id}/{name}" for run in comparison.runs for name, digest in run.files.items()]
    return "\n".join(lines)
