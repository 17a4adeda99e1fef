"""`agentdyno history`: a metric over versions, in the terminal and as a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentdyno.analysis.history import Found, History, HistoryError, read_history
from agentdyno.analysis.metrics import METRICS, rounded
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.report.history_page import history_page
from agentdyno.report.history_words import asked_for, series_title, steps_sentence, version_of

_BAR = 24


def show_history(
    folder: Path,
    metric: str = "cpu_per_request",
    frameworks: Sequence[str] = (),
    load: str | None = None,
    out: Path | None = None,
) -> ExitCode:
    """Print every series of the metric under `folder`. out: also written there as a page of its own.

    Raises HistoryError for a metric or a load that there is not, and where nothing was measured.
    """
    known = {one.name: one for one in METRICS}
    if metric not in known:
        raise HistoryError(f"--metric: there is no metric {metric!r}. There are: {', '.join(known)}.")
    loads = [one.value for one in LoadName]
    if load is not None and load not in loads:
        raise HistoryError(f"--load: there is no load {load!r}. There are: {', '.join(loads)}.")
    found = read_history(folder, known[metric], tuple(frameworks), None if load is None else LoadName(load))
    print_history(found, Console(file=sys.stdout, soft_wrap=not sys.stdout.isatty()))
    if out is not None:
        try:
            out.write_text(history_page(found), encoding="utf-8")
        except OSError as error:
            raise UserError(f"The page cannot be written to {out}: {error.strerror}.") from error
        sys.stdout.write(f"{out}\n")
    return ExitCode.VALID


def print_history(found: Found, console: Console) -> None:
    """A table for each series; names are printed as they are, never as markup."""
    for series in found.series:
        console.print(Text(series_title(series), "bold"))
        console.print(Text(asked_for(series), "dim"))
        console.print(_table(series))
        console.print(Text(steps_sentence(series)))
        console.print()
    for note in found.notes:
        console.print(Text(f"note: {note}"))


def _table(series: History) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, justify in (("version", "left"), ("measured", "left"), ("rounds", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column(f"{series.metric.title}, {series.metric.unit}".rstrip(", "), justify="right")
    table.add_column("")
    highest = max(point.value for point in series.points)
    steps = {step.at for step in series.steps}
    for at, point in enumerate(series.points):
        bar = "█" * round(_BAR * point.value / highest) if highest > 0 else ""
        cells = (version_of(point), point.started_utc[:10], str(point.rounds), rounded(point.value))
        table.add_row(*(Text(cell) for cell in cells), Text(f"{bar} step" if at in steps else bar))
    return table
