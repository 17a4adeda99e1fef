"""`agentdyno capacity`: the highest constant rate that meets an objective, found step by step on a running host."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import msgspec
from rich.console import Console

from agentdyno.analysis.capacity import (
    FACTS_FILE,
    PLAN_FILE,
    RESULT_FILE,
    STEPS_FOLDER,
    judge,
    read_result,
    step_seconds,
)
from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.search import Search, Trial
from agentdyno.analysis.summary import summarise
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.capacity import CapacityResult, SearchPlan, StepFacts, StepKind, StepResult
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import ExitCode, LoadPlan
from agentdyno.load.schedule import Schedule
from agentdyno.record.checksums import write_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Manifest, Status
from agentdyno.record.sampler import Sampler
from agentdyno.report.capacity_table import print_capacity, step_line
from agentdyno.rig import cores
from agentdyno.rig.building import ensure, say
from agentdyno.rig.collect import keep_records
from agentdyno.rig.driven_host import DrivenHost, follow_to_its_end
from agentdyno.rig.environments import adapter_environment
from agentdyno.rig.frameworks import resolve
from agentdyno.rig.interruption import Interruption
from agentdyno.rig.load import start_load
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.preparation import first_manifest
from agentdyno.rig.processes import ChildFailed, Children
from agentdyno.rig.progress import LiveLoad
from agentdyno.rig.search_words import SearchWords, read_plan
from agentdyno.rig.vllm_cpu import refuse_vllm_cpu
from agentdyno.rig.watched_series import WatchedSeries

_POLL_S = 0.1
_LOAD_START_S = 30.0
_GRACE_S = 3.0
_WIDTH = 120


def capacity(words: Words, search: SearchWords) -> ExitCode:
    """Search, print the curve and what was found; the folder's path is the last line on stdout.

    VALID when there is a capacity, or a confirmed lower bound; GATE_FAILED when no rate meets the objective;
    INVALID_RUN when that cannot be told. Raises OptionError, AdapterError, SetupError or FolderError.
    """
    options = read(replace(words, traces="off"))
    refuse_vllm_cpu(options, "capacity")
    plan = read_plan(options.plan.rate, search)
    adapter, variant = resolve(options.framework)
    ensure(adapter_environment(adapter.path))
    with Interruption() as interruption:
        folder = RunFolder.create(options.out, variant.name)
        result = CapacitySearch(options, plan, adapter, variant, folder, interruption).run()
    print_capacity(result, _console())
    sys.stdout.write(f"{folder.path}\n")
    return ExitCode.INTERRUPTED if interruption.asked else exit_code(result)


def _console() -> Console:
    """As wide as the terminal; sentences are not broken, and the table not squeezed, where nobody looks."""
    if sys.stdout.isatty():
        return Console(file=sys.stdout)
    return Console(file=sys.stdout, soft_wrap=True, width=_WIDTH)


def exit_code(result: CapacityResult) -> ExitCode:
    """See `capacity`."""
    if not result.complete:
        return ExitCode.INVALID_RUN
    if result.met_nowhere:
        return ExitCode.GATE_FAILED
    found = result.capacity_rps if result.capacity_rps is not None else result.at_least_rps
    return ExitCode.INVALID_RUN if found is None else ExitCode.VALID


class CapacitySearch:
    """One search, from an empty folder to its result. Use once.

    All steps of the search go to one host process, because recovery from overload is part of the question and a
    service does not start anew for each change of its load. Two things guard against what one step leaves for the
    next: a step begins only when the host answers as when idle (one that does not within the bound is replaced, which
    its step says), and the rate found is confirmed on a fresh process.
    """

    def __init__(
        self,
        options: BenchOptions,
        plan: SearchPlan,
        adapter: AdapterFolder,
        variant: Variant,
        folder: RunFolder,
        interruption: Interruption,
    ) -> None:
        self._options = options
        self._plan = plan
        self._variant = variant
        self._folder = folder
        self._interruption = interruption
        self._cores = cores.plan()
        self._driven = DrivenHost(options, adapter, variant, folder, self._cores, interruption)
        self._generators = Children(interruption.held)
        self._manifest = first_manifest(options, variant, adapter_environment(adapter.path), self._cores, folder.run_id)
        self._watched = WatchedSeries(self._manifest, folder.raw, options.observe, self._driven)
        self._search = Search(plan)
        self._began_s = time.monotonic()

    def run(self) -> CapacityResult:
        """Whatever happens, the children are ended and what was measured is judged and kept."""
        folder, manifest = self._folder, self._manifest
        folder.write_json(PLAN_FILE, self._plan)
        folder.write_json("manifest.json", manifest)
        follow_to_its_end(self._follow, manifest, self._interruption, "search")
        self._generators.stop(_GRACE_S)
        self._driven.stop()
        manifest.calibration["after"] = cores.calibrate(self._cores.host)
        manifest.proof_key = self._driven.key.hex()
        folder.write_json("manifest.json", manifest)
        result = read_result(folder.path)
        folder.write_json(RESULT_FILE, result)
        folder.drop_raw()
        write_checksums(folder.path)
        return result

    def _follow(self) -> None:
        manifest = self._manifest
        cores.stay_on(self._cores.rest)
        manifest.calibration["before"] = cores.calibrate(self._cores.host)
        say(f"{self._variant.name}: {self._bound()}")
        manifest.cold_start_ms = self._driven.start()
        with self._watched:
            self._take_steps()

    def _take_steps(self) -> None:
        before: Trial | None = None
        fresh = True
        number = 0
        while (trial := self._search.next()) is not None:
            first_confirmation = trial.kind is StepKind.CONFIRM and (before is None or before.kind is not trial.kind)
            if not fresh and (first_confirmation or not self._back):
                self._driven.start()
            number += 1
            step = self._step(number, trial)
            self._search.tell(trial, step.answer)
            say(f"{self._variant.name}: {time.monotonic() - self._began_s:4.0f} s  {step_line(step)}")
            before, fresh = trial, False

    _back = True

    def _bound(self) -> str:
        plan = self._plan
        one_s = _LOAD_START_S / 10 + plan.settle_s + plan.most_step_s + self._options.plan.timeout_s
        worst_min = plan.max_steps * (one_s + plan.recovery_bound_s) / 60
        words = ",".join(str(clause) for clause in plan.objective)
        return f"the highest rate with {words}; at most {plan.max_steps} steps and {worst_min:.0f} minutes"

    def _step(self, number: int, trial: Trial) -> StepResult:
        folder = RunFolder(self._folder.path / STEPS_FOLDER / f"{number:02}-{trial.kind.value}-{trial.rate:g}")
        for part in (folder.raw, folder.path / "logs"):
            part.mkdir(parents=True)
        plan = msgspec.structs.replace(
            self._options.plan,
            rate=trial.rate,
            warmup_s=self._plan.settle_s,
            duration_s=step_seconds(self._plan, trial.rate),
            cooldown_s=0.0,
            seed=self._options.plan.seed + number,
        )
        driven, manifest = self._driven, self._step_manifest(folder, plan)
        before = driven.counters()
        self._load(folder, plan, f"{number}/{self._plan.max_steps} {trial.kind.value} {trial.rate:g}/s")
        looks = driven.drain(self._plan.recovery_bound_s)
        probes, self._back = driven.recover(self._plan.recovery_bound_s)
        facts = StepFacts(
            number=number,
            kind=trial.kind,
            rate=trial.rate,
            host_process=driven.number,
            idle=driven.idle,
            before=before,
            after=looks[-1],
            looks=tuple(looks),
            probes=tuple(probes),
        )
        keep_records(folder, manifest)
        manifest.status = Status.FINISHED
        folder.write_json("manifest.json", manifest)
        folder.write_json(FACTS_FILE, facts)
        folder.write_json("summary.json", summarise(read_run(folder.path)))
        folder.drop_raw()
        return judge(folder.path, self._plan)

    def _step_manifest(self, folder: RunFolder, plan: LoadPlan) -> Manifest:
        schedule = Schedule(plan)
        return msgspec.structs.replace(
            self._manifest,
            run_id=folder.run_id,
            status=Status.RUNNING,
            plan=plan,
            scheduled={stage.value: schedule.count(stage) for stage in Stage},
            calibration={},
            findings=[],
        )

    def _load(self, folder: RunFolder, plan: LoadPlan, title: str) -> None:
        driven = self._driven
        sampler = Sampler(folder.raw / "resources.jsonl")
        sampler.watch("host", driven.host.child.pid)
        if driven.backend.child is not None:
            sampler.watch("backend", driven.backend.child.pid)
        sampler.start()
        load = start_load(
            plan,
            driven.host.url,
            folder.raw,
            driven.key,
            self._cores.rest,
            folder.log,
            self._generators,
            metrics_port=self._watched.metrics_port,
        )
        for child in load:
            sampler.watch("generator", child.pid)
        total_s = plan.warmup_s + plan.duration_s
        deadline = time.monotonic() + _LOAD_START_S + total_s + plan.timeout_s
        live = LiveLoad(folder.raw, total_s, title)
        try:
            with self._watched.load(sampler):
                while load[0].exit_code() is None:
                    self._interruption.check()
                    driven.refuse_dead()
                    live.show()
                    if time.monotonic() > deadline:
                        raise ChildFailed("generator", f"The load generator did not end.{load[0].log_tail()}")
                    time.sleep(_POLL_S)
        finally:
            live.end()
            sampler.stop()
        if load[0].exit_code() != 0:
            raise ChildFailed("generator", f"The load generator {load[0].describe_exit()}.{load[0].log_tail()}")
        if sampler.failure is not None:
            raise sampler.failure
