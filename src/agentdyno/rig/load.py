"""The load side's processes: one Locust, or a coordinator with several workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from agentdyno.contract.proof import KEY_VARIABLE
from agentdyno.contract.run import LoadPlan
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.processes import Child, Children, free_port

LOCUSTFILE = ROOT / "locustfiles" / "constant.py"
_LOOPBACK = "127.0.0.1"


def start_load(
    plan: LoadPlan,
    host_url: str,
    records: Path,
    key: bytes,
    cores: frozenset[int] | None,
    log: Callable[[str], Path],
    children: Children,
    locustfile: Path = LOCUSTFILE,
    metrics_port: int = 0,
) -> list[Child]:
    """Start it; the first of those returned ends when the whole schedule is done.

    records: the folder for the workers' JSON lines. log: the log file for a role. locustfile: another one only in the
    self-check, which compares it with ours. metrics_port: where the load's metrics are served; 0: nowhere.
    """
    environment = {KEY_VARIABLE: key.hex()}

    def child(role: str, *extra: str) -> Child:
        command = [sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", *_arguments(plan, records)]
        command += ["--host", host_url, *extra]
        if metrics_port and "--worker" not in extra:
            command += ["--metrics-port", str(metrics_port)]
        return children.start(role, command, log=log(role), cores=cores, environment=environment)

    if plan.workers == 1:
        return [child("generator")]
    port = str(free_port())
    # All of them are on this machine; by itself Locust's master listens on every interface.
    bound = ("--master-bind-host", _LOOPBACK, "--master-bind-port", port)
    master = child("coordinator", "--master", *bound, "--expect-workers", str(plan.workers))
    joined = ("--worker", "--master-host", _LOOPBACK, "--master-port", port)
    return [master, *(child(f"generator-{n}", *joined) for n in range(plan.workers))]


def _arguments(plan: LoadPlan, records: Path) -> list[str]:
    options = {
        "rate": _plain(plan.rate),
        "warmup": _plain(plan.warmup_s),
        "duration": _plain(plan.duration_s),
        "cooldown": _plain(plan.cooldown_s),
        "request-timeout": _plain(plan.timeout_s),
        "max-in-flight": str(plan.max_in_flight),
        "seed": str(plan.seed),
        "scenario": plan.scenario,
        "trace-every": str(plan.trace_every),
        "plan-workers": str(plan.workers),
        "records": str(records),
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _plain(value: float) -> str:
    """Every digit and no exponent, which is how Locust's arguments are read."""
    return format(Decimal(repr(value)), "f")
