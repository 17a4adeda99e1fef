"""A sweep in the terminal: a row a tier, and what a closed loop can and cannot say."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentdyno.analysis.metrics import rounded
from agentdyno.contract.sweep import SweepResult, Tier, Waits

_COLUMNS = (
    *("users", "ok", "submit ms", "first token ms", "total ms", "RSS MB", "CPU peak", "CPU ms/request"),
    "cleaned up",
)


def print_sweep(result: SweepResult, console: Console) -> None:
    """The tiers, what is left out and why, and the warning that belongs to them."""
    limit = "off" if result.admission is None else str(result.admission)
    title = f"{result.framework.name}: users at once, admission limit {limit}; times are p50 / p95"
    console.print(Text(title, "italic"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for tier in result.tiers:
        table.add_row(*(Text(cell) for cell in _cells(tier)))
    console.print(table)
    console.print(Text("RSS: before, at most, when cleaned up. Submit: until the answer's head."))
    for tier in result.tiers:
        reasons = [f"{count} {reason}" for reason, count in tier.failure_reasons.items()]
        for text in (*tier.notes, *tier.clean.left, *reasons):
            console.print(Text(f"  {tier.users} users: {text}"))
    for finding in result.findings:
        console.print(Text(f"  {finding.code.value}: {finding.message}"))
    console.print(Text(result.closed_loop))


def tier_line(tier: Tier) -> str:
    """One tier as a line of progress."""
    clean = "clean" if tier.clean.clean else f"not clean: {'; '.join(tier.clean.left)}"
    return f"{tier.users} users: {tier.ok}/{tier.arrivals} ok in {tier.seconds:.1f} s, {clean}"


def _cells(tier: Tier) -> list[str]:
    clean = tier.clean
    return [
        str(tier.users),
        f"{tier.ok}/{tier.arrivals}",
        _pair(tier.submit_ms),
        _pair(tier.first_token_ms),
        _pair(tier.total_ms),
        " / ".join(_figure(value) for value in (tier.rss_before_mb, tier.rss_peak_mb, tier.rss_after_mb)),
        "-" if tier.cpu_peak_percent is None else f"{tier.cpu_peak_percent:.0f} %",
        _figure(tier.cpu_ms_per_request),
        f"yes, {clean.seconds:.1f} s" if clean.clean and clean.seconds is not None else "no",
    ]


def _pair(waits: Waits) -> str:
    return f"{_figure(waits.p50)} / {_figure(waits.p95)}"


def _figure(value: float | None) -> str:
    return "-" if value is None else rounded(value)
