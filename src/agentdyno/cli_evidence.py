"""The commands on what was measured before: audit, check, history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command(
    "audit",
    epilog="Examples:\n\n"
    "- `agentdyno audit runs/20260102T030405Z-bare-1a2b3c`\n"
    "- `agentdyno audit reports/20260102T030405Z-1a2b3c`: a campaign, all of its runs and its report\n\n"
    "Exit codes: 0 nothing is wrong, 1 something is, with a sentence for each.",
)
def audit_folder(
    path: Annotated[Path, typer.Argument(metavar="RUN|CAMPAIGN", help="The folder of a run or of a campaign.")],
) -> int:
    """Compute every published figure again from the raw files, and check hashes and what must always hold."""
    from agentdyno.audit.command import audit

    return audit(path)


@app.command(
    "check",
    epilog="Examples:\n\n"
    "- `agentdyno check campaigns/before campaigns/after --max p99=+20% --max rss_peak=+20%`\n"
    "- `agentdyno check runs/base runs/head --max cpu_per_request=+5% --min goodput=-10% --markdown summary.md`\n\n"
    "`--max p99=+20%`: at most a fifth more than the baseline. `--min goodput=-10%`: at least nine tenths of it. "
    "Without limits: `p95=+20%` and `rss_peak=+20%`.\n\n"
    "A limit is exceeded when the whole 95 % interval of the ratio lies beyond it. Exit codes: 0 no limit is exceeded, "
    "1 one is, 2 usage, or measured unlike, 3 cannot tell (too few rounds, other machines).",
)
def check_gate(
    baseline: Annotated[Path, typer.Argument(help="A campaign, a folder of runs, or a run.")],
    candidate: Annotated[Path, typer.Argument(help="The same of what is to be checked.")],
    at_most: Annotated[list[str] | None, typer.Option("--max", help="METRIC=+PERCENT%: may not grow by more.")] = None,
    at_least: Annotated[list[str] | None, typer.Option("--min", help="METRIC=-PERCENT%: may not fall by more.")] = None,
    framework: Annotated[list[str] | None, typer.Option(help="Only this one; all that both have otherwise.")] = None,
    load: Annotated[str | None, typer.Option(help="steady or standard; where a metric shows otherwise.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the result there, too.")] = None,
) -> int:
    """Has a framework become worse than a limit allows? A gate for CI, on intervals and not on single figures."""
    from agentdyno.report.gate import check

    return check(baseline, candidate, at_most or (), at_least or (), framework or (), load, markdown)


@app.command(
    "history",
    epilog="Examples:\n\n"
    "- `agentdyno history reports`: CPU per request of every framework that campaigns there measured\n"
    "- `agentdyno history runs --metric rss_peak --framework lightagent --out history.html`\n\n"
    "Only what was asked for in the same way, on a machine of the same kind, stands in one series.",
)
def history_of_metric(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where campaigns and runs are, at any depth.")],
    metric: Annotated[str, typer.Option(help="As `check` names it.")] = "cpu_per_request",
    framework: Annotated[list[str] | None, typer.Option(help="Only this one.")] = None,
    load: Annotated[str | None, typer.Option(help="Of campaigns only this load: steady or standard.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also a page of its own: history.html.")] = None,
) -> int:
    """Draw a metric over a framework's versions, and mark the steps in it."""
    from agentdyno.report.history import show_history

    return show_history(folder, metric, framework or (), load, out)
