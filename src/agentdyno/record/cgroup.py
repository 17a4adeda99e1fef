"""The control group that a process runs in: its limits, what it holds, and how often it was throttled.

Version 2 has one tree for all. Version 1 has one for each controller, with other names and units for the same; where
both are mounted and version 2 has no controllers, it is version 1 that limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = "max"
_NO_LIMIT_V1_BYTES = 1 << 62  # it says the largest multiple of a page that its counter can hold


class Cgroup(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel says of the group; None where it does not say, and for a limit where there is none.

    cpu_limit_cores: CPU time a period over the period. throttled_periods of periods: how often it had used it up;
    throttled_s: how long it then waited. memory_peak_bytes: the most that it has held since it was made.
    memory_max_events, oom_kills: how often it met its memory limit, and died of it. Counts are totals of the group, or
    what came to them in between, where an earlier reading was given.
    """

    cpu_limit_cores: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_s: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_max_events: int | None = None
    oom_kills: int | None = None


_COUNTS = ("periods", "throttled_periods", "throttled_s", "memory_max_events", "oom_kills")


def read_cgroup(pid: int, since: Cgroup | None = None, proc: Path = _PROC, root: Path = _CGROUPS) -> Cgroup | None:
    """Read it now; None where there is no group that could limit. since: an earlier reading, to count from.

    A limit may be set anywhere above; the narrowest counts.
    """
    paths = _paths(pid, proc)
    folder = _below(root, paths.get(""))
    if folder is not None and (folder / "cgroup.controllers").exists():
        return _counted(_read_v2(folder, root), since)
    cpu, memory = _folder_v1("cpu", paths, root), _folder_v1("memory", paths, root)
    return _counted(_read_v1(cpu, memory, root), since)


def read_container_cgroup(pid: int, since: Cgroup | None = None, proc: Path = _PROC) -> Cgroup | None:
    """As read_cgroup, of a process in another container: in its view of the file system its group is the root.

    None also where this process may not look into that one's file system: it must be of the same user.
    """
    root = proc / str(pid) / "root" / _CGROUPS.relative_to("/")
    try:
        if (root / "cgroup.controllers").exists():
            return _counted(_read_v2(root, root), since)
        cpu, memory = (root / name if (root / name).is_dir() else None for name in ("cpu", "memory"))
    except PermissionError:
        return None
    return _counted(_read_v1(cpu, memory, root), since)


def grown(since: Cgroup, now: Cgroup) -> Cgroup:
    """`now` with what came to its counts since an earlier reading."""
    return msgspec.structs.replace(now, **_between(since, now))


def grown_through(readings: Sequence[Cgroup]) -> Cgroup:
    """The last of these with what came to its counts through all of them, and the highest peak.

    A count that falls is another group's: of a container that was started anew, whose counts began at 0.
    """
    sums: dict[str, float | None] = {}
    for name in _COUNTS:
        values = [getattr(reading, name) for reading in readings]
        pairs = None if None in values else pairwise(values)
        sums[name] = None if pairs is None else sum(now - was if now >= was else now for was, now in pairs)
    peaks = [reading.memory_peak_bytes for reading in readings if reading.memory_peak_bytes is not None]
    return msgspec.structs.replace(readings[-1], **sums, memory_peak_bytes=max(peaks, default=None))


def _counted(found: Cgroup | None, since: Cgroup | None) -> Cgroup | None:
    return found if found is None or since is None else grown(since, found)


def _between(since: Cgroup, now: Cgroup) -> Mapping[str, float | None]:
    pairs = {name: (getattr(since, name), getattr(now, name)) for name in _COUNTS}
    return {name: None if None in (was, is_) else is_ - was for name, (was, is_) in pairs.items()}


# where


def _paths(pid: int, proc: Path) -> dict[str, str]:
    """The group's path by its controllers, as /proc/PID/cgroup joins them; by "" that of version 2."""
    lines = [line.split(":", 2) for line in _text(proc / str(pid) / "cgroup").splitlines()]
    return {line[1]: line[2] for line in lines if len(line) == 3}


def _below(root: Path, path: str | None) -> Path | None:
    return root / path[1:] if path is not None and path.startswith("/") else None


def _folder_v1(controller: str, paths: Mapping[str, str], root: Path) -> Path | None:
    """Of one controller; where it is mounted without what is above our own container, that mount's root."""
    for names, path in paths.items():
        if controller in names.split(","):
            for mount in (root / names, root / controller):
                if mount.is_dir():
                    folder = _below(mount, path)
                    return folder if folder is not None and folder.is_dir() else mount
    return None


def _upwards(folder: Path | None, root: Path) -> list[Path]:
    """The folder and those above it, the mount's root included."""
    return [] if folder is None else [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


# what


def _read_v2(folder: Path, root: Path) -> Cgroup:
    above = _upwards(folder, root)
    cpu, events = _pairs(folder / "cpu.stat"), _pairs(folder / "memory.events")
    return Cgroup(
        cpu_limit_cores=_least(_cpu_limit(each) for each in above),
        periods=cpu.get("nr_periods"),
        throttled_periods=cpu.get("nr_throttled"),
        throttled_s=_over(cpu.get("throttled_usec"), 1e6),
        memory_bytes=_number(folder / "memory.current"),
        memory_peak_bytes=_number(folder / "memory.peak"),
        memory_limit_bytes=_least(_number(each / "memory.max") for each in above),
        memory_max_events=events.get("max"),
        oom_kills=events.get("oom_kill"),
    )


def _read_v1(cpu: Path | None, memory: Path | None, root: Path) -> Cgroup | None:
    if cpu is None and memory is None:
        return None
    nowhere = root / "no such controller"
    stat = _pairs((cpu or nowhere) / "cpu.stat")
    held = memory or nowhere
    return Cgroup(
        cpu_limit_cores=_least(_cpu_limit_v1(each) for each in _upwards(cpu, root)),
        periods=stat.get("nr_periods"),
        throttled_periods=stat.get("nr_throttled"),
        throttled_s=_over(stat.get("throttled_time"), 1e9),
        memory_bytes=_number(held / "memory.usage_in_bytes"),
        memory_peak_bytes=_number(held / "memory.max_usage_in_bytes"),
        memory_limit_bytes=_least(_memory_limit_v1(each) for each in _upwards(memory, root)),
        memory_max_events=_failures_v1(held),
        oom_kills=_pairs(held / "memory.oom_control").get("oom_kill"),
    )


def _cpu_limit(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != _NO_LIMIT else None


def _cpu_limit_v1(folder: Path) -> float | None:
    """Its quota is -1 where there is none."""
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us is not None and period_us else None


def _memory_limit_v1(folder: Path) -> int | None:
    limit = _number(folder / "memory.limit_in_bytes")
    return None if limit is None or limit >= _NO_LIMIT_V1_BYTES else limit


def _failures_v1(folder: Path) -> int | None:
    """Of memory, and of memory with swap, whose limit is met first where both are the same, as in a container without
    swap. Newer kernels do not count there, so that a 0 says nothing.
    """
    memory, swap = _number(folder / "memory.failcnt"), _number(folder / "memory.memsw.failcnt")
    same = _memory_limit_v1(folder) is not None and _text(folder / "memory.limit_in_bytes") == _text(
        folder / "memory.memsw.limit_in_bytes"
    )
    if memory is None or (same and not swap):
        return None
    return memory + (swap or 0)


_Limit = TypeVar("_Limit", int, float)


def _least(limits: Iterable[_Limit | None]) -> _Limit | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _over(count: int | None, unit: float) -> float | None:
    return None if count is None else count / unit


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _pairs(file: Path) -> dict[str, int]:
    words = (line.split() for line in _text(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}


def _text(file: Path) -> str:
    """Empty when it cannot be read: not there, or not for us."""
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
