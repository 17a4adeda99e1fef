"""`agentdyno sweep`: more and more users at once in a closed loop, each tier cleaned up after before the next."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from math import ceil
from pathlib import Path
from urllib.error import HTTPError

from rich.console import Console

from agentdyno.analysis.sweep import FACTS_FILE, PLAN_FILE, RESULT_FILE, TIERS_FOLDER, more_than, read_sweep, read_tier
from agentdyno.contract.proof import KEY_VARIABLE, Stage
from agentdyno.contract.run import ExitCode
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.contract.sweep import Levels, SweepPlan, SweepResult, Tier, TierFacts
from agentdyno.record.folder import RunFolder
from agentdyno.record.processes import default_reader
from agentdyno.report.sweep_table import print_sweep, tier_line
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import ROOT, adapter_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.option_values import OptionError, whole
from agentdyno.rig.options import Words, read
from agentdyno.rig.processes import fetch
from agentdyno.rig.series.series import Series
from agentdyno.rig.servers import streams
from agentdyno.rig.task import Task, begun
from agentdyno.rig.vllm_cpu import refuse_vllm_cpu

LOCUSTFILE = ROOT / "locustfiles" / "tiers.py"
CLEAN_BOUND_S = 60.0
_USERS_MAX = 1000
_TIERS_MAX = 20
_REQUESTS_MAX = 100_000
_START_S = 30.0
_LOOK_S = 0.5
# Some clients' pools close what has been idle too long by themselves, after 15 s or so; others only when they are used
# again. So the host is left alone for long, and then asked once: asked often, it would keep its connections in use.
_NUDGE_S = 25.0
_DELETE_S = 5.0
_WIDTH = 130


def sweep(words: Words, concurrency: str, requests: str) -> ExitCode:
    """Measure every tier and print them; the folder's path is the last line on stdout.

    VALID when every request of every tier succeeded and nothing was left behind; GATE_FAILED when not; INVALID_RUN
    when a tier could not be measured. Raises OptionError, AdapterError, SetupError or FolderError.
    """
    options = read(replace(words, traces="off"))
    refuse_vllm_cpu(options, "sweep")
    tiers = read_tiers(concurrency)
    least = whole("REQUESTS", requests, 1, _REQUESTS_MAX)
    adapter, variant = resolve(options.framework)
    ensure(adapter_environment(adapter.path))
    with begun(options, adapter, variant) as task:
        result = _SweepRun(task, tiers, least).run()
    terminal = sys.stdout.isatty()
    print_sweep(result, Console(file=sys.stdout, soft_wrap=not terminal, width=None if terminal else _WIDTH))
    sys.stdout.write(f"{task.folder.path}\n")
    return ExitCode.INTERRUPTED if task.interruption.asked else exit_code(result)


def exit_code(result: SweepResult) -> ExitCode:
    """See `sweep`."""
    if not result.complete:
        return ExitCode.INVALID_RUN
    good = all(tier.ok == tier.arrivals and tier.clean.clean for tier in result.tiers)
    return ExitCode.VALID if good else ExitCode.GATE_FAILED


def read_tiers(text: str) -> tuple[int, ...]:
    """`1,10,20`: numbers of users, in the order given. Raises OptionError."""
    parts = [part.strip() for part in text.split(",")]
    good = [part.isascii() and part.isdigit() and len(part) < 6 and 1 <= int(part) <= _USERS_MAX for part in parts]
    if not all(good) or len(parts) > _TIERS_MAX or len(set(parts)) < len(parts):
        raise OptionError(
            f"CONCURRENCY={text[:80]!r} is no list of up to {_TIERS_MAX} different numbers of users, "
            f"from 1 to {_USERS_MAX}, such as 1,10,20,50,100."
        )
    return tuple(int(part) for part in parts)


class _SweepRun:
    """One sweep, from an empty folder to its result. Use once. All tiers go to one host process: what one leaves
    behind is what the next tier's `before` would show.
    """

    def __init__(self, task: Task, tiers: tuple[int, ...], requests: int) -> None:
        self._series = Series(task)
        self._tiers = tiers
        self._requests = requests
        self._reader = default_reader()

    def run(self) -> SweepResult:
        """Whatever happens, the children are ended and what was measured is kept."""
        series, folder = self._series, self._series.task.folder
        folder.write_json(PLAN_FILE, self._plan(stream=False))
        series.run("sweep", self._take_tiers)
        result = read_sweep(folder.path)
        folder.write_json(RESULT_FILE, result)
        series.close()
        return result

    def _plan(self, *, stream: bool) -> SweepPlan:
        plan = self._series.task.options.plan
        return SweepPlan(
            concurrency=self._tiers,
            requests=self._requests,
            timeout_s=plan.timeout_s,
            scenario=plan.scenario,
            seed=plan.seed,
            stream=stream,
            clean_bound_s=CLEAN_BOUND_S,
        )

    def _take_tiers(self) -> None:
        series, name = self._series, self._series.task.variant.name
        plan = self._plan(stream=streams(series.driven.host.url, series.task.options))
        series.task.folder.write_json(PLAN_FILE, plan)
        how = "as server-sent events" if plan.stream else "whole, for the adapter does not stream"
        say(f"{name}: {len(self._tiers)} tiers, answers {how}")
        for number, users in enumerate(self._tiers, 1):
            tier = self._tier(number, users, plan)
            say(f"{name}: {number}/{len(self._tiers)}  {tier_line(tier)}")

    def _tier(self, number: int, users: int, plan: SweepPlan) -> Tier:
        folder = RunFolder(self._series.task.folder.path / TIERS_FOLDER / f"{number:02}-{users}")
        (folder.path / "logs").mkdir(parents=True)
        each = ceil(plan.requests / users)
        before = self._levels()
        began_ns = time.monotonic_ns()
        seed = plan.seed + number
        self._load(folder, users, each, seed, plan)
        ended_ns = time.monotonic_ns()
        deleted, not_deleted = self._delete(seed, users * each, plan)
        facts = TierFacts(
            users=users,
            requests_each=each,
            began_ns=began_ns,
            ended_ns=ended_ns,
            before=before,
            deleted=deleted,
            not_deleted=not_deleted,
            looks=tuple(self._look_until_clean(before)),
        )
        folder.write_json(FACTS_FILE, facts)
        return read_tier(folder.path, stream=plan.stream)

    def _load(self, folder: RunFolder, users: int, each: int, seed: int, plan: SweepPlan) -> None:
        series, driven = self._series, self._series.driven
        command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--host", driven.host.url]
        command += ["--tier-users", str(users), "--requests-each", str(each), "--seed", str(seed)]
        command += ["--request-timeout", str(plan.timeout_s), "--scenario", plan.scenario]
        command += ["--records", str(folder.path), *(["--stream"] if plan.stream else [])]
        command += ["--metrics-port", str(series.watched.metrics_port)]
        with series.sampling(folder.path / "resources.jsonl") as sampler:
            child = series.generators.start(
                "generator",
                command,
                log=folder.log("generator"),
                cores=series.cores.rest,
                environment={KEY_VARIABLE: driven.key.hex()},
            )
            sampler.watch("generator", child.pid)
            series.wait(f"The tier of {users} users", child, sampler, _START_S + each * plan.timeout_s)

    # cleaning up

    def _delete(self, seed: int, sessions: int, plan: SweepPlan) -> tuple[int, str | None]:
        """End every session of a tier; how many the host took, and why it took no more."""
        scenario, why = SCENARIOS[plan.scenario], None
        deleted = 0
        for index in range(sessions):
            self._series.task.interruption.check()
            session = scenario.request(seed, Stage.MEASURE, index, 1).session_id
            try:
                fetch(f"{self._series.driven.host.url}/agent/sessions/{session}", _DELETE_S, method="DELETE")
                deleted += 1
            except HTTPError as error:
                why = why or f"the host answered {error.code}"
            except OSError as error:
                why = why or str(error)
        return deleted, why

    def _look_until_clean(self, before: Levels) -> list[Levels]:
        end = time.monotonic() + CLEAN_BOUND_S
        nudge: float | None = time.monotonic() + _NUDGE_S
        looks = [self._levels()]
        while more_than(before, looks[-1]) and time.monotonic() < end:
            self._series.task.interruption.check()
            self._series.driven.refuse_dead()
            if nudge is not None and time.monotonic() > nudge:
                self._series.driven.probe()
                nudge = None
            time.sleep(_LOOK_S)
            looks.append(self._levels())
        return looks

    def _levels(self) -> Levels:
        pid = self._series.driven.host.child.pid
        pids = (pid, *self._reader.children(pid))
        readings = [reading for each in pids if (reading := self._reader.read(each, detailed=False)) is not None]
        sockets = [_open_sockets(each) for each in pids]
        counters = self._series.driven.counters()
        return Levels(
            monotonic_ns=time.monotonic_ns(),
            host_in_flight=counters.host_in_flight,
            llm_in_flight=counters.llm_in_flight,
            tasks=self._series.driven.tasks(),
            open_sockets=_sum(sockets),
            open_files=_sum([reading.open_files for reading in readings]),
            rss_bytes=_sum([reading.rss_bytes for reading in readings]),
        )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _open_sockets(pid: int) -> int | None:
    """None where the system does not tell."""
    descriptors = Path(f"/proc/{pid}/fd")
    found = 0
    try:
        names = list(descriptors.iterdir())
    except OSError:
        return None
    for name in names:
        try:
            found += os.readlink(name).startswith("socket:")  # noqa: PTH115 - no path of the file system
        except OSError:
            continue  # closed meanwhile
    return found
