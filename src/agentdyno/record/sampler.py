"""The resource sampler: looks at every process of a run from outside, a few times a second."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from agentdyno.record.processes import Reader, Reading, default_reader

INTERVAL_S = 0.25
_DETAILED_EVERY = 4  # PSS costs milliseconds of kernel time: once a second
_CHILDREN_EVERY = 8


class Sample(msgspec.Struct, frozen=True):
    """One reading of one process of the run.

    look: which of the sampler's looks at all processes this is from; what has the same number belongs to one moment.
    role: host, backend, generator, recorder, rig.
    """

    monotonic_ns: int
    look: int
    role: str
    pid: int
    reading: Reading


class Sampler:
    """A thread of the rig that appends samples to a JSON-lines file until it is stopped.

    Only the host's processes are read in detail. The schedule is absolute, so that a slow reading makes no drift;
    looks that a stall has swallowed are not made up for. failure: why the sampling ended early, if it did.
    """

    def __init__(self, file: Path, reader: Reader | None = None) -> None:
        self._file = file
        self._reader = reader or default_reader()
        self._roots: dict[int, str] = {}
        self._children: dict[int, list[int]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._looks = 0
        self._latest: dict[bool, dict[int, Sample]] = {False: {}, True: {}}
        self.failure: OSError | None = None

    def watch(self, role: str, pid: int) -> None:
        """Also sample this process and its descendants."""
        self._roots = {**self._roots, pid: role}

    def latest(self, *, detailed: bool) -> list[Sample]:
        """The last sample, or the last detailed one, of each process, ended ones too: their CPU still counts."""
        return list(self._latest[detailed].values())

    def start(self) -> None:
        """Begin sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Take a last look, so that the samples reach up to here; the file is complete when this returns."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._file.open("ab") as out:
                due = time.monotonic()
                stopping = False
                while not stopping:
                    stopping = self._stop.wait(max(0.0, due - time.monotonic()))
                    for sample in self._look():
                        out.write(msgspec.json.encode(sample) + b"\n")
                    out.flush()
                    due += INTERVAL_S * max(1, math.ceil((time.monotonic() - due) / INTERVAL_S))
        except OSError as error:  # a full disk ends the sampling; the run says so
            self.failure = error

    def _look(self) -> list[Sample]:
        found: list[Sample] = []
        for pid, role in self._roots.items():
            if self._looks % _CHILDREN_EVERY == 0:
                self._children[pid] = self._reader.children(pid) if role != "rig" else []
            detailed = role == "host" and self._looks % _DETAILED_EVERY == 0
            for member in (pid, *self._children.get(pid, ())):
                reading = self._reader.read(member, detailed=detailed)
                if reading is not None:
                    found.append(Sample(time.monotonic_ns(), self._looks, role, member, reading))
                    # A new dict: another thread may be reading the one that was.
                    self._latest = {
                        kind: {**seen, member: found[-1]} if detailed or not kind else seen
                        for kind, seen in self._latest.items()
                    }
        self._looks += 1
        return found


@contextmanager
def sampling(file: Path, roots: Mapping[str, int]) -> Iterator[Sampler]:
    """Look at these processes, by role, while a load goes on; whoever starts its generators adds them.

    Raises OSError where the looks could not be kept.
    """
    sampler = Sampler(file)
    for role, pid in roots.items():
        sampler.watch(role, pid)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()
    if sampler.failure is not None:
        raise sampler.failure
