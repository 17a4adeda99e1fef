"""Check `analysis`: a run of a million requests must be analysed while somebody waits, on a small machine."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from agentdyno.rig.environments.building import say
from agentdyno.selfcheck.analysis_work import Took
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.long_run import TRACE_EVERY, make_campaign
from agentdyno.selfcheck.result import at_most, figure

REQUESTS = 1_000_000
SECONDS = 20.0
PEAK_MB = 1500.0
REPEATS = 3
_TIMEOUT_S = 600.0


def measure(setting: Setting) -> Findings:
    """Make the run once, then analyse it several times, each time in a fresh process."""
    requests = setting.count(REQUESTS)
    say(f"analysis: making a run of {requests:,} requests")
    campaign, run = make_campaign(setting.folder, requests)
    took = []
    for number in range(setting.repeats(REPEATS)):
        say(f"analysis: repeat {number + 1}")
        took.append(_once(str(campaign.path)))
    run.drop_raw()
    if not all(each.counted for each in took):
        raise CheckFailed(f"The run that was made is not valid, see {campaign.path}/comparison.json.")
    return Findings(
        (
            figure("from lines of JSON to the verdict", "s", [t.to_verdict_s for t in took], at_most(SECONDS)),
            figure("from raw files to the reports", "s", [t.to_reports_s for t in took], at_most(SECONDS)),
            figure("both together", "s", [t.to_verdict_s + t.to_reports_s for t in took], at_most(SECONDS)),
            figure("CPU of both", "s", [t.cpu_s for t in took]),
            figure("peak memory", "MB", [t.peak_mb for t in took], at_most(PEAK_MB)),
        ),
        (f"{requests:,} requests, one in {TRACE_EVERY} traced, as in a campaign under the standard load.",),
    )


def _once(folder: str) -> Took:
    command = [sys.executable, "-m", "agentdyno.selfcheck.analysis_work", folder]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise CheckFailed(f"The analysis did not end within {_TIMEOUT_S:g} s.") from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise CheckFailed(f"The analysis ended with code {error.returncode}: {last[0]}") from error
    return msgspec.json.decode(done.stdout, type=Took)


CHECK = Check("analysis", "how long a million requests take to analyse", measure)
