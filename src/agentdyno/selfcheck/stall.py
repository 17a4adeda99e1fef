"""Check `stall`: the target stands still for 1.4 s once. Who noticed?

Our open loop and stock Locust's `constant_throughput` send the same requests at the same rate to the same server.
When it stands still, the stock users stand still with it: what they would have sent is never sent and never
counted. Ours records for each arrival that was due in the stall at least the time that was left of it.
"""

from __future__ import annotations

import numpy as np

from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.load import LOCUSTFILE
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.driven import Driven, drive, plan
from agentdyno.selfcheck.result import at_least, figure

STOCK = ROOT / "locustfiles" / "stock_constant_throughput.py"
RATE_RPS = 200
DURATION_S = 24.0
STALL_S = 1.4
REPEATS = 3
SLOW_MS = 100.0
# A full second of service lies between what is well and what is not.
RECORDED_SHARE = 0.99
_SLACK_MS = 0.5


def measure(setting: Setting) -> Findings:
    """Repeat: ours, theirs."""
    ours: list[Driven] = []
    stock: list[Driven] = []
    duration_s = max(4.0, setting.seconds(DURATION_S))
    server = ["--stall-after", str(duration_s / 4), "--stall-for", str(STALL_S)]
    for repeat in range(setting.repeats(REPEATS)):
        for runs, name, locustfile in ((ours, "open loop", LOCUSTFILE), (stock, "stock", STOCK)):
            say(f"stall: {name}, repeat {repeat + 1}")
            load_plan = plan(RATE_RPS, duration_s, warmup_s=0.0)
            runs.append(drive(setting, f"stall-{name.replace(' ', '-')}", load_plan, server, locustfile))
    figures = [
        figure("ours: waits in the stall on record", "share", map(recorded_share, ours), at_least(RECORDED_SHARE)),
        figure("ours: arrivals due in the stall", "", [len(due_in_stall(run)[0]) for run in ours]),
    ]
    for name, runs in (("ours", ours), ("stock Locust", stock)):
        latencies = [run.latencies.intended for run in runs]
        figures += [
            figure(f"{name}: arrivals above {SLOW_MS:g} ms", "", map(slow_count, runs)),
            figure(f"{name}: p99", "ms", [it.p99 for it in latencies]),
            figure(f"{name}: max", "ms", [it.max for it in latencies]),
            figure(f"{name}: requests sent", "", [run.load.sent for run in runs]),
        ]
    return Findings(figures, (f"Of {duration_s:g} s the server stood still for {STALL_S:g} s.",))


def due_in_stall(run: Driven) -> tuple[np.ndarray, np.ndarray]:
    """Of the arrivals due while the server stood still: the recorded latencies, and the waits then left, both ms."""
    if run.truth.stall_ns is None:
        raise CheckFailed("The server did not stall.")
    begin, end = (at - run.end.t0_monotonic_ns for at in run.truth.stall_ns)
    intended, done = run.requests.intended_ns, run.requests.done_ns
    within = (intended > begin) & (intended < end)
    return (done - intended)[within] / 1e6, (end - intended)[within] / 1e6


def recorded_share(run: Driven) -> float:
    """Of those arrivals, how many are on record with no less than the wait that was left."""
    latencies, left = due_in_stall(run)
    return float((latencies >= left - _SLACK_MS).mean()) if len(left) else 0.0


def slow_count(run: Driven) -> int:
    """Requests that took more than a person would overlook."""
    latencies = (run.requests.done_ns - run.requests.intended_ns) / 1e6
    return int((latencies > SLOW_MS).sum())


CHECK = Check("stall", "a server that stands still for 1.4 s: who noticed", measure)
