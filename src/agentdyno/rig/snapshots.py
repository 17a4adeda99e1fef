"""Heap snapshots while a run goes on: at its start, at every interval, at its end, each kept as soon as it is had."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from agentdyno.host.app import HEAP_PATH
from agentdyno.host.heap import MAX_FRAMES, SAMPLE_BYTES
from agentdyno.record.folder import RunFolder
from agentdyno.record.heap_folder import HEAP_FOLDER, INDEX, Gap, HeapIndex, Snapshot
from agentdyno.rig.environments import Environment, facts
from agentdyno.rig.processes import fetch
from agentdyno.rig.servers import HeapOptions

_FETCH_TIMEOUT_S = 30.0


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
        return {
            "profiler": "ddtrace memalloc",
            "sample_bytes": SAMPLE_BYTES,
            "max_frames": MAX_FRAMES,
            "interval_s": self.interval_s,
            "framework_packages": list(self.framework_packages),
            "environment": asdict(facts(self.environment)),
        }


class Snapshots:
    """Fetches profiles from the host into `heap/` of the run folder. One that cannot be had is a gap with a reason."""

    def __init__(self, folder: RunFolder, profiling: HeapProfiling) -> None:
        self._folder = folder
        self._index = HeapIndex(profiling.interval_s, SAMPLE_BYTES)
        self._first_ns: int | None = None
        self._due_s = 0.0

    def begin(self, host_url: str) -> None:
        """Take the first."""
        (self._folder.path / HEAP_FOLDER).mkdir(exist_ok=True)
        self._due_s = time.monotonic() + self._index.interval_s
        self._take(host_url)

    def tick(self, host_url: str) -> None:
        """Take one when it is time: the schedule is absolute, and those a stall has swallowed are not made up for."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        missed = int((now_s - self._due_s) / self._index.interval_s)
        self._due_s += (missed + 1) * self._index.interval_s
        self._take(host_url)

    def end(self, host_url: str) -> None:
        """Take the last."""
        if self._first_ns is not None:
            self._take(host_url)

    def _take(self, host_url: str) -> None:
        asked_ns = time.monotonic_ns()
        self._first_ns = asked_ns if self._first_ns is None else self._first_ns
        try:
            content = fetch(f"{host_url}{HEAP_PATH}", _FETCH_TIMEOUT_S)
        except OSError as error:
            self._index.gaps.append(Gap(asked_ns, f"The host gave no heap profile: {error}."))
        else:
            seconds = (asked_ns - self._first_ns) / 1e9
            file = f"{len(self._index.snapshots):03}-{seconds:.0f}.pb.gz"
            self._folder.write_bytes(f"{HEAP_FOLDER}/{file}", content)
            self._index.snapshots.append(Snapshot(file, round(seconds, 3), asked_ns))
        self._folder.write_json(f"{HEAP_FOLDER}/{INDEX}", self._index)
