"""Check `audit`: a run of a million requests must be audited while somebody waits, on a small machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.record.checksums import write_checksums
from agentdyno.rig.environments.building import say
from agentdyno.selfcheck.audit_work import AuditTook
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.long_run import TRACE_EVERY, make_campaign
from agentdyno.selfcheck.result import at_most, figure

REQUESTS = 1_000_000
SECONDS = 20.0
PEAK_MB = 1500.0
REPEATS = 3
_TIMEOUT_S = 600.0


def measure(setting: Setting) -> Findings:
    """Make the run once, as it is when it has ended, then audit it several times, each time in a fresh process."""
    requests = setting.count(REQUESTS)
    say(f"audit: making a run of {requests:,} requests")
    _, run = make_campaign(setting.folder, requests)
    run.write_requests(run.requests())
    run.drop_raw()
    run.write_json("summary.json", summarise(read_run(run.path)))
    write_checksums(run.path)
    took = []
    for number in range(setting.repeats(REPEATS)):
        say(f"audit: repeat {number + 1}")
        took.append(_once(run.path))
    faults = [fault for each in took for fault in each.faults]
    if faults:
        raise CheckFailed(f"The audit of a good run found a fault: {faults[0]}")
    return Findings(
        (
            figure("hashes, schedule and every figure", "s", [each.audit_s for each in took], at_most(SECONDS)),
            figure("the same", "s CPU", [each.cpu_s for each in took]),
            figure("peak memory", "MB", [each.peak_mb for each in took], at_most(PEAK_MB)),
        ),
        (f"{requests:,} requests, one in {TRACE_EVERY} traced; {took[0].figures} figures compared.",),
    )


def _once(run: Path) -> AuditTook:
    command = [sys.executable, "-m", "agentdyno.selfcheck.audit_work", str(run)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise CheckFailed(f"The audit did not end within {_TIMEOUT_S:g} s.") from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise CheckFailed(f"The audit ended with code {error.returncode}: {last[0]}") from error
    return msgspec.json.decode(done.stdout, type=AuditTook)


CHECK = Check("audit", "how long a million requests take to audit", measure)
