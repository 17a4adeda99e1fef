"""A comparison in the terminal: the verdict, the headline tables, what stands out."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison
from agentdyno.report.comparison_table import HeadlineTable, headline
from agentdyno.report.comparison_words import DASH, capitalized, load_title, verdict


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Names and messages are printed as they are, never as markup."""
    for load in LoadName:
        if (table := headline(comparison, load)) is not None:
            console.print(Text(capitalized(load_title(load, comparison)), "bold"))
            console.print(_across(table))
            for reason in table.reasons:
                console.print(Text(f"{DASH} {capitalized(reason)}.", "dim"))
    for entry in comparison.entries:
        sentence = Text.assemble((entry.label, "bold"), f": {entry.sentence}")
        console.print(sentence, soft_wrap=not console.is_terminal)
    for words in verdict(comparison):
        console.print(Text(words), soft_wrap=not console.is_terminal)


def _across(table: HeadlineTable) -> Table:
    """A metric a line and an entry a column: there are more metrics than a terminal has columns for."""
    shown = Table(box=None, padding=(0, 2, 0, 0))
    shown.add_column("")
    for row in table.rows:
        shown.add_column(Text(row.entry.label), justify="right")
    for at, column in enumerate(table.columns):
        shown.add_row(Text(column.heading, "dim"), *(Text(row.cells[at].text) for row in table.rows))
    return shown
