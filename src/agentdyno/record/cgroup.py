"""The control group that a process runs in (version 2): its limits, what it holds, and how often it was throttled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = "max"


class Cgroup(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel says of the group; None where it does not say, and for a limit where there is none.

    cpu_limit_cores: CPU time a period over the period. throttled_periods of periods: how often it had used it up;
    throttled_s: how long it then waited. memory_max_events, oom_kills: how often it met its memory limit, and died of
    it. Counts are totals of the group, or what came to them in between, where an earlier reading was given.
    """

    cpu_limit_cores: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_s: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_max_events: int | None = None
    oom_kills: int | None = None


_COUNTS = ("periods", "throttled_periods", "throttled_s", "memory_max_events", "oom_kills")


def read_cgroup(pid: int, since: Cgroup | None = None, proc: Path = _PROC, root: Path = _CGROUPS) -> Cgroup | None:
    """Read it now; None where there is no group of version 2. since: an earlier reading, to count from.

    A limit may be set anywhere above; the narrowest counts.
    """
    folder = _folder(pid, proc, root)
    return None if folder is None else _read(folder, root, since)


def read_container_cgroup(pid: int, since: Cgroup | None = None, proc: Path = _PROC) -> Cgroup | None:
    """As read_cgroup, of a process in another container: in its view of the file system its group is the root.

    None also where this process may not look into that one's file system: it must be of the same user.
    """
    root = proc / str(pid) / "root" / _CGROUPS.relative_to("/")
    try:
        there = (root / "cgroup.controllers").exists()
    except PermissionError:
        there = False
    return _read(root, root, since) if there else None


def _read(folder: Path, root: Path, since: Cgroup | None) -> Cgroup:
    above = [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]
    cpu, events = _pairs(folder / "cpu.stat"), _pairs(folder / "memory.events")
    throttled_us = cpu.get("throttled_usec")
    found = Cgroup(
        cpu_limit_cores=min((limit for each in above if (limit := _cpu_limit(each)) is not None), default=None),
        periods=cpu.get("nr_periods"),
        throttled_periods=cpu.get("nr_throttled"),
        throttled_s=None if throttled_us is None else throttled_us / 1e6,
        memory_bytes=_number(folder / "memory.current"),
        memory_limit_bytes=min((n for each in above if (n := _number(each / "memory.max")) is not None), default=None),
        memory_max_events=events.get("max"),
        oom_kills=events.get("oom_kill"),
    )
    return found if since is None else grown(since, found)


def grown(since: Cgroup, now: Cgroup) -> Cgroup:
    """`now` with what came to its counts since an earlier reading."""
    return msgspec.structs.replace(now, **_between(since, now))


def _folder(pid: int, proc: Path, root: Path) -> Path | None:
    for line in _text(proc / str(pid) / "cgroup").splitlines():
        if line.startswith("0::/"):
            folder = root / line[4:]
            return folder if (folder / "cgroup.controllers").exists() else None
    return None


def _between(since: Cgroup, now: Cgroup) -> Mapping[str, float | None]:
    pairs = {name: (getattr(since, name), getattr(now, name)) for name in _COUNTS}
    return {name: None if None in (was, is_) else is_ - was for name, (was, is_) in pairs.items()}


def _cpu_limit(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != _NO_LIMIT else None


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
