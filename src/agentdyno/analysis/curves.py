"""The curves of a comparison: how latency is distributed, how memory goes, and how a request's time is shared out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from agentdyno.analysis.figures import whole_looks
from agentdyno.analysis.percentiles import Samples, samples_needed
from agentdyno.analysis.run_data import NS_PER_S, RunData
from agentdyno.contract.comparison import CurvePoint, PhaseMean
from agentdyno.contract.phases import Phase
from agentdyno.contract.summary import Summary

MEMORY_POINTS = 200
_POINTS_A_DECADE = 20
_MB = 1e6


def latency_curve(sorted_ms: Samples) -> tuple[CurvePoint, ...]:
    """x: the share of answers that took longer, evenly on a log scale; y: ms. Samples in ascending order.

    As deep as the samples carry: a share x is drawn when the percentile 1 - x has its floor of samples.
    """
    count = int(sorted_ms.size)
    points: list[CurvePoint] = []
    for step in range(_POINTS_A_DECADE * 9):
        share = 10 ** (-step / _POINTS_A_DECADE)
        quantile = 1.0 - share
        if count < (samples_needed(quantile) if quantile > 0.5 else samples_needed(0.5)):
            break
        rank = max(1, math.ceil(quantile * count))
        points.append(CurvePoint(share, float(sorted_ms[rank - 1])))
    return tuple(points)


def memory_curve(data: RunData) -> tuple[CurvePoint, ...]:
    """x: s since the schedule's origin; y: RSS of the host's processes, MB. At most 200 points: of each stretch of
    looks the highest, so that no peak is lost. Empty when there are no looks, or the schedule never began.
    """
    t0_ns = data.manifest.t0_monotonic_ns
    if data.resources is None or t0_ns is None:
        return ()
    looks = whole_looks(data.resources.filter(pc.equal(data.resources["role"], "host")), "rss_bytes").sort_by("look")
    times_s = (looks["monotonic_ns_min"].to_numpy() - t0_ns) / NS_PER_S
    rss_mb = looks["rss_bytes_sum"].to_numpy() / _MB
    stretches = np.array_split(np.arange(len(times_s)), min(MEMORY_POINTS, len(times_s)) or 1)
    highest = [int(stretch[np.argmax(rss_mb[stretch])]) for stretch in stretches if stretch.size]
    return tuple(CurvePoint(round(float(times_s[at]), 3), float(rss_mb[at])) for at in highest)


def phase_means(summaries: Sequence[Summary]) -> tuple[PhaseMean, ...] | None:
    """Each phase's mean over the traced requests of all rounds, each request counting once; None without traces."""
    traced = [
        (summary.critical_path.of_requests, summary.phases_ms)
        for summary in summaries
        if summary.critical_path is not None and all(summary.phases_ms.values())
    ]
    requests = sum(count for count, _ in traced)
    if not requests:
        return None
    means = {}
    for phase in Phase:
        own = [(count, time.mean) for count, phases in traced if (time := phases.get(phase.value)) is not None]
        means[phase] = sum(count * mean for count, mean in own if mean is not None) / requests
    whole_ms = sum(means.values())
    if not whole_ms > 0:
        return None
    return tuple(PhaseMean(phase=phase.value, mean_ms=mean, share=mean / whole_ms) for phase, mean in means.items())
