"""Check `load`: does the generator send every arrival when it is due, and what does it need for that?

The target answers at once. Beside it, before and after on the same core, a bare timer loop at the same rate: what
it sees is the machine's, and no generator could do better.
"""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec

from agentdyno.rig.environments.building import say
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.driven import drive, plan
from agentdyno.selfcheck.result import at_most, exactly, figure

RATE_RPS = 200
DURATION_S = 60.0
CONTROL_S = 15.0
REPEATS = 3
LATENESS_P99_MS = 3.0
GENERATOR_PERCENT = 35.0


class TimerLoop(msgspec.Struct, frozen=True):
    """How late a loop that does nothing but wake up was, ms."""

    p50: float
    p99: float
    max: float


def measure(setting: Setting) -> Findings:
    """Repeat: control, load, control."""
    runs, controls = [], []
    duration_s = setting.seconds(DURATION_S)
    for repeat in range(setting.repeats(REPEATS)):
        say(f"load: {RATE_RPS} arrivals a second for {duration_s:g} s, repeat {repeat + 1}")
        before = timer_loop(setting, setting.seconds(CONTROL_S))
        runs.append(drive(setting, "load", plan(RATE_RPS, duration_s)))
        after = timer_loop(setting, setting.seconds(CONTROL_S))
        controls.append(max(before, after, key=lambda loop: loop.p99))
    late = [run.load.lateness_ms for run in runs]
    due = round(RATE_RPS * duration_s)
    return Findings(
        (
            figure("arrivals answered and verified", "", [run.load.ok for run in runs], exactly(due)),
            figure("lateness p99", "ms", [it.p99 for it in late], at_most(LATENESS_P99_MS)),
            figure("lateness p50", "ms", [it.p50 for it in late]),
            figure("lateness max", "ms", [it.max for it in late]),
            figure("generator CPU", "% of a core", [r.generator_percent for r in runs], at_most(GENERATOR_PERCENT)),
            figure("bare timer loop on that core: lateness p99", "ms", [loop.p99 for loop in controls]),
            figure("bare timer loop on that core: lateness max", "ms", [loop.max for loop in controls]),
        ),
        ("The timer loop runs before and after each load and the worse of the two counts.",),
    )


def timer_loop(setting: Setting, duration_s: float) -> TimerLoop:
    """Run the control in a process of its own on the generator's core."""
    cores = ",".join(map(str, sorted(setting.cores.rest or ())))
    command = [sys.executable, "-m", "agentdyno.selfcheck.timer_loop", str(RATE_RPS), str(duration_s), cores]
    done = subprocess.run(command, capture_output=True, text=True, timeout=duration_s + 60, check=False)
    if done.returncode:
        raise CheckFailed(f"The timer loop ended with exit code {done.returncode}: {done.stderr.strip()}")
    return msgspec.convert(json.loads(done.stdout), TimerLoop)


CHECK = Check("load", "every arrival, when it is due", measure)
