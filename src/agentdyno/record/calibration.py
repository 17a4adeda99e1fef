"""The calibration loop: how fast and how quiet a core is. Any of our environments can run it, a measured host's too."""

from __future__ import annotations

import time
from statistics import median

import msgspec

_LOOP = 20_000
_REPEATS = 15


class Calibration(msgspec.Struct, frozen=True):
    """A fixed amount of arithmetic, timed several times on one core, ms. spread: (max - min) / median."""

    median_ms: float
    min_ms: float
    max_ms: float
    spread: float


def calibrated() -> Calibration:
    """Run the loop where this thread is, about 30 ms; the same figures later say that nothing changed."""
    times = [_timed() for _ in range(_REPEATS)]
    middle = median(times)
    return Calibration(middle, min(times), max(times), (max(times) - min(times)) / middle)


def _timed() -> float:
    begin = time.perf_counter_ns()
    total = 0
    for number in range(_LOOP):
        total += number * number
    return (time.perf_counter_ns() - begin) / 1e6
