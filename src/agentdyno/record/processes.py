"""Reading one process from outside: memory, CPU and scheduling, from /proc or, elsewhere, through psutil.

What cannot be read is None, never 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import psutil

from agentdyno.record.cpu_clock import cpu_ns

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_KIB = 1024
_ENDED = frozenset("ZX")
_FIGURES = {
    "status": "RSS, its peak, VSZ and context switches",
    "smaps_rollup": "PSS, USS and private dirty",
    "schedstat": "The run-queue wait",
    "fd": "The number of open files and sockets",
}
_T = TypeVar("_T")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one process. CPU, waits, switches and faults are totals since its start.

    cpu_s: user and system together, by the kernel's own sum to the nanosecond; the two apart are in ticks of 10 ms.
    The run-queue wait and the switches are the main thread's alone, where the event loop runs: the kernel keeps no
    sum over threads. All else is the whole process's.
    """

    rss_bytes: int | None = None
    rss_peak_bytes: int | None = None
    vsz_bytes: int | None = None
    pss_bytes: int | None = None
    uss_bytes: int | None = None
    private_dirty_bytes: int | None = None
    cpu_s: float | None = None
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    run_queue_wait_s: float | None = None
    switches_voluntary: int | None = None
    switches_involuntary: int | None = None
    threads: int | None = None
    open_files: int | None = None
    faults_minor: int | None = None
    faults_major: int | None = None


class Reader(Protocol):
    """Reads processes by pid."""

    def read(self, pid: int, *, detailed: bool) -> Reading | None:
        """None when the process is gone, or has ended and only waits for its parent to take note.

        detailed: also PSS, USS and private dirty, which cost milliseconds.
        """

    def children(self, pid: int) -> list[int]:
        """All descendants that are alive."""

    def gaps(self, pid: int) -> list[str]:
        """What cannot be read of this process, though it is there, and why; a sentence each."""


class ProcReader:
    """Linux: straight from /proc, about 0.1 ms a process (5 ms with `detailed`)."""

    def __init__(self, root: Path = Path("/proc"), cpu_clock: Callable[[int], int] = cpu_ns) -> None:
        self._root = root
        self._cpu_clock = cpu_clock

    def read(self, pid: int, *, detailed: bool) -> Reading | None:
        """See Reader.read."""
        base = self._root / str(pid)
        stat = _text(base / "stat")
        if stat is None:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
        if fields[0] in _ENDED:
            return None
        status = _key_values(_text(base / "status"))
        rollup = _key_values(_text(base / "smaps_rollup")) if detailed else {}
        schedstat = (_text(base / "schedstat") or "").split()
        private = [_kib(rollup, key) for key in ("Private_Clean", "Private_Dirty")]
        return Reading(
            rss_bytes=_kib(status, "VmRSS"),
            rss_peak_bytes=_kib(status, "VmHWM"),
            vsz_bytes=_kib(status, "VmSize"),
            pss_bytes=_kib(rollup, "Pss"),
            uss_bytes=None if None in private else sum(part or 0 for part in private),
            private_dirty_bytes=_kib(rollup, "Private_Dirty"),
            cpu_s=self._cpu_s(pid),
            cpu_user_s=int(fields[11]) / _TICKS_PER_S,
            cpu_system_s=int(fields[12]) / _TICKS_PER_S,
            run_queue_wait_s=int(schedstat[1]) / 1e9 if len(schedstat) == 3 else None,
            switches_voluntary=_integer(status, "voluntary_ctxt_switches"),
            switches_involuntary=_integer(status, "nonvoluntary_ctxt_switches"),
            threads=int(fields[17]),
            open_files=_count(base / "fd"),
            faults_minor=int(fields[7]),
            faults_major=int(fields[9]),
        )

    def _cpu_s(self, pid: int) -> float | None:
        try:
            return self._cpu_clock(pid) / 1e9
        except OSError:  # gone meanwhile, or a kernel that keeps it from us: the ticks are there
            return None

    def children(self, pid: int) -> list[int]:
        """See Reader.children."""
        children_of: Callable[[int], list[int]] = self._children_listed
        if not (self._root / str(pid) / "task" / str(pid) / "children").exists():
            children_of = self._children_by_parent()  # the kernel, or the sandbox, was built without the lists
        found: list[int] = []
        waiting = [pid]
        while waiting:
            children = children_of(waiting.pop())
            found += children
            waiting += children
        return found

    def gaps(self, pid: int) -> list[str]:
        """See Reader.gaps."""
        base = self._root / str(pid)
        found = []
        for name, figures in _FIGURES.items():
            try:
                os.listdir(base / name) if name == "fd" else (base / name).read_bytes()  # noqa: PTH208
            except OSError as error:
                found.append(f"{figures} of process {pid} cannot be read: {base / name}: {error.strerror}.")
        return found if _text(base / "stat") is not None else []

    def _children_listed(self, pid: int) -> list[int]:
        tasks = _entries(self._root / str(pid) / "task")
        return [int(child) for task in tasks for child in (_text(task / "children") or "").split()]

    def _children_by_parent(self) -> Callable[[int], list[int]]:
        """The same from every process's own word on its parent."""
        children: dict[int, list[int]] = {}
        for entry in _entries(self._root):
            stat = _text(entry / "stat") if entry.name.isdecimal() else None
            if stat is not None:
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
        return lambda pid: children.get(pid, [])


class PsutilReader:
    """Anywhere else: what psutil can read and the system allows, None for the rest."""

    def read(self, pid: int, *, detailed: bool) -> Reading | None:
        """See Reader.read."""
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                memory = _allowed(process.memory_info)
                cpu = _allowed(process.cpu_times)
                switches = _allowed(process.num_ctx_switches)
                threads = _allowed(process.num_threads)
                status = _allowed(process.status)
            full = _allowed(process.memory_full_info) if detailed else None
        except psutil.NoSuchProcess:  # or a zombie: on some platforms psutil counts them among these
            return None
        if status == psutil.STATUS_ZOMBIE:  # on the others it has a memory of 0 bytes
            return None
        return Reading(
            rss_bytes=None if memory is None else memory.rss,
            vsz_bytes=None if memory is None else memory.vms,
            uss_bytes=getattr(full, "uss", None),
            cpu_user_s=None if cpu is None else cpu.user,
            cpu_system_s=None if cpu is None else cpu.system,
            switches_voluntary=None if switches is None else switches.voluntary,
            switches_involuntary=None if switches is None else switches.involuntary,
            threads=threads,
        )

    def children(self, pid: int) -> list[int]:
        """See Reader.children."""
        try:
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []

    def gaps(self, pid: int) -> list[str]:
        """Of the platform, not of a process: see Reading."""
        return []


def _allowed(read: Callable[[], _T]) -> _T | None:
    """What `read` gives; None when this user may not see it."""
    try:
        return read()
    except psutil.AccessDenied:
        return None


def default_reader() -> Reader:
    """The best reader for this platform."""
    return ProcReader() if sys.platform == "linux" else PsutilReader()


def _text(file: Path) -> str | None:
    try:
        # A process's name is bytes of no known encoding, and none of ours is looked at.
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:  # gone, another user's, or not built into this kernel: a gap
        return None


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _count(folder: Path) -> int | None:
    try:
        return len(os.listdir(folder))  # noqa: PTH208 - a count, no paths needed
    except OSError:
        return None


def _key_values(text: str | None) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in (text or "").split("\n") if ":" in line)
    return {key: value.strip() for key, value in pairs}


def _kib(values: dict[str, str], key: str) -> int | None:
    value = values.get(key)
    return int(value.split()[0]) * _KIB if value else None


def _integer(values: dict[str, str], key: str) -> int | None:
    value = values.get(key)
    return int(value) if value else None
