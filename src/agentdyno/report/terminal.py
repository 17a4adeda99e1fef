"""One run as a table for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentdyno.analysis.metrics import METRICS
from agentdyno.analysis.served import in_words
from agentdyno.contract.summary import Load, Summary


def print_summary(summary: Summary, console: Console) -> None:
    """The verdict, what became of the arrivals, and every declared metric.

    Names and messages come from adapters, backends and logs: they are printed as they are, never as markup.
    """
    framework = summary.framework
    version = f" {framework.version}" if framework.version else ""
    title = f"{framework.name}{version}, scenario {summary.scenario}, {summary.backend.get('kind')} backend"
    console.print(Text(title, "italic"))
    if (stated := summary.backend.get("stated")) is not None:
        console.print(Text(f"The backend's settings, as its user states them: {stated}"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for metric in METRICS:
        table.add_row(Text(metric.title), Text(metric.text(summary)))
    console.print(table)
    if within := in_words(summary.backend_ms):
        console.print(Text(within))
    if summary.load is not None:
        console.print(Text(_arrivals(summary.load)))
    verdict = summary.verdict
    word = Text("valid", "bold green") if verdict.valid else Text("invalid", "bold red")
    console.print(Text.assemble("Verdict: ", word, " (overloaded)" if summary.overloaded else ""))
    for finding in verdict.reasons:
        console.print(Text(f"  {finding.code.value}: {finding.message}"))
    for finding in verdict.notes:
        console.print(Text(f"  note {finding.code.value}: {finding.message}"))


def _arrivals(load: Load) -> str:
    parts = [f"{load.ok} ok"] + [
        f"{count} {name}"
        for name, count in (
            ("failed", load.failed),
            ("timed out", load.timeout),
            ("rejected", load.rejected),
            ("dropped", load.dropped),
        )
        if count
    ]
    late = load.lateness_ms
    worst = "" if late.max is None else f"; sent at most {late.max:.1f} ms late"
    return f"{load.arrivals} arrivals at {load.requested_rate:g}/s: {', '.join(parts)}{worst}."
