"""Where a running bench can be watched: the addresses of its metrics, told in its folder while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from agentdyno.record.checksums import RUNS_FOLDER

_NAME = "live.json"
_PLACES = ("*", f"*/{RUNS_FOLDER}/*")


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on. backend: its kind. pid: the rig's. metrics: by role (rig, load, host, backend) the URL of its
    metrics.
    """

    run_id: str
    framework: str
    scenario: str
    backend: str
    pid: int
    metrics: dict[str, str]


def tell(raw: Path, run: LiveRun) -> None:
    """Leave word in the run's `raw/`, which goes when the run ends. Raises OSError."""
    write_whole(raw / _NAME, msgspec.json.encode(run))


def running(folders: Iterable[Path]) -> list[LiveRun]:
    """The runs under these folders whose rig is alive, the newest first.

    folders: of run folders, or of campaigns, whose runs (and searches, each watched as one run) are in `runs/`.
    """
    files = {file for folder in folders for place in _PLACES for file in folder.glob(f"{place}/raw/{_NAME}")}
    found: list[LiveRun] = []
    for file in sorted(files, key=lambda file: file.parts[-3], reverse=True):  # names begin with the time
        try:
            run = msgspec.json.decode(file.read_bytes(), type=LiveRun)
        except FileNotFoundError:  # it has just ended
            continue
        except msgspec.MsgspecError:  # left by another version whose rig was killed
            continue
        if alive(run.pid):
            found.append(run)
    return found


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def write_whole(file: Path, content: bytes) -> None:
    """Write it so that a reader sees all of it or nothing. Raises OSError."""
    partial = file.with_name(file.name + ".partial")
    partial.write_bytes(content)
    partial.replace(file)
