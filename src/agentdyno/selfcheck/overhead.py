"""Check `overhead`: how long a second `make bench` takes beyond the load that was asked for."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec

from agentdyno.contract.summary import Summary
from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.processes import Children
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.result import at_most, figure

ADDED_S = 8.0
DURATION_S = 4.0
WARMUP_S = 1.0
REPEATS = 3
_TIMEOUT_S = 600.0
_GRACE_S = 20.0
_POLL_S = 0.02


def measure(setting: Setting) -> Findings:
    """Once, so that everything is built and compiled; then the repeats that count."""
    if shutil.which("make") is None:
        raise CheckFailed("There is no make here, and the figure is of `make bench`.")
    duration_s = setting.seconds(DURATION_S)
    added = [_added_s(setting, duration_s, number) for number in range(setting.repeats(REPEATS) + 1)]
    return Findings(
        (figure("added to warm-up and duration", "s", added[1:], at_most(ADDED_S)),),
        ("From the start of make to its end, with the default cool-down of 1 s.",),
    )


def _added_s(setting: Setting, duration_s: float, number: int) -> float:
    say(f"overhead: make bench FRAMEWORK=bare, {'first' if number == 0 else f'repeat {number}'}")
    out = setting.folder.absolute() / f"bench-{number}"
    command = ["make", "-s", "-C", str(ROOT), "bench", "FRAMEWORK=bare", "RATE=50", f"OUT={out}"]
    command += [f"DURATION={duration_s:g}s", f"WARMUP={WARMUP_S:g}s"]
    children = Children()
    begin = time.monotonic()
    try:
        make = children.start("make", command, log=setting.folder / f"make-{number}.log")
        while make.exit_code() is None:
            if time.monotonic() > begin + _TIMEOUT_S:
                raise CheckFailed(f"make bench did not end within {_TIMEOUT_S:g} s.{make.log_tail()}")
            time.sleep(_POLL_S)
        took_s = time.monotonic() - begin
    finally:
        children.stop(_GRACE_S)
    if not any(_answered_all(file) for file in out.glob("*/summary.json")):
        raise CheckFailed(f"make bench {make.describe_exit()} and did not measure.{make.log_tail()}")
    return took_s - duration_s - WARMUP_S


def _answered_all(file: Path) -> bool:
    """Whether the run got to its end; late arrivals, for which make has an exit code, change nothing in the time."""
    summary = msgspec.json.decode(file.read_bytes(), type=Summary)
    return summary.load is not None and summary.load.ok == summary.load.arrivals


CHECK = Check("overhead", "what a second `make bench` adds to the load", measure)
