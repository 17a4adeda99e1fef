"""Checks over a whole campaign: is what was counted all there, consistent, and of the frameworks and not of the rig?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from agentdyno.analysis.campaign_runs import CampaignRun
from agentdyno.analysis.metrics import rounded
from agentdyno.analysis.verdict import CALIBRATION_RATIO_MAX, GENERATOR_CPU_MAX_PERCENT, LITTLE_FLOOR, LITTLE_TOLERANCE
from agentdyno.contract.comparison import CheckRow, EntryUnderLoad
from agentdyno.contract.run import Outcome, Reason
from agentdyno.contract.summary import Load

RATE_OFF_MAX = 0.01
_PERCENTILES = ("p50", "p90", "p95", "p99", "p999")


def campaign_checks(runs: Sequence[CampaignRun], under_load: Sequence[EntryUnderLoad]) -> tuple[CheckRow, ...]:
    """All of them, over every run that was measured. passed: None where there was nothing to check."""
    measured = [run for run in runs if run.summary is not None]
    return (
        _counted(runs),
        _conservation(measured),
        _order(measured, under_load),
        _little(measured),
        _rate(measured),
        _generator(measured),
        _work(measured),
        _calibration(measured),
        _one_setting(measured),
    )


def _counted(runs: Sequence[CampaignRun]) -> CheckRow:
    """Each place of the plan has a run that counts; a repeat stands for the spoilt one."""
    there = [run for run in runs if run.planned.run_id is not None]
    places = {(run.planned.round, run.planned.load, run.planned.label) for run in runs}
    filled = {(run.planned.round, run.planned.load, run.planned.label) for run in runs if run.counted}
    text = f"Of {len(places)} planned runs {len(filled)} count."
    excluded = [run for run in there if not run.counted]
    if excluded:
        text += f" Not counted: {_named(excluded)}."
    if repeats := sum(run.planned.repeat_of is not None for run in there):
        text += f" Measured once more, because the rig or the machine had spoilt it: {repeats}."
    if missing := len(runs) - len(there):
        text += f" Not measured yet: {missing}."
    return CheckRow(name="runs", passed=filled == places if places else None, sentence=text)


def _named(runs: Sequence[CampaignRun]) -> str:
    shown = ", ".join(f"no. {run.planned.number} ({run.planned.label}, {run.planned.load.value})" for run in runs[:5])
    return shown + (f" and {len(runs) - 5} more" if len(runs) > 5 else "")


def _with(runs: Sequence[CampaignRun], codes: Collection[Reason]) -> list[CampaignRun]:
    return [run for run in runs if any(reason.code in codes for reason in run.row.reasons)]


def _loads(runs: Sequence[CampaignRun]) -> Iterator[tuple[CampaignRun, Load]]:
    for run in runs:
        if run.summary is not None and run.summary.load is not None:
            yield run, run.summary.load


def _conservation(runs: Sequence[CampaignRun]) -> CheckRow:
    loads = [load for _, load in _loads(runs)]
    arrivals = sum(load.arrivals for load in loads)
    counts = {outcome.value: sum(getattr(load, outcome.value) for load in loads) for outcome in Outcome}
    bad = _with(runs, {Reason.NOT_CONSERVED})
    text = f"{arrivals:,} arrivals: {', '.join(f'{count:,} {name}' for name, count in counts.items() if count)}."
    if bad:
        text += f" They are not those of the schedule in {_named(bad)}, which do not count."
    passed = None if not loads else not bad and arrivals == sum(counts.values())
    return CheckRow(name="conservation of arrivals", passed=passed, sentence=text)


def _order(runs: Sequence[CampaignRun], under_load: Sequence[EntryUnderLoad]) -> CheckRow:
    bad = _with(runs, {Reason.PERCENTILE_ORDER})
    pools = 0
    out_of_order: list[str] = []
    for entry in under_load:
        values = [
            figures.pooled.value
            for name in _PERCENTILES
            for figures in entry.figures
            if figures.metric == name and figures.pooled is not None and figures.pooled.value is not None
        ]
        pools += bool(values)
        if values != sorted(values):
            out_of_order.append(f"{entry.label}, {entry.load.value}")
    text = (
        f"p50, p90, p95, p99, p99.9 are in ascending order in {len(runs) - len(bad)} runs and {pools} pools of rounds."
    )
    if bad or out_of_order:
        text += f" They are not in {'; '.join([*([_named(bad)] if bad else []), *out_of_order])}."
    return CheckRow(
        name="order of percentiles", passed=None if not pools else not bad and not out_of_order, sentence=text
    )


def _little(runs: Sequence[CampaignRun]) -> CheckRow:
    both = [run.in_flight for run in runs if run.in_flight is not None]
    off = [abs(live - recorded) / max(live, recorded, LITTLE_FLOOR) for live, recorded in both]
    if not off:
        return CheckRow(name="Little's law", passed=None, sentence="Requests in flight were not counted live.")
    text = (
        f"Mean requests in flight, counted live and by the recorded times, differ by at most {max(off):.1%} over "
        f"{len(off)} runs ({LITTLE_TOLERANCE:.0%} is allowed)."
    )
    return CheckRow(name="Little's law", passed=max(off) <= LITTLE_TOLERANCE, sentence=text)


def _rate(runs: Sequence[CampaignRun]) -> CheckRow:
    off = [
        (abs(load.achieved_rate / load.requested_rate - 1), run)
        for run, load in _loads(runs)
        if load.achieved_rate is not None and load.requested_rate > 0 and load.sent == load.arrivals
    ]
    if not off:
        return CheckRow(name="achieved rate", passed=None, sentence="No run sent all of its arrivals.")
    worst, run = max(off, key=lambda one: one[0])
    text = (
        f"In the {len(off)} runs that sent all of their arrivals the achieved rate is at most {worst:.2%} off the "
        f"requested one (no. {run.planned.number}, {run.planned.label}); {RATE_OFF_MAX:.0%} is allowed."
    )
    return CheckRow(name="achieved rate", passed=worst <= RATE_OFF_MAX, sentence=text)


def _generator(runs: Sequence[CampaignRun]) -> CheckRow:
    name = "generator against host"
    busy = [
        (run.summary.generator.cpu_percent, run)
        for run in runs
        if run.summary is not None and run.summary.generator.cpu_percent is not None
    ]
    late = _with(runs, {Reason.GENERATOR_LATE, Reason.GENERATOR_CPU, Reason.GENERATOR_DIED})
    if not busy:
        return CheckRow(name=name, passed=None if not late else False, sentence="The generator's CPU was not read.")
    most, run = max(busy, key=lambda one: one[0])
    host = "unknown" if run.host_cpu_percent is None else f"{run.host_cpu_percent:.0f} %"
    lateness = [load.lateness_ms.p99 for _, load in _loads(runs) if load.lateness_ms.p99 is not None]
    text = (
        f"The busiest load worker used {most:.0f} % of a core (no. {run.planned.number}, {run.planned.label}, where "
        f"the host used {host}); above {GENERATOR_CPU_MAX_PERCENT:g} % it would measure itself."
    )
    if lateness:
        text += f" 99 % of arrivals were sent at most {rounded(max(lateness))} ms late in every run."
    if late:
        text += f" It was too slow in {_named(late)}, which do not count."
    return CheckRow(name=name, passed=not late and most <= GENERATOR_CPU_MAX_PERCENT, sentence=text)


def _work(runs: Sequence[CampaignRun]) -> CheckRow:
    """Tool calls must be the same for all; LLM calls may differ between entries, never within one."""
    tools: set[float] = set()
    calls: dict[str, set[float]] = {}
    for run in runs:
        ledger = None if run.summary is None or not run.counted else run.summary.ledger
        if ledger is not None and ledger.tool_calls is not None:
            tools.add(ledger.tool_calls)
        if ledger is not None and ledger.llm_calls is not None:
            calls.setdefault(run.planned.label, set()).add(ledger.llm_calls)
    if not tools:
        return CheckRow(name="same work", passed=None, sentence="No counted run says how many tool calls it made.")
    varying = [label for label, counts in calls.items() if len(counts) > 1]
    by_count: dict[float, list[str]] = {}
    for label, counts in calls.items():
        by_count.setdefault(min(counts), []).append(label)
    shown = "; ".join(f"{rounded(count)} by {', '.join(by_count[count])}" for count in sorted(by_count))
    text = f"Every verified answer took {' or '.join(rounded(n) for n in sorted(tools))} tool calls."
    text += f" LLM calls per request: {shown or 'not counted'}."
    if varying:
        text += f" They differ from run to run for {', '.join(varying)}."
    return CheckRow(name="same work", passed=len(tools) == 1 and not varying, sentence=text)


def _calibration(runs: Sequence[CampaignRun]) -> CheckRow:
    name = "speed of the host's core"
    times = [ms for run in runs if run.counted for ms in run.row.calibration_ms if ms]
    if not times:
        return CheckRow(name=name, passed=None, sentence="No calibration loop was timed.")
    apart = max(times) / min(times)
    text = (
        f"A fixed loop before and after each counted run took {rounded(min(times))} to {rounded(max(times))} ms "
        f"({apart - 1:.0%} apart; more than {CALIBRATION_RATIO_MAX - 1:.0%} would mean that the machine changed). "
        "Figures are paired by round because of it."
    )
    return CheckRow(name=name, passed=apart <= CALIBRATION_RATIO_MAX, sentence=text)


def _one_setting(runs: Sequence[CampaignRun]) -> CheckRow:
    """The same machine, program, rig and cores in every run."""
    name = "one machine, one program"
    manifests = [run.manifest for run in runs if run.counted and run.manifest is not None]
    if not manifests:
        return CheckRow(name=name, passed=None, sentence="No run counts.")
    tracing = {(run.planned.load, run.manifest.plan.trace_every) for run in runs if run.counted and run.manifest}
    settings: dict[str, set[Any]] = {
        "machine": {repr(m.machine) for m in manifests},
        "program": {(m.agentdyno, m.commit) for m in manifests},
        "rig's environment": {m.rig_environment.get("lock_sha256") for m in manifests},
        "cores": {repr(m.cores) for m in manifests},
        "backend": {repr(sorted(m.backend.items(), key=lambda item: item[0])) for m in manifests},
    }
    differs = [what for what, found in settings.items() if len(found) > 1]
    differs += ["tracing"] if len(tracing) > len({load for load, _ in tracing}) else []
    text = f"{len(manifests)} counted runs have the same {', '.join(what for what in settings if what not in differs)}."
    if differs:
        text += f" They differ in: {', '.join(differs)}."
    return CheckRow(name=name, passed=not differs, sentence=text)
