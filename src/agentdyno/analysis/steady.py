"""Was a stretch of load steady? Where a queue grows, latency and requests in flight rise from beginning to end."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from agentdyno.analysis.run_data import NS_PER_MS, Requests, Window
from agentdyno.contract.capacity import Trend
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome

Series = NDArray[np.float64]

BLOCKS = 10
ARRIVALS_MIN = 4 * BLOCKS
# One-sided 1 % of the normal distribution: of a hundred steady stretches one would be called rising by chance ...
_SURE = 2.326
# ... were it not that a rise must also matter: a quarter of the middle, and more than these.
RISE_MIN = 0.25
RISE_MIN_MS = 2.0
RISE_MIN_IN_FLIGHT = 0.5


def trend(requests: Requests, window: Window) -> Trend:
    """Of the measured stage: the medians of latency and the means in flight of its tenths.

    A fall is no reason to doubt a rate that was met, so only a rise is looked for.
    """
    rows = requests.stage(Stage.MEASURE)
    if int(rows.sum()) < ARRIVALS_MIN:
        return Trend(steady=None)
    latency, in_flight = latency_blocks(requests, window), in_flight_blocks(requests, window)
    latency_rise, latency_rising = rise(latency, RISE_MIN_MS)
    flight_rise, flight_rising = rise(in_flight, RISE_MIN_IN_FLIGHT)
    return Trend(
        steady=not (latency_rising or flight_rising),
        latency_rise=latency_rise,
        latency_rising=latency_rising,
        in_flight_rise=flight_rise,
        in_flight_rising=flight_rising,
    )


def latency_blocks(requests: Requests, window: Window) -> Series:
    """Median latency from the intended start of each tenth's verified answers, ms; tenths without any are left out."""
    rows = requests.stage(Stage.MEASURE) & requests.outcome(Outcome.OK) & requests.has_ended
    due, took = requests.intended_ns[rows], (requests.done_ns - requests.intended_ns)[rows] / NS_PER_MS
    borders = np.linspace(window.start_ns, window.end_ns, BLOCKS + 1)
    parts = [took[(due >= start) & (due < end)] for start, end in pairwise(borders)]
    return np.array([np.median(part) for part in parts if part.size])


def in_flight_blocks(requests: Requests, window: Window) -> Series:
    """Time-average of the requests in flight, of whichever stage, in each tenth."""
    ended = requests.has_ended
    sent, done = requests.sent_ns[ended], requests.done_ns[ended]
    borders = np.linspace(window.start_ns, window.end_ns, BLOCKS + 1)
    areas = [
        np.clip(np.minimum(done, end) - np.maximum(sent, start), 0, None).sum() / (end - start)
        for start, end in pairwise(borders)
    ]
    return np.array(areas)


def rise(series: Series, least: float) -> tuple[float | None, bool]:
    """By how much a series rises from end to end, as a share of its median, and whether that is more than chance
    (Mann and Kendall's test, one-sided) and more than matters (RISE_MIN of the median, and `least` in its unit).
    """
    count = series.size
    if count < BLOCKS // 2:
        return None, False
    first, second = np.triu_indices(count, 1)
    steps = series[second] - series[first]
    slope = float(np.median(steps / (second - first)))
    gained, middle = slope * (count - 1), float(np.median(series))
    score = float(np.sign(steps).sum())
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    sure = score > 0 and (score - 1) / spread > _SURE
    matters = gained > max(least, RISE_MIN * middle)
    return (gained / middle if middle > 0 else None), sure and matters
