"""Load on a golden server, by our generator or another locustfile, and both sides' records of it."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentdyno.analysis import figures
from agentdyno.analysis.run_data import Requests, Window
from agentdyno.contract.proof import KEY_BYTES, KEY_VARIABLE
from agentdyno.contract.run import LoadPlan, WorkerEnd
from agentdyno.contract.summary import Latencies, Load
from agentdyno.record.folder import RunFolder
from agentdyno.rig.load import LOCUSTFILE, start_load
from agentdyno.rig.processes import Child, Children, listening_socket
from agentdyno.rig.progress import LiveLoad
from agentdyno.selfcheck.check import CheckFailed, Setting
from agentdyno.selfcheck.golden_server import Log

_READY_S = 30.0
_START_S = 30.0
_GRACE_S = 10.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Driven:
    """One load on a golden server: what the load side published, and what the server really did."""

    requests: Requests
    load: Load
    latencies: Latencies
    end: WorkerEnd
    truth: Log

    @property
    def generator_percent(self) -> float | None:
        """CPU of the load generator over the measurement window, per cent of one core."""
        window_ns = self.end.measure_end_ns - self.end.measure_start_ns
        return None if self.end.cpu_s is None else self.end.cpu_s * 1e11 / window_ns


def plan(rate_rps: float, duration_s: float, *, warmup_s: float = 2.0, seed: int = 1) -> LoadPlan:
    """A load plan for a golden server: untraced, with room for every arrival."""
    return LoadPlan(
        rate=rate_rps,
        warmup_s=warmup_s,
        duration_s=duration_s,
        cooldown_s=0.0,
        timeout_s=30.0,
        max_in_flight=5000,
        seed=seed,
        scenario="chain",
        trace_every=0,
    )


def drive(
    setting: Setting, name: str, load_plan: LoadPlan, server: Sequence[str] = (), locustfile: Path = LOCUSTFILE
) -> Driven:
    """Start a golden server with the options `server`, put the plan's load on it, and read both records.

    Raises ChildFailed or CheckFailed.
    """
    folder = RunFolder.create(setting.folder, name)
    key = secrets.token_bytes(KEY_BYTES)
    servers, generators = Children(), Children()
    log = folder.path / "golden.json"
    try:
        url = _start_server(setting, folder, servers, key, ["--log", str(log), *server])
        rest = setting.cores.rest
        load = start_load(load_plan, url, folder.raw, key, rest, folder.log, generators, locustfile)
        _follow(load[0], folder, load_plan)
    finally:
        generators.stop(_GRACE_S)
        servers.stop(_GRACE_S)
    if not log.exists():
        raise CheckFailed(f"The golden server left no log: see {folder.log('golden')}.")
    table = folder.requests()
    folder.write_requests(table)
    ends = folder.worker_ends()
    if len(ends) != 1:
        raise CheckFailed(f"The load generator did not write its end: see {folder.log('generator')}.")
    folder.drop_raw()
    requests = Requests(table)
    window = Window(ends[0].measure_start_ns, ends[0].measure_end_ns)
    return Driven(
        requests,
        figures.load(requests, load_plan.rate, window),
        figures.latencies(requests),
        ends[0],
        msgspec.json.decode(log.read_bytes(), type=Log),
    )


def _start_server(setting: Setting, folder: RunFolder, servers: Children, key: bytes, options: Sequence[str]) -> str:
    with listening_socket() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "agentdyno.selfcheck.golden_server", "--fd", str(listener.fileno()), *options]
        child = servers.start(
            "golden",
            command,
            log=folder.log("golden"),
            cores=setting.cores.host,
            environment={KEY_VARIABLE: key.hex()},
            inherit=(listener,),
        )
    child.wait_ready(f"{url}/", _READY_S)
    return url


def _follow(load: Child, folder: RunFolder, load_plan: LoadPlan) -> None:
    total_s = load_plan.warmup_s + load_plan.duration_s
    deadline = time.monotonic() + _START_S + total_s + load_plan.timeout_s
    live = LiveLoad(folder.raw, total_s)
    try:
        while load.exit_code() is None:
            live.show()
            if time.monotonic() > deadline:
                raise CheckFailed(f"The load generator did not end.{load.log_tail()}")
            time.sleep(_POLL_S)
    finally:
        live.end()
    if load.exit_code() != 0:
        raise CheckFailed(f"The load generator {load.describe_exit()}.{load.log_tail()}")
