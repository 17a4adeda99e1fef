"""Heap snapshots while a run goes on: at its start, at every interval, at its end, each kept as soon as it is had."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentdyno.contract.errors import UserError
from agentdyno.host.app import HEAP_PATH
from agentdyno.host.heap import MAX_FRAMES, SAMPLE_BYTES
from agentdyno.record.folder import RunFolder
from agentdyno.record.heap_folder import HEAP_FOLDER, INDEX, Gap, HeapIndex, Snapshot, read_index
from agentdyno.rig.environments.environment import Environment, Facts, facts
from agentdyno.rig.processes import fetch
from agentdyno.rig.servers import HeapOptions

SNAPSHOT_S = 30.0
Take = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class HeapProfiling:
    """What a profile run adds to a bench. environment: the profiler's, ready.

    framework_packages: import names of the framework's own distributions.
    """

    environment: Environment
    interval_s: float
    framework_packages: tuple[str, ...]

    def options(self, folder: RunFolder) -> HeapOptions:
        """What the host of a run is given."""
        return HeapOptions(self.environment.site_packages, folder.run_id, folder.raw.absolute())

    def facts(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return heap_facts(self.interval_s, self.framework_packages, facts(self.environment))


def heap_facts(interval_s: float, framework_packages: Sequence[str], environment: Facts) -> dict[str, Any]:
    """What a manifest says of the profiler, wherever the host runs. environment: the profiler's."""
    return {
        "profiler": "ddtrace memalloc",
        "sample_bytes": SAMPLE_BYTES,
        "max_frames": MAX_FRAMES,
        "interval_s": interval_s,
        "framework_packages": list(framework_packages),
        "environment": asdict(environment),
    }


def taken_from(host_url: str) -> Take:
    """One profile of a host that this machine reaches; it raises OSError when there is none to be had."""
    return lambda: fetch(f"{host_url}{HEAP_PATH}", SNAPSHOT_S)


class Snapshots:
    """Brings profiles of the host into `heap/` of the run folder. One that cannot be had is a gap with a reason."""

    def __init__(self, folder: RunFolder, interval_s: float) -> None:
        self._folder = folder
        self._index = HeapIndex(interval_s, SAMPLE_BYTES)
        self._take: Take | None = None
        self._first_ns: int | None = None
        self._ahead_ns = 0
        self._due_s = 0.0

    def begin(self, take: Take, host_ns: int) -> None:
        """Take the first, or the next where an earlier rig has begun. take: one profile, or OSError or UserError.

        host_ns: what the host's monotonic clock says now, for snapshots stand beside what was measured by it.
        """
        (self._folder.path / HEAP_FOLDER).mkdir(exist_ok=True)
        self._index = read_index(self._folder.path) or self._index
        known = [one.monotonic_ns for one in self._index.snapshots] + [one.monotonic_ns for one in self._index.gaps]
        self._first_ns = min(known, default=None)
        self._take, self._ahead_ns = take, host_ns - time.monotonic_ns()
        self._due_s = time.monotonic() + self._index.interval_s
        self._keep_one()

    def tick(self) -> None:
        """Take one when it is time: the schedule is absolute, and those a stall has swallowed are not made up for."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        missed = int((now_s - self._due_s) / self._index.interval_s)
        self._due_s += (missed + 1) * self._index.interval_s
        self._keep_one()

    def end(self) -> None:
        """Take the last."""
        self._keep_one()

    def _keep_one(self) -> None:
        if self._take is None:
            return
        asked_ns = time.monotonic_ns() + self._ahead_ns
        self._first_ns = asked_ns if self._first_ns is None else self._first_ns
        try:
            content = self._take()
        except (OSError, UserError) as error:
            reason = str(error).rstrip(".")
            self._index.gaps.append(Gap(asked_ns, f"The host gave no heap profile: {reason}."))
        else:
            seconds = (asked_ns - self._first_ns) / 1e9
            file = f"{len(self._index.snapshots):03}-{seconds:.0f}.pb.gz"
            self._folder.write_bytes(f"{HEAP_FOLDER}/{file}", content)
            self._index.snapshots.append(Snapshot(file, round(seconds, 3), asked_ns))
        self._folder.write_json(f"{HEAP_FOLDER}/{INDEX}", self._index)
