"""The gate: does a candidate exceed a limit beside its baseline, by more than chance explains?

It fails only where the whole interval of the ratio lies beyond the limit, so that a figure exactly at the limit fails
in at most one of forty checks, and one that has not changed next to never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from agentdyno.analysis.limits import Limit
from agentdyno.analysis.metrics import Metric
from agentdyno.analysis.sides import (
    MeasuredRun,
    Series,
    Side,
    SideError,
    differing_conditions,
    left_out,
    machine_of,
    rig_of,
    server_of,
)
from agentdyno.analysis.unpaired import UnpairedRatio, unpaired_ratio
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.run import ExitCode

# What shows under the load that is too much for most; every other figure is compared under the steady one.
UNDER_PRESSURE = frozenset({"goodput", "rss_peak", "pss_peak", "rss_drained", "gc_pause_total", "gc_pause_max"})
_TIME, _THROUGHPUT = "ms", "rps"  # the units of figures that a faster machine makes better


class Outcome(StrEnum):
    """Of one limit. CANNOT_TELL: there is no interval, or none that would mean anything."""

    PASS = "pass"
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"


class By(StrEnum):
    """What a ratio is of. CONTROL: each round's figure over the control's of the same round, which cancels the
    machine's speed.
    """

    RAW = "raw"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class GateRow:
    """One limit on one framework under one load.

    baseline, candidate: medians of the valid rounds, in the metric's unit. raw, by_control: both ratios, as far as
    there are any. decided_by: which of them was held against the limit, None when neither could be.
    """

    label: str
    load: LoadName | None
    limit: Limit
    rounds: tuple[int, int]
    baseline: float | None
    candidate: float | None
    raw: UnpairedRatio
    by_control: UnpairedRatio | None
    decided_by: By | None
    outcome: Outcome
    sentence: str

    @property
    def deciding(self) -> UnpairedRatio:
        """The ratio that was held against the limit, or else the raw one, to be shown."""
        return self.by_control if self.decided_by is By.CONTROL and self.by_control is not None else self.raw


@dataclass(frozen=True, slots=True)
class Gate:
    """All rows. warnings: what a reader should know of the two sides."""

    rows: tuple[GateRow, ...]
    versions: dict[str, tuple[str | None, str | None]]
    warnings: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """GATE_FAILED when one limit is exceeded; else INVALID_RUN when of one it cannot be told."""
        outcomes = {row.outcome for row in self.rows}
        if Outcome.FAIL in outcomes:
            return ExitCode.GATE_FAILED
        return ExitCode.INVALID_RUN if Outcome.CANNOT_TELL in outcomes else ExitCode.VALID


def gate(
    baseline: Side,
    candidate: Side,
    limits: Sequence[Limit],
    frameworks: Sequence[str] = (),
    load: LoadName | None = None,
) -> Gate:
    """Hold each limit against each framework that both sides have.

    frameworks: only these; otherwise all but the control. load: only under this one; otherwise each metric under the
    load where it shows. Raises SideError when nothing can be compared, saying what differs.
    """
    rows: list[GateRow] = []
    warnings = [*left_out(baseline, "baseline", frameworks), *left_out(candidate, "candidate", frameworks)]
    versions: dict[str, tuple[str | None, str | None]] = {}
    for label in _labels(baseline, candidate, frameworks):
        for limit in limits:
            before, after = _pair(baseline, candidate, label, limit.metric, load)
            rows.append(_row(before, after, limit))
            warnings += [text for text in _warnings(before, after) if text not in warnings]
            versions[label] = (_version(before), _version(after))
    return Gate(tuple(rows), versions, tuple(warnings))


def _labels(baseline: Side, candidate: Side, frameworks: Sequence[str]) -> list[str]:
    ours, theirs = (dict.fromkeys(one.label for one in side.series) for side in (baseline, candidate))
    both = [label for label in ours if label in theirs]
    wanted = list(frameworks) or [label for label in both if label not in (baseline.control, candidate.control)] or both
    missing = [label for label in wanted if label not in both]
    if missing or not wanted:
        what = f"{', '.join(missing)} is not on both sides" if missing else "The two sides have no framework in common"
        text = f"{what}: {baseline.path} has {', '.join(ours)}; {candidate.path} has {', '.join(theirs)}."
        raise SideError(" ".join([text, *left_out(baseline, "baseline"), *left_out(candidate, "candidate")]))
    return wanted


def _pair(baseline: Side, candidate: Side, label: str, metric: Metric, load: LoadName | None) -> tuple[Series, Series]:
    """The series of either side in which the metric is compared. Raises SideError when they were measured unlike."""
    wanted = load or (LoadName.STANDARD if metric.name in UNDER_PRESSURE else LoadName.STEADY)
    before, after = (_under(side, label, wanted, asked=load is not None) for side in (baseline, candidate))
    if before.load is None and after.load is not None:
        after = _like(before, [one for one in candidate.series if one.label == label]) or after
    elif after.load is None and before.load is not None:
        before = _like(after, [one for one in baseline.series if one.label == label]) or before
    if not before.runs or not after.runs:
        return before, after
    if differing := list(differing_conditions(before.manifest, after.manifest)):
        under = f" under the {wanted} load" if before.load is not None else ""
        text = f"{label}{under} was not measured alike in {baseline.path} and {candidate.path}: {'; '.join(differing)}."
        raise SideError(f"{text} A ratio of the two would say nothing. Measure one of them again.")
    return before, after


def _under(side: Side, label: str, wanted: LoadName, *, asked: bool) -> Series:
    own = {one.load: one for one in side.series if one.label == label}
    found = own.get(wanted) or (None if asked and None not in own else next(iter(own.values())))
    if found is None:
        raise SideError(f"{side.path} has no run of {label} under the {wanted} load.")
    return found


def _like(one: Series, others: Sequence[Series]) -> Series | None:
    """The one of several loads that is the same as that of runs outside of a campaign."""
    if not one.runs:
        return None
    alike = (other for other in others if other.runs and not list(differing_conditions(one.manifest, other.manifest)))
    return next(alike, None)


def _row(before: Series, after: Series, limit: Limit) -> GateRow:
    ours, theirs = (_values(side, limit.metric) for side in (before, after))
    raw = unpaired_ratio(ours, theirs)
    by_control = _by_control(before, after, limit.metric)
    decided_by, why_not = _decider(before, after, limit.metric, by_control)
    deciding = by_control if decided_by is By.CONTROL else raw
    outcome, sentence = _judged(deciding, limit, (len(ours), len(theirs)), why_not)
    return GateRow(
        label=before.label,
        load=before.load,
        limit=limit,
        rounds=(len(ours), len(theirs)),
        baseline=median(ours) if ours else None,
        candidate=median(theirs) if theirs else None,
        raw=raw,
        by_control=by_control,
        decided_by=decided_by if outcome is not Outcome.CANNOT_TELL else None,
        outcome=outcome,
        sentence=sentence,
    )


def _values(side: Series, metric: Metric) -> list[float]:
    found = (metric.value(run.summary) for run in side.runs)
    return [value for value in found if value is not None]


def _by_control(before: Series, after: Series, metric: Metric) -> UnpairedRatio | None:
    """Of each round's figure over the control's; None where the control is not measured beside, or was 0."""
    ours, theirs = (list(_normalised(side, metric)) for side in (before, after))
    if before.label in {run.manifest.framework.name for run in before.control.values()} or not ours or not theirs:
        return None
    return unpaired_ratio(ours, theirs)


def _normalised(side: Series, metric: Metric) -> Iterator[float]:
    for run in side.runs:
        beside = side.control.get(run.round) if run.round is not None else None
        own, control = (None if one is None else metric.value(one.summary) for one in (run, beside))
        if own is not None and control:
            yield own / control


def _decider(before: Series, after: Series, metric: Metric, by_control: UnpairedRatio | None) -> tuple[By | None, str]:
    """Which ratio is held against the limit, or why none is."""
    if not before.runs or not after.runs:
        return By.RAW, ""
    same_machine = machine_of(before.manifest) == machine_of(after.manifest)
    same_rig = rig_of(before.manifest) == rig_of(after.manifest)
    if metric.unit == _TIME and same_rig and by_control is not None and by_control.low is not None:
        return By.CONTROL, ""
    if same_machine or metric.unit not in (_TIME, _THROUGHPUT):
        return By.RAW, ""
    if metric.unit == _THROUGHPUT:
        return None, "the machines differ, and a rate that was answered cannot be normalised by the control's"
    if not same_rig:
        return None, "machine and rig both differ, so that neither ratio is of the framework alone"
    return None, "the machines differ, and the control was not measured beside on both sides"


def _judged(ratio: UnpairedRatio | None, limit: Limit, rounds: tuple[int, int], why_not: str) -> tuple[Outcome, str]:
    if ratio is None or why_not:
        return Outcome.CANNOT_TELL, why_not
    if 0 in rounds:
        return Outcome.CANNOT_TELL, "there is no valid run of it that measured this on both sides"
    if ratio.low is None or ratio.high is None or ratio.median is None:
        text = f"{rounds[0]} and {rounds[1]} rounds give no interval; 4 on either side do"
        return Outcome.CANNOT_TELL, text
    beyond = ratio.low > limit.ratio if limit.upper else ratio.high < limit.ratio
    if beyond:
        return Outcome.FAIL, "the whole interval is beyond the limit"
    if ratio.median > limit.ratio if limit.upper else ratio.median < limit.ratio:
        return Outcome.PASS, "beyond the limit in the middle, but the interval covers it: more rounds would tell"
    if ratio.high > limit.ratio if limit.upper else ratio.low < limit.ratio:
        return Outcome.PASS, "within the limit, but the interval covers it: more rounds would tell"
    return Outcome.PASS, "within the limit"


def _warnings(before: Series, after: Series) -> Iterator[str]:
    for where, side in (("baseline", before), ("candidate", after)):
        if side.invalid:
            yield f"{side.invalid} invalid runs of {side.label} were left out of the {where}."
    if not before.runs or not after.runs:
        return
    for what, facts in (("rig", rig_of), ("machine", machine_of), ("backend, by its own word,", server_of)):
        one, other = facts(before.manifest), facts(after.manifest)
        names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
        differing = [f"{name} {one.get(name)} and {other.get(name)}" for name in names]
        if differing:
            yield f"The {what} is not the same: {'; '.join(differing)}."


def _version(side: Series) -> str | None:
    runs: list[MeasuredRun] = side.runs
    return runs[0].manifest.framework.version if runs else None
