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
from agentdyno.contract.capacity import CapacityResult, SearchPlan, StepFacts, StepKind, StepResult
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import ExitCode, LoadPlan
from agentdyno.load.schedule import Schedule
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Manifest, Status
from agentdyno.report.capacity_table import print_capacity, step_line
from agentdyno.rig.collect import keep_records
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.load import start_load
from agentdyno.rig.options import Words, read
from agentdyno.rig.progress import LiveLoad
from agentdyno.rig.series.search_words import SearchWords, read_plan
from agentdyno.rig.series.series import Series
from agentdyno.rig.task import Task, begun
from agentdyno.rig.vllm_cpu import refuse_vllm_cpu

_LOAD_START_S = 30.0
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
    with begun(options, adapter, variant) as task:
        result = CapacitySearch(task, plan).run()
    print_capacity(result, _console())
    sys.stdout.write(f"{task.folder.path}\n")
    return ExitCode.INTERRUPTED if task.interruption.asked else exit_code(result)


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

    def __init__(self, task: Task, plan: SearchPlan) -> None:
        self._series = Series(task)
        self._plan = plan
        self._search = Search(plan)
        self._began_s = time.monotonic()

    def run(self) -> CapacityResult:
        """Whatever happens, the children are ended and what was measured is judged and kept."""
        series, folder = self._series, self._series.task.folder
        folder.write_json(PLAN_FILE, self._plan)
        say(f"{series.task.variant.name}: {self._bound()}")
        series.run("search", self._take_steps)
        result = read_result(folder.path)
        folder.write_json(RESULT_FILE, result)
        series.close()
        return result

    def _take_steps(self) -> None:
        before: Trial | None = None
        fresh = True
        number = 0
        while (trial := self._search.next()) is not None:
            first_confirmation = trial.kind is StepKind.CONFIRM and (before is None or before.kind is not trial.kind)
            if not fresh and (first_confirmation or not self._back):
                self._series.driven.start()
            number += 1
            step = self._step(number, trial)
            self._search.tell(trial, step.answer)
            say(f"{self._series.task.variant.name}: {time.monotonic() - self._began_s:4.0f} s  {step_line(step)}")
            before, fresh = trial, False

    _back = True

    def _bound(self) -> str:
        plan = self._plan
        one_s = _LOAD_START_S / 10 + plan.settle_s + plan.most_step_s + self._series.task.options.plan.timeout_s
        worst_min = plan.max_steps * (one_s + plan.recovery_bound_s) / 60
        words = ",".join(str(clause) for clause in plan.objective)
        return f"the highest rate with {words}; at most {plan.max_steps} steps and {worst_min:.0f} minutes"

    def _step(self, number: int, trial: Trial) -> StepResult:
        asked = self._series.task.options.plan
        folder = RunFolder(
            self._series.task.folder.path / STEPS_FOLDER / f"{number:02}-{trial.kind.value}-{trial.rate:g}"
        )
        for part in (folder.raw, folder.path / "logs"):
            part.mkdir(parents=True)
        plan = msgspec.structs.replace(
            asked,
            rate=trial.rate,
            warmup_s=self._plan.settle_s,
            duration_s=step_seconds(self._plan, trial.rate),
            cooldown_s=0.0,
            seed=asked.seed + number,
        )
        driven, manifest = self._series.driven, self._step_manifest(folder, plan)
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
            self._series.manifest,
            run_id=folder.run_id,
            status=Status.RUNNING,
            plan=plan,
            scheduled={stage.value: schedule.count(stage) for stage in Stage},
            calibration={},
            findings=[],
        )

    def _load(self, folder: RunFolder, plan: LoadPlan, title: str) -> None:
        series, driven = self._series, self._series.driven
        total_s = plan.warmup_s + plan.duration_s
        live = LiveLoad(folder.raw, total_s, title)
        with series.sampling(folder.raw / "resources.jsonl") as sampler:
            load = start_load(
                plan,
                driven.host.url,
                folder.raw,
                driven.key,
                series.cores.rest,
                folder.log,
                series.generators,
                metrics_port=series.watched.metrics_port,
            )
            for child in load:
                sampler.watch("generator", child.pid)
            try:
                series.wait(f"The step {title}", load[0], sampler, _LOAD_START_S + total_s + plan.timeout_s, live.show)
            finally:
                live.end()
