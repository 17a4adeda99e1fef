"""Core pinning, and the calibration loop on the host's core."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentdyno.record.calibration import Calibration, calibrated
from agentdyno.record.manifest import given_cores


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
    """Run the loop on those cores; the same figure before and after says that nothing changed."""
    before = os.sched_getaffinity(0) if cores else None
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        return calibrated()
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)
