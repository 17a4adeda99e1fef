"""One entry under one load: every declared metric over the rounds, the pooled percentiles, curves and phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from agentdyno.analysis.campaign_runs import CampaignRun
from agentdyno.analysis.curves import latency_curve, phase_means
from agentdyno.analysis.metrics import METRICS, Metric
from agentdyno.analysis.paired import PerRound, ratio, tax
from agentdyno.analysis.percentiles import Samples
from agentdyno.analysis.pooled import pooled
from agentdyno.analysis.rounds import instability, over_rounds
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import CurvePoint, EntryUnderLoad, FigureSet
from agentdyno.contract.run import Outcome


@dataclass(frozen=True, slots=True)
class Rounds:
    """The counted runs of one entry under one load, by round from the first; None where there is none. tried: how
    many there are that do not count.
    """

    label: str
    load: LoadName
    counted: tuple[CampaignRun | None, ...]
    tried: int = 0

    @property
    def valid(self) -> list[CampaignRun]:
        """The counted runs alone."""
        return [run for run in self.counted if run is not None]

    def per_round(self, metric: Metric) -> tuple[float | None, ...]:
        """The metric by round."""
        return tuple(None if run is None or run.summary is None else metric.value(run.summary) for run in self.counted)


def by_place(runs: Sequence[CampaignRun], label: str, load: LoadName, rounds: int) -> Rounds:
    """The runs of that entry under that load, put in their rounds."""
    counted: list[CampaignRun | None] = [None] * rounds
    tried = 0
    for run in runs:
        if run.planned.label != label or run.planned.load is not load or run.planned.run_id is None:
            continue
        if run.counted and 1 <= run.planned.round <= rounds:
            counted[run.planned.round - 1] = run
        else:
            tried += 1
    return Rounds(label, load, tuple(counted), tried)


def entry_under_load(own: Rounds, control: Rounds | None) -> EntryUnderLoad:
    """Everything of it. control: of the same load; None for the control itself."""
    valid = own.valid
    loads = [run.summary.load for run in valid if run.summary is not None and run.summary.load is not None]
    intended, service = (_pool([getattr(run, name) for run in valid]) for name in ("intended_ms", "service_ms"))
    samples = {"latency_ms.intended": intended, "latency_ms.service": service}
    return EntryUnderLoad(
        label=own.label,
        load=own.load,
        valid_runs=len(valid),
        invalid_runs=own.tried,
        arrivals=sum(load.arrivals for load in loads),
        outcomes={outcome.value: sum(getattr(load, outcome.value) for load in loads) for outcome in Outcome},
        overloaded_runs=sum(run.summary.overloaded is True for run in valid if run.summary is not None),
        figures=tuple(
            _figures(
                metric,
                own.per_round(metric),
                None if control is None else control.per_round(metric),
                samples.get(metric.path.rpartition(".")[0]),
            )
            for metric in METRICS
        ),
        latency_curve=latency_curve(intended),
        memory_curve=_median_memory(valid),
        phases=phase_means([run.summary for run in valid if run.summary is not None]),
    )


def _figures(metric: Metric, per_round: PerRound, control: PerRound | None, samples: Samples | None) -> FigureSet:
    found = over_rounds(per_round)
    figures = FigureSet(
        metric=metric.name,
        per_round=tuple(per_round),
        median=found.median,
        low=found.low,
        high=found.high,
        cv=found.cv,
        unstable=instability(metric, per_round, found),
        pooled=None if metric.quantile is None or samples is None else pooled(samples, metric.quantile),
    )
    if control is None:
        return figures
    return msgspec.structs.replace(
        figures,
        ratio_to_control=ratio(per_round, control),
        tax=tax(per_round, control) if metric.unit else None,
    )


def _pool(rounds: Sequence[Samples]) -> Samples:
    together: Samples = np.sort(np.concatenate(rounds)) if rounds else np.empty(0)
    return together


def _median_memory(valid: Sequence[CampaignRun]) -> tuple[CurvePoint, ...]:
    """Of the round whose peak is the median (of an even number the lower of the two in the middle)."""
    peaks = sorted(
        (run.summary.memory_mb.rss_peak, run.planned.round, run.memory)
        for run in valid
        if run.summary is not None and run.summary.memory_mb.rss_peak is not None and run.memory
    )
    return peaks[(len(peaks) - 1) // 2][2] if peaks else ()
