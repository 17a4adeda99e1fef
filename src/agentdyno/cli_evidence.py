"""The commands on what was measured before: audit."""

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
