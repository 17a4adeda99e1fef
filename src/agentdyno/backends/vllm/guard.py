"""Runs vLLM so that its end is sure, and leaves no shared memory: `python -m agentdyno.backends.vllm.guard COMMAND...`.

vLLM loses a SIGTERM that comes while it starts, and would then outlive the rig. And shared memory outlives processes
that are killed, unless the one that keeps the list of it, Python's resource tracker, is left to remove it: it does so
when all others have gone. So whoever wants vLLM to end asks the guard, by SIGTERM: the rig, or the kernel when the rig
is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

ASK_AGAIN_S = 2.5
KILL_S = 5.0
TIDY_S = 2.0
GRACE_S = 12.0  # whoever asked it waits so long: killed sooner, the guard and the tracker leave what they would remove
_POLL_S = 0.05
_TRACKER = b"multiprocessing.resource_tracker"


def main(command: list[str]) -> int:
    """Run the command until it ends, or until it is asked to; returns its exit code, negative for a signal."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, ask)
    parent = os.getppid()
    server = subprocess.Popen(command)
    while not asked and server.poll() is None:
        time.sleep(_POLL_S)
    if asked:
        # The rig asks the whole session at once; the kernel, when the rig is gone, the guard alone.
        end(server, told=os.getppid() == parent)
    _kill(others)
    _until(TIDY_S, lambda: not any(members()))
    _kill(members)
    return server.wait()


def end(server: subprocess.Popen[bytes], *, told: bool) -> None:
    """Ask it to end, and again, and then no more. told: it has been asked already."""
    if not told:
        server.terminate()
    if not _until(ASK_AGAIN_S, lambda: server.poll() is not None):
        server.terminate()
        _until(KILL_S - ASK_AGAIN_S, lambda: server.poll() is not None)


def others() -> Iterator[int]:
    """What is in this session beside the guard and resource trackers."""
    for pid in members():
        with suppress(OSError):  # it has gone meanwhile
            if _TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid


def members() -> Iterator[int]:
    """What runs in this session beside the guard; what has ended and waits to be noticed does not run."""
    session = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if os.getsid(int(entry.name)) == session and state not in (b"Z", b"X"):
                    yield int(entry.name)


def _kill(found: Callable[[], Iterator[int]]) -> None:
    """All of them, and what they start meanwhile."""
    deadline = time.monotonic() + TIDY_S
    while (pids := list(found())) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _until(seconds: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code < 0:  # ended as the server ended, so that whoever waits can say how
        with suppress(OSError):  # SIGKILL needs no leave
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
