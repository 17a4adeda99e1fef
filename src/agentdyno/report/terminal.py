"""One run as a table for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from agentdyno.analysis.metrics import METRICS
from agentdyno.contract.summary import Load, Summary


def print_summary(summary: Summary, console: Console) -> None:
    """The verdict, what became of the arrivals, and every declared metric."""
    framework = summary.framework
    version = f" {framework.version}" if framework.version else ""
    title = f"{framework.name}{version}, scenario {summary.scenario}, {summary.backend.get('kind')} backend"
    console.print(title, markup=False, highlight=False, style="bold")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for metric in METRICS:
        table.add_row(metric.title, metric.text(summary))
    console.print(table)
    if summary.load is not None:
        console.print(_arrivals(summary.load), highlight=False)
    verdict = summary.verdict
    word = "[bold green]valid[/]" if verdict.valid else "[bold red]invalid[/]"
    console.print(f"Verdict: {word}{' (overloaded)' if summary.overloaded else ''}", highlight=False)
    for finding in verdict.reasons:
        console.print(f"  {finding.code.value}: {finding.message}", markup=False, highlight=False)
    for finding in verdict.notes:
        console.print(f"  note {finding.code.value}: {finding.message}", markup=False, highlight=False)


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
