"""A comparison as Markdown, for a pull request: the verdict, the headline tables, what stands out, what is invalid."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison, RunRow
from agentdyno.report.comparison_table import Cell, HeadlineTable, headline, ledger, searches
from agentdyno.report.comparison_words import DASH, capitalized, load_sentence, load_title, title, verdict
from agentdyno.report.facts import machine_sentence, period

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def comparison_markdown(comparison: Comparison) -> str:
    """The whole text. Names and messages are text in it, never markup."""
    parts = [
        f"# {escaped(title(comparison))}",
        escaped(f"Campaign {comparison.campaign_id}, {period(comparison)}. {machine_sentence(comparison)}."),
        "\n".join(f"- {escaped(sentence)}" for sentence in verdict(comparison)),
    ]
    for load in LoadName:
        if (table := headline(comparison, load)) is not None:
            parts += [f"## {capitalized(load_title(load, comparison))}", load_sentence(load, comparison), _table(table)]
    stands_out = [f"- **{escaped(entry.label)}**: {escaped(entry.sentence)}" for entry in comparison.entries]
    parts += ["## What stands out", "\n".join(stands_out)]
    parts += [
        *_searches(comparison),
        *_work(comparison),
        *_null_test(comparison),
        *_left_out(comparison),
        *_limits(comparison),
    ]
    parts.append("The whole report is `report.html` beside this file, every figure of the loads is in `figures.csv`.")
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown prints as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _table(table: HeadlineTable) -> str:
    headings = ["Framework", *(column.heading for column in table.columns)]
    rows = []
    for row in table.rows:
        marks = ["control"] * row.entry.control + ["null test"] * row.entry.null + list(row.notes)
        name = row.entry.label + (f" ({'; '.join(marks)})" if marks else "")
        rows.append([name, *(_cell(cell) for cell in row.cells)])
    reasons = "".join(f"\n{DASH} {escaped(capitalized(reason))}.  " for reason in table.reasons)
    return markdown_table(headings, rows) + (f"\n{reasons}".rstrip() if reasons else "")


def _cell(cell: Cell) -> str:
    return f"{cell.text} ({cell.detail})" if cell.detail else cell.text


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 0) -> str:
    """The first column to the left, figures to the right. texts: so many of the last are no figures."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1 - texts), *["---"] * texts]]
    written = [f"| {' | '.join(map(escaped, line))} |" for line in [lines[0], *rows]]
    return "\n".join([written[0], f"| {' | '.join(lines[1])} |", *written[1:]])


def _searches(comparison: Comparison) -> list[str]:
    if (found := searches(comparison)) is None:
        return []
    return ["## Capacity", escaped(found.sentence), markdown_table(["Framework", *found.headings], found.rows, 1)]


def _work(comparison: Comparison) -> list[str]:
    for load in LoadName:
        if (table := ledger(comparison, load)) is not None:
            rows = [[label, *cells] for label, cells in table.rows]
            return [f"## The same work, {load.value}", markdown_table(["Framework", *table.headings], rows)]
    return []


def _null_test(comparison: Comparison) -> list[str]:
    null = comparison.null_test
    return ["## Null test", escaped(null.sentence if null is not None else "It was switched off.")]


def _left_out(comparison: Comparison) -> list[str]:
    left_out = [run for run in comparison.runs if not run.counted]
    if not left_out:
        return []
    return ["## Runs that do not count", "\n".join(f"- {_run(run)}" for run in left_out)]


def _run(run: RunRow) -> str:
    reasons = "; ".join(f"{finding.code.value}: {finding.message}" for finding in run.reasons) or "not run"
    return escaped(f"{run.label}, {run.load.value}, round {run.round}: {reasons}")


def _limits(comparison: Comparison) -> list[str]:
    if not comparison.not_to_conclude:
        return []
    return ["## What may not be concluded", "\n".join(f"- {escaped(one)}" for one in comparison.not_to_conclude)]
