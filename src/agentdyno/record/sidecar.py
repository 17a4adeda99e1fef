"""The resource sampler as a process of its own, in a container beside the measured one.

`python -m agentdyno.record.sidecar --folder DIR --find agentdyno.host` looks for the process that runs that module in
the process namespace that both share, samples it as the rig does in a local run, and reads its control group, until
SIGTERM. A process that takes its place, after a restart of its container, is watched too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import msgspec

from agentdyno.contract.run import ExitCode
from agentdyno.record.cgroup import Cgroup, read_container_cgroup
from agentdyno.record.sampler import Sampler

RESOURCES_FILE, CGROUP_FILE = "resources.jsonl", "cgroup.jsonl"
_CGROUP_EVERY_S = 1.0
_PROC = Path("/proc")


class CgroupReading(msgspec.Struct, frozen=True):
    """The control group of one process of the run at one moment; its counts are totals."""

    monotonic_ns: int
    pid: int
    cgroup: Cgroup


def processes_of(module: str, proc: Path = _PROC) -> list[int]:
    """The processes that were started as `python -m MODULE`, this one excepted."""
    found = []
    for entry in proc.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and _runs(entry, module):
            found.append(int(entry.name))
    return sorted(found)


def watch(folder: Path, module: str, role: str, stop: threading.Event) -> None:
    """Sample into `folder` until `stop` is set. Raises OSError when a file cannot be written."""
    sampler = Sampler(folder / RESOURCES_FILE)
    watched: set[int] = set()
    sampler.start()
    try:
        with (folder / CGROUP_FILE).open("ab") as out:
            while not stop.is_set():
                for pid in processes_of(module):
                    if pid not in watched:
                        watched.add(pid)
                        sampler.watch(role, pid)
                    cgroup = read_container_cgroup(pid)
                    if cgroup is not None:
                        out.write(msgspec.json.encode(CgroupReading(time.monotonic_ns(), pid, cgroup)) + b"\n")
                out.flush()
                stop.wait(_CGROUP_EVERY_S)
    finally:
        sampler.stop()
    if sampler.failure is not None:
        raise sampler.failure


def main(argv: list[str] | None = None) -> int:
    """The sidecar's process."""
    parser = argparse.ArgumentParser(prog="python -m agentdyno.record.sidecar", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help=f"where {RESOURCES_FILE} and {CGROUP_FILE} go")
    parser.add_argument("--find", required=True, metavar="MODULE", help="sample what runs as `python -m MODULE`")
    parser.add_argument("--role", default="host", help="what its samples are filed under (default: %(default)s)")
    options = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        watch(options.folder, options.find, options.role, stop)
    except OSError as error:
        sys.stderr.write(f"The sampler could not go on: {error}.\n")
        return ExitCode.INVALID_RUN
    return ExitCode.VALID


def _runs(entry: Path, module: str) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return False
    name = module.encode()
    return (b"-m", name) in pairwise(words)


if __name__ == "__main__":
    sys.exit(main())
