"""Core pinning, and the calibration loop that says how fast and how quiet a core is."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from statistics import median

from agentdyno.record.manifest import Calibration, given_cores

_LOOP = 20_000
_REPEATS = 15


@dataclass(frozen=True, slots=True)
class CorePlan:
    """Who runs where. None: not pinned (one core only, or a platform that cannot)."""

    host: frozenset[int] | None
    rest: frozenset[int] | None

    @property
    def pinned(self) -> bool:
        """Whether the host has a core of its own."""
        return self.host is not None


def plan() -> CorePlan:
    """The host gets the last core that this process was given, the others share the rest.

    The last one, because the kernel's own work tends to land on the first.
    """
    cores = sorted(given_cores() or ())
    if len(cores) < 2:
        return CorePlan(None, None)
    return CorePlan(frozenset(cores[-1:]), frozenset(cores[:-1]))


def stay_on(cores: frozenset[int] | None) -> None:
    """Keep this thread, and the threads it starts from now on, on those cores (None: where it is)."""
    if cores is not None:
        os.sched_setaffinity(0, cores)


def calibrate(cores: frozenset[int] | None) -> Calibration:
    """Run the loop on the host's core, about 30 ms; the same figure before and after says that nothing changed."""
    before = os.sched_getaffinity(0) if cores else None
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        times = [_timed() for _ in range(_REPEATS)]
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)
    middle = median(times)
    return Calibration(middle, min(times), max(times), (max(times) - min(times)) / middle)


def _timed() -> float:
    begin = time.perf_counter_ns()
    total = 0
    for number in range(_LOOP):
        total += number * number
    return (time.perf_counter_ns() - begin) / 1e6
