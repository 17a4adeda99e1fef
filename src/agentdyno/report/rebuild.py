"""`agentdyno report`: recompute what a folder shows from its raw files, and write its report anew."""

from __future__ import annotations

import sys
from pathlib import Path

from agentdyno.analysis.capacity import RESULT_FILE as CAPACITY
from agentdyno.analysis.comparison import compare_campaign
from agentdyno.analysis.growth import RESULT_FILE as SOAK
from agentdyno.analysis.sweep import RESULT_FILE as SWEEP
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.record.campaign_folder import CAMPAIGN_FILE, CampaignFolder
from agentdyno.report.campaign_report import REPORT_FILE, write_report
from agentdyno.report.run_html import write_run_report
from agentdyno.report.trace import find_run

# Of folders of many loads in a row, which have a manifest as a run has.
_SERIES = {CAPACITY: "a capacity search", SWEEP: "a sweep", SOAK: "a soak"}


class ReportError(UserError):
    """A report that cannot be written; the text says which and why."""


def rebuild(text: str, *, runs: Path) -> ExitCode:
    """text: a campaign's folder, a run's, or the beginning of one run's name under `runs`.

    The report's path is the last line on stdout. Raises UserError for what the user can mend.
    """
    folder = Path(text)
    try:
        if (folder / CAMPAIGN_FILE).is_file():
            campaign = CampaignFolder(folder)
            write_report(campaign, compare_campaign(campaign))
        else:
            folder = find_run(text, runs)
            _refuse_series(folder)
            write_run_report(folder)
    except OSError as error:
        raise ReportError(f"The report of {folder} cannot be written: {error.strerror}.") from error
    sys.stdout.write(f"{folder / REPORT_FILE}\n")
    return ExitCode.VALID


def _refuse_series(folder: Path) -> None:
    """As a run such a folder would be shown as one in which nothing was measured. Raises ReportError."""
    for name, what in _SERIES.items():
        if (folder / name).is_file():
            text = f"{folder} holds {what}, whose result is in its {name}. A page is made of runs and campaigns."
            raise ReportError(text)
