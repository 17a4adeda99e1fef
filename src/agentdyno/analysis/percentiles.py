"""Percentiles from raw samples, and when there are enough samples to print one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from agentdyno.contract.summary import Latency

Samples = NDArray[np.float64]

# Chance, at most, that every sample lies below the percentile that is being printed.
_MISSED = 0.01


def samples_needed(quantile: float) -> int:
    """The fewest samples from which a percentile is printed: the least n with quantile**n <= 1 %.

    With fewer, the chance that not one sample reached the percentile is above 1 %, and the figure would say
    something of the middle and nothing of the tail. 44 for p90, 90 for p95, 459 for p99, 4,603 for p99.9.
    """
    return math.ceil(math.log(_MISSED) / math.log(quantile))


def percentile(samples: Samples, quantile: float) -> float | None:
    """The sample at rank ceil(quantile * n), so a value that really occurred; None with too few samples."""
    if samples.size < samples_needed(quantile):
        return None
    return float(np.quantile(samples, quantile, method="inverted_cdf"))


def latency(samples_ms: Samples) -> Latency:
    """Count, mean, percentiles and maximum of latencies in ms."""
    if samples_ms.size == 0:
        return Latency(0)
    return Latency(
        n=int(samples_ms.size),
        mean=float(samples_ms.mean()),
        p50=percentile(samples_ms, 0.50),
        p90=percentile(samples_ms, 0.90),
        p95=percentile(samples_ms, 0.95),
        p99=percentile(samples_ms, 0.99),
        p999=percentile(samples_ms, 0.999),
        max=float(samples_ms.max()),
    )
