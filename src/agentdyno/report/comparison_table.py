"""The headline table of a comparison, from the declared metrics; HTML and Markdown print the same cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentdyno.analysis.metrics import METRICS
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison, EntryFacts, EntryUnderLoad, SearchOutcome
from agentdyno.report.comparison_words import (
    DASH,
    LEADING,
    declared,
    figure_of,
    interval,
    number,
    state,
    times,
    under_of,
    why_missing,
    within,
)

_TITLES = {"goodput": "QPS (goodput)"}


@dataclass(frozen=True, slots=True)
class Cell:
    """text: the figure, rounded. detail: its interval. sort: what to sort by. missing: why the text is a dash."""

    text: str
    detail: str = ""
    sort: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column. definition: a sentence. cell: of an entry under the table's load.

    control: what stands there for the control, which is not compared with itself.
    """

    title: str
    unit: str
    definition: str
    cell: Callable[[EntryUnderLoad], Cell]
    control: Cell | None = None

    @property
    def heading(self) -> str:
        """Title and unit, for a table without markup."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True, slots=True)
class Row:
    """One entry. notes: what a reader of it must know."""

    entry: EntryFacts
    notes: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class HeadlineTable:
    """One load's table. reasons: of the dashes in it, each once."""

    load: LoadName
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def reasons(self) -> list[str]:
        """Why cells are dashes, each reason once, in the order of the rows."""
        found = [cell.missing for row in self.rows for cell in row.cells if cell.missing]
        return list(dict.fromkeys(found))


def headline(comparison: Comparison, load: LoadName) -> HeadlineTable | None:
    """The table of one load, the control first; None where nobody was run under it.

    Both loads' tables have the same columns: every metric that is a headline somewhere, what each costs first.
    """
    columns = (
        _metric(LEADING),
        Column(
            "Framework tax",
            declared(LEADING).unit,
            "CPU per request minus the control's, paired by round.",
            _tax,
            Cell("control", sort=0.0),
        ),
        Column(
            "CPU against the control",
            "",
            "CPU per request over the control's, paired by round; the interval is of that ratio.",
            _ratio,
            Cell("control", sort=1.0),
        ),
        *(_metric(metric.name) for metric in METRICS if metric.headline and metric.name != LEADING),
    )
    rows = [
        Row(entry, tuple(state(under)), tuple(_cell(column, entry, under) for column in columns))
        for entry in comparison.entries
        if (under := under_of(comparison, entry.label, load)) is not None
    ]
    return HeadlineTable(load, columns, tuple(rows)) if rows else None


def _cell(column: Column, entry: EntryFacts, under: EntryUnderLoad) -> Cell:
    return column.control if entry.control and column.control is not None else column.cell(under)


def _metric(name: str) -> Column:
    metric = declared(name)
    if metric.quantile is not None:
        definition = f"{metric.definition} All rounds' samples together."
        return Column(f"{metric.title}, pooled", metric.unit, definition, lambda under: _pooled(under, name))
    definition = f"{metric.definition} Median of the rounds."
    title = _TITLES.get(name, metric.title)
    return Column(title, metric.unit, definition, lambda under: _median(under, name))


def _median(under: EntryUnderLoad, name: str) -> Cell:
    figure = figure_of(under, name)
    if figure is None or figure.median is None:
        return Cell(DASH, missing=why_missing(under, figure))
    return Cell(number(figure.median), interval(figure.low, figure.high), figure.median)


def _pooled(under: EntryUnderLoad, name: str) -> Cell:
    figure = figure_of(under, name)
    pooled = figure.pooled if figure is not None else None
    if pooled is None or pooled.value is None:
        return Cell(DASH, missing=why_missing(under, figure, pooled=True))
    return Cell(number(pooled.value), interval(pooled.low, pooled.high), pooled.value)


def _tax(under: EntryUnderLoad) -> Cell:
    figure = figure_of(under, LEADING)
    tax = figure.tax if figure is not None else None
    if tax is None or tax.median is None:
        return Cell(DASH, missing=_unpaired(under))
    return Cell(number(tax.median), interval(tax.low, tax.high), tax.median)


def _ratio(under: EntryUnderLoad) -> Cell:
    figure = figure_of(under, LEADING)
    ratio = figure.ratio_to_control if figure is not None else None
    if ratio is None or ratio.median is None:
        return Cell(DASH, missing=_unpaired(under))
    return Cell(times(ratio), within(ratio), ratio.median)


def _unpaired(under: EntryUnderLoad) -> str:
    figure = figure_of(under, LEADING)
    if figure is None or figure.median is None:
        return why_missing(under, figure)
    return "it shares no counted round with the control"


@dataclass(frozen=True, slots=True)
class LedgerTable:
    """The same-work ledger under one load: label and cells. reasons: of the dashes."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    reasons: tuple[str, ...]


def ledger(comparison: Comparison, load: LoadName) -> LedgerTable | None:
    """What each entry did per request, of the metrics that say so and are measured; None where none is."""
    there = [u for e in comparison.entries if (u := under_of(comparison, e.label, load)) is not None]
    measured = {f.metric for under in there for f in under.figures if f.median is not None}
    metrics = [metric for metric in METRICS if metric.path.startswith("ledger.") and metric.name in measured]
    if not metrics:
        return None
    cells = [(under.label, tuple(_median(under, metric.name) for metric in metrics)) for under in there]
    return LedgerTable(
        tuple(metric.title for metric in metrics),
        tuple((label, tuple(cell.text for cell in row)) for label, row in cells),
        tuple(dict.fromkeys(cell.missing for _, row in cells for cell in row if cell.missing)),
    )


@dataclass(frozen=True, slots=True)
class Searches:
    """What the capacity searches came to. sentence: what a capacity is. rows: by entry its name, the rate, and how it
    was found or why there is none.
    """

    sentence: str
    headings: tuple[str, str]
    rows: tuple[tuple[str, str, str], ...]


def searches(comparison: Comparison) -> Searches | None:
    """None where nobody's capacity was searched."""
    found = next((entry.search for entry in comparison.entries if entry.search is not None), None)
    if found is None:
        return None
    held = " and ".join(found.objective)
    return Searches(
        f"Capacity is the highest rate at which {held} held and was confirmed, found step by step.",
        ("Capacity, rps", "How it was found"),
        tuple((entry.label, *_capacity(entry.search)) for entry in comparison.entries),
    )


def _capacity(search: SearchOutcome | None) -> tuple[str, str]:
    if search is None:
        return DASH, "Not searched."
    if search.capacity_rps is None and search.at_least_rps is not None:
        return f"at least {number(search.at_least_rps)}", search.reason
    return number(search.capacity_rps), search.reason
