"""A program that goes on until the user ends it, together with whatever it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_END_S = 30.0  # containers are given ten seconds
_LOOK_S = 0.1


class _Asked:
    """Whether one of the signals has come, which is handed on to the program's processes as Ctrl-C.

    As a terminal does it, to all of them: some compose programs heed SIGINT alone, and what was started is often only
    what starts these. Once, for a second one cuts their ending short: a closed terminal's shell and make repeat what
    the processes have been sent already, but a second Ctrl-C is the user's own.
    """

    def __init__(self) -> None:
        self.asked = False
        self._group: int | None = None

    def hand_on_to(self, group: int) -> None:
        """From now on; also what came before."""
        self._group = group
        if self.asked:
            interrupt(group)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        again, self.asked = self.asked, True
        if self._group is not None and (number == signal.SIGINT or not again):
            interrupt(self._group)


def until_ended(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int | None:
    """Run it, in a session of its own, until it ends by itself; returns its exit code then.

    None when Ctrl-C, SIGTERM or a terminal that was closed has ended it. What it has started has then ended too, or
    half a minute has passed, which is said. Raises OSError when it cannot be started.
    """
    with _taking_signals() as taken:
        child = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
        taken.hand_on_to(child.pid)
        code = child.wait()
        if not taken.asked:
            interrupt(child.pid)  # what it may have left behind
        if not _gone_within(child.pid, _END_S):
            said = f"Processes that {Path(command[0]).name} has started are still there (process group {child.pid})."
            sys.stderr.write(f"agentdyno: {said}\n")
    return None if taken.asked else code


def interrupt(group: int) -> None:
    """Ctrl-C for a whole process group; nothing happens when it is gone."""
    with suppress(ProcessLookupError, PermissionError):  # on macOS one that is not yet reaped is forbidden
        os.killpg(group, signal.SIGINT)


@contextmanager
def _taking_signals() -> Iterator[_Asked]:
    taken = _Asked()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        # What is ignored stays so (nohup, a script's background), but not for the program, which would inherit it.
        signal.signal(number, _ignore if handler is signal.SIG_IGN else taken.on_signal)
    try:
        yield taken
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def _gone_within(group: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except OSError:
            return True
        time.sleep(_LOOK_S)
    return False
