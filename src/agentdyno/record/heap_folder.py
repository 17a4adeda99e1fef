"""`heap/` in a run folder: the snapshots of a profile run, their index, and which of them covers a moment."""

from __future__ import annotations

import bisect
from pathlib import Path

import msgspec

from agentdyno.contract.errors import UserError
from agentdyno.contract.pprof import PprofError, Profile, read_gzip

HEAP_FOLDER = "heap"
INDEX = "snapshots.json"
DIFFERENCE_PAGE = "difference.html"


class HeapFolderError(UserError):
    """A heap folder that cannot be read; the text names the file."""


class Snapshot(msgspec.Struct, frozen=True):
    """One profile. seconds: since the first. monotonic_ns: when it was asked for, on the machine's monotonic clock."""

    file: str
    seconds: float
    monotonic_ns: int

    @property
    def page(self) -> str:
        """The name of its flame-graph page."""
        return self.file.removesuffix(".pb.gz") + ".html"


class Gap(msgspec.Struct, frozen=True):
    """A snapshot that could not be had, and why."""

    monotonic_ns: int
    reason: str


class HeapIndex(msgspec.Struct):
    """`heap/snapshots.json`: what there is, in the order of time."""

    interval_s: float
    sample_bytes: int
    snapshots: list[Snapshot] = []
    gaps: list[Gap] = []


class Interval(msgspec.Struct, frozen=True):
    """The snapshots around a moment. before, after: None where the moment is outside of the first or the last.

    page: the flame graph that shows the heap as it was next after the moment, or last before it.
    """

    before: Snapshot | None
    after: Snapshot | None
    page: str


def read_index(run: Path) -> HeapIndex | None:
    """The index of a run folder; None for a run without heap profiles. Raises HeapFolderError."""
    file = run / HEAP_FOLDER / INDEX
    if not file.exists():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=HeapIndex)
    except (OSError, msgspec.MsgspecError) as error:
        raise HeapFolderError(f"{file} cannot be read: {error}.") from error


def read_profile(run: Path, snapshot: Snapshot) -> Profile:
    """Raises HeapFolderError."""
    file = run / HEAP_FOLDER / snapshot.file
    try:
        return read_gzip(file.read_bytes())
    except (OSError, PprofError) as error:
        raise HeapFolderError(f"{file} cannot be read: {error}") from error


def covering(index: HeapIndex, monotonic_ns: int) -> Interval | None:
    """Which snapshots stand around a moment, for a trace that began then; None when there are no snapshots."""
    snapshots = index.snapshots
    if not snapshots:
        return None
    at = bisect.bisect_left([snapshot.monotonic_ns for snapshot in snapshots], monotonic_ns)
    before = snapshots[at - 1] if at else None
    after = snapshots[at] if at < len(snapshots) else None
    return Interval(before, after, (after or snapshots[-1]).page)
