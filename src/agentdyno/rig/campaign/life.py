"""The life of a campaign: probe, draw, measure round by round, repeat what the machine spoilt, profile heaps.

After each run `campaign.json` is written, so that a crash or Ctrl-C costs the run that was going on and no other.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from agentdyno.contract.campaign import PROBE, Campaign, CampaignStatus, LoadName, PlannedRun, Probe
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode, LoadPlan, Reason
from agentdyno.contract.summary import Summary
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.checksums import CHECKSUMS_FILE, write_checksums
from agentdyno.rig.backend_options import MOCK, OPENAI, api_key
from agentdyno.rig.campaign.plan import (
    PROBE_ADMISSION,
    PROBE_S,
    PROBE_WARMUP_S,
    STEADY_SHARE,
    draw,
    steady_rate,
    variant_of,
)
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import adapter_environment, profiler_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.options import BenchOptions, trace_every
from agentdyno.rig.profile import framework_packages, write_reports
from agentdyno.rig.run import Run
from agentdyno.rig.series.capacity import CapacitySearch
from agentdyno.rig.series.search_words import SearchWords, read_plan
from agentdyno.rig.snapshots import HeapProfiling
from agentdyno.rig.task import Task, begun

# Reasons that lie with the rig or the machine and not with what is measured: such a run may be measured once more.
SPOILT = frozenset({Reason.GENERATOR_LATE, Reason.GENERATOR_CPU, Reason.GENERATOR_DIED, Reason.RIG_FAILED})
# Steps long enough to tell p95, few enough for a campaign to end.
CURVE_WORDS = SearchWords(
    slo="p95<2s,errors<1%", max_rate="1000", max_steps="20", step="8s", max_step="30s", resolution="25%"
)
_PROBE_AGAIN = 2.0
_HEAP_INTERVAL_S = 10.0
_OTHERS_S = 7.0  # of a run, beside its load: for the remaining time, which is only shown


class Measure(Protocol):
    """One run."""

    def __call__(self, task: Task, heap: HeapProfiling | None = None) -> tuple[Summary, ExitCode]:
        """Its summary, and what `bench` would exit with. Raises UserError for what would befall every further run."""


def here(task: Task, heap: HeapProfiling | None = None) -> tuple[Summary, ExitCode]:
    """Measure on this machine."""
    return Run(task, heap).run()


class CampaignRunner:
    """Runs what is left of a campaign. measure: where its runs take place. observe: see BenchOptions; it changes
    nothing that is measured, so a campaign does not keep it.
    """

    def __init__(
        self, folder: CampaignFolder, campaign: Campaign, measure: Measure = here, observe: Path | None = None
    ) -> None:
        self._measure_run = measure
        self._observe = observe
        self._folder = folder
        self._campaign = campaign

    def run(self) -> CampaignStatus:
        """Measure what is left.

        Raises UserError for what makes every further run pointless: an environment that cannot be made, a full disk.
        """
        campaign = self._campaign
        campaign.status = CampaignStatus.RUNNING
        try:
            (self._folder.path / CHECKSUMS_FILE).unlink(missing_ok=True)  # of what is about to change
            self._folder.write(campaign)
            if not campaign.runs:
                self._plan()
            self._rounds()
            if campaign.heap:
                self._heaps()
            if campaign.curves:
                self._curves()
            campaign.status = CampaignStatus.FINISHED
            campaign.finished_utc = datetime.now(UTC).isoformat(timespec="seconds")
        except KeyboardInterrupt:
            campaign.status = CampaignStatus.INTERRUPTED
        except BaseException:
            campaign.status = CampaignStatus.INTERRUPTED
            self._folder.write(campaign)
            raise
        self._folder.write(campaign)
        write_checksums(self._folder.path)
        return campaign.status

    # the plan

    def _plan(self) -> None:
        campaign, asked = self._campaign, self._campaign.asked
        steady_rps = self._probed_rate() if campaign.steady_rps is None else campaign.steady_rps
        for name, rate in ((LoadName.STEADY, steady_rps), (LoadName.STANDARD, asked.rate)):
            campaign.plans[name] = msgspec.structs.replace(
                asked, rate=rate, trace_every=trace_every(campaign.traces, rate)
            )
        campaign.runs = draw([entry.label for entry in campaign.entries], campaign.rounds, campaign.seed)
        self._folder.write(campaign)

    def _probed_rate(self) -> float:
        """Overload each once; the slowest again at twice what it answered, where refusing costs it less."""
        campaign, rate = self._campaign, self._campaign.asked.rate
        for entry in campaign.entries:
            if entry.label == entry.variant and not self._probes_of(entry.label):
                self._probe(entry.label, rate)
        held = {probe.label: probe.capacity_rps for probe in campaign.probes if probe.capacity_rps is not None}
        if held:
            slowest = min(held, key=lambda label: held[label])
            lower = _PROBE_AGAIN * held[slowest]
            if lower < rate and len(self._probes_of(slowest)) == 1:
                self._probe(slowest, lower)
        return steady_rate(campaign.probes, rate)

    def _probes_of(self, label: str) -> list[Probe]:
        return [probe for probe in self._campaign.probes if probe.label == label]

    def _probe(self, label: str, rate: float) -> None:
        say(f"probe: {label} at {rate:.3g}/s, to find what it holds")
        short = msgspec.structs.replace(
            self._campaign.asked, rate=rate, duration_s=PROBE_S, warmup_s=PROBE_WARMUP_S, trace_every=0
        )
        options = replace(self._options(label, short, PROBE), admission=PROBE_ADMISSION)
        summary, run_id = self._one(options, label)
        self._campaign.probes.append(
            Probe(label=label, run_id=run_id, rate=rate, capacity_rps=summary.goodput_rps or None)
        )
        self._folder.write(self._campaign)

    # the rounds

    def _rounds(self) -> None:
        campaign = self._campaign
        for number in range(1, campaign.rounds + 1):
            # By index: a round grows by the repeats of what the machine spoilt.
            for planned in [run for run in campaign.runs if run.round == number]:
                if planned.run_id is None:
                    self._measure(planned)
            for spoilt in self._to_repeat(number):
                again = PlannedRun(
                    number=len(campaign.runs) + 1,
                    round=number,
                    load=spoilt.load,
                    label=spoilt.label,
                    repeat_of=spoilt.number,
                )
                campaign.runs.append(again)
                self._measure(again)

    def _to_repeat(self, number: int) -> list[PlannedRun]:
        repeated = {run.repeat_of for run in self._campaign.runs}
        return [
            run
            for run in self._campaign.runs
            if run.round == number and run.repeat_of is None and run.number not in repeated and self._is_spoilt(run)
        ]

    def _is_spoilt(self, run: PlannedRun) -> bool:
        if run.run_id is None:
            return False
        summary = _read_summary(self._folder, run.run_id)
        reasons = {finding.code for finding in summary.verdict.reasons}
        return bool(reasons) and reasons <= SPOILT

    def _measure(self, planned: PlannedRun) -> None:
        campaign = self._campaign
        again = "" if planned.repeat_of is None else f", again for run {planned.repeat_of}"
        say(
            f"round {planned.round}/{campaign.rounds}, run {planned.number}/{len(campaign.runs)}: {planned.label}, "
            f"{planned.load}{again}; about {self._left_s() / 60:.0f} min left"
        )
        options = self._options(planned.label, campaign.plans[planned.load], planned.load)
        _, run_id = self._one(options, planned.label, planned)
        self._replace(msgspec.structs.replace(self._current(planned), run_id=run_id))

    def _left_s(self) -> float:
        plans = [self._campaign.plans[run.load] for run in self._campaign.runs if run.run_id is None]
        return sum(plan.warmup_s + plan.duration_s + plan.cooldown_s + _OTHERS_S for plan in plans)

    def _current(self, planned: PlannedRun) -> PlannedRun:
        return next(run for run in self._campaign.runs if run.number == planned.number)

    def _replace(self, run: PlannedRun) -> None:
        runs = self._campaign.runs
        runs[next(at for at, known in enumerate(runs) if known.number == run.number)] = run
        self._folder.write(self._campaign)

    # heap profiles

    def _heaps(self) -> None:
        """Each Python framework once more at the steady rate with the profiler in it; never a timed run."""
        campaign = self._campaign
        for entry in campaign.entries:
            adapter, variant = resolve(entry.variant)
            if entry.label != entry.variant or entry.label in campaign.heap_runs or variant.command is not None:
                continue
            say(f"heap: {entry.label}, with the profiler")
            ensure(profiler_environment())
            packages = framework_packages(adapter_environment(adapter.path), variant)
            profiling = HeapProfiling(profiler_environment(), _HEAP_INTERVAL_S, packages)
            options = self._options(entry.label, campaign.plans[LoadName.STEADY], "heap")
            _, run_id = self._one(options, entry.label, heap=profiling)
            write_reports(self._folder.run(run_id), entry.variant, packages)
            campaign.heap_runs[entry.label] = run_id
            self._folder.write(campaign)

    # capacity searches

    def _curves(self) -> None:
        """A search for what each holds, whose steps make its curve of latency against rate."""
        campaign = self._campaign
        for entry in campaign.entries:
            if entry.label != entry.variant or entry.label in campaign.searches:
                continue
            held = max((probe.capacity_rps or 0.0 for probe in self._probes_of(entry.label)), default=0.0)
            plan = msgspec.structs.replace(campaign.asked, trace_every=0)
            search = read_plan(held * STEADY_SHARE or campaign.plans[LoadName.STEADY].rate, CURVE_WORDS)
            say(f"curve: {entry.label}, a search for what it holds ({CURVE_WORDS.slo})")
            adapter, variant = resolve(entry.variant)
            with begun(self._options(entry.label, plan, "curve"), adapter, variant, entry.label) as task:
                CapacitySearch(task, search).run()
            if task.interruption.asked:
                raise KeyboardInterrupt
            campaign.searches[entry.label] = task.folder.run_id
            self._folder.write(campaign)

    # one run

    def _options(self, label: str, plan: LoadPlan, profile: str) -> BenchOptions:
        campaign = self._campaign
        return BenchOptions(
            framework=variant_of(label),
            plan=plan,
            workload=campaign.workload,
            profile=profile,
            out=self._folder.runs,
            admission=campaign.admission,
            ready_timeout_s=campaign.ready_timeout_s,
            idle_wait_s=campaign.idle_wait_s,
            backend_url=campaign.backend_url,
            model=campaign.model,
            settings=campaign.settings,
            api_key=api_key() if campaign.backend_url is not None else None,
            observe=self._observe,
            backend=OPENAI if campaign.backend_url is not None and campaign.backend == MOCK else campaign.backend,
        )

    def _one(
        self, options: BenchOptions, label: str, planned: PlannedRun | None = None, heap: HeapProfiling | None = None
    ) -> tuple[Summary, str]:
        """One run, as `agentdyno bench` does it. Raises KeyboardInterrupt when it was interrupted, UserError when the
        disk is full: the next run would end the same way.
        """
        adapter, variant = resolve(options.framework)
        with begun(options, adapter, variant, label) as task:
            folder = task.folder
            if planned is not None:
                current = self._current(planned)
                self._replace(msgspec.structs.replace(current, attempts=(*current.attempts, folder.run_id)))
            summary, code = self._measure_run(task, heap)
        if code is ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        if any(finding.code is Reason.DISK_FULL for finding in summary.verdict.reasons):
            again = f"Make room, then go on with RESUME={self._folder.path}"
            raise UserError(f"The disk is full; the campaign stopped at {folder.path}. {again}")
        if planned is not None:
            current = self._current(planned)
            self._replace(msgspec.structs.replace(current, attempts=current.attempts[:-1]))
        _say_result(label, summary)
        return summary, folder.run_id


def _read_summary(folder: CampaignFolder, run_id: str) -> Summary:
    file = folder.run(run_id) / "summary.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=Summary)
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{file} cannot be read, so the campaign cannot go on: {error}.") from error


def _say_result(label: str, summary: Summary) -> None:
    """A line as each run ends, so that a campaign of an hour does not go wrong unseen."""
    load, cpu = summary.load, summary.cpu_ms_per_request
    answered = "nothing was sent" if load is None else f"{load.ok} of {load.arrivals} ok"
    spent = "" if cpu is None else f", CPU {cpu:.3g} ms a request"
    reasons = ", ".join(finding.code for finding in summary.verdict.reasons)
    say(f"{label}: {answered}{spent}{f'; invalid: {reasons}' if reasons else ''}")
