"""The work that check `analysis` times, in a process of its own: `python -m agentdyno.selfcheck.analysis_work FOLDER`.

FOLDER: a campaign of `long_run`. Prints one line of JSON: seconds of each step, and this process's peak memory.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import msgspec

from agentdyno.analysis.comparison import compare_campaign
from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.folder import RunFolder
from agentdyno.report.campaign_report import write_report


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """to_verdict_s: from lines of JSON to the summary. to_reports_s: from raw files to a campaign's
    `comparison.json` and reports.

    cpu_s: of both together, which is what other programs on the machine disturb least. counted: the run was valid, so
    that all of it was computed.
    """

    to_verdict_s: float
    to_reports_s: float
    cpu_s: float
    peak_mb: float
    counted: bool


def work(campaign: CampaignFolder) -> Took:
    """Do it once. Raises UserError when the folder is not what it should be."""
    begin = time.monotonic()
    run = RunFolder(next(campaign.runs.iterdir()))
    run.write_requests(run.requests())
    run.write_json("summary.json", summarise(read_run(run.path)))
    middle = time.monotonic()
    comparison = compare_campaign(campaign)
    write_report(campaign, comparison)
    # Linux tells kilobytes.
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return Took(
        to_verdict_s=middle - begin,
        to_reports_s=time.monotonic() - middle,
        cpu_s=time.process_time(),
        peak_mb=peak_mb,
        counted=all(row.counted for row in comparison.runs),
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(work(CampaignFolder(Path(sys.argv[1])))) + b"\n")
