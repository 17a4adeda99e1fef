"""Ctrl-C and SIGTERM: noted from the beginning, raised where a run can be stopped, and harmless at its end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from agentdyno.rig.environments.building import say

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """Ctrl-C or SIGTERM reached the rig."""


class Interruption:
    """Takes both signals while it is entered (on the main thread).

    At first one is only noted; from `listen` on it raises Interrupted, once, wherever the main thread is, except
    within `held`; from `end` on it only makes a line on stderr, so that the ending of a run cannot be cut short.
    """

    def __init__(self) -> None:
        self._asked = False
        self._raising = False
        self._ending = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Interruption:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self._asked

    def listen(self) -> None:
        """Raise Interrupted from now on, and at once when a signal came before."""
        self._raising = True
        self.check()

    def check(self) -> None:
        """Raise Interrupted when a signal has come: for loops, should code that swallows exceptions have had it."""
        if self._asked and not self._ending:
            raise Interrupted

    def end(self) -> None:
        """From now on nothing is raised; `asked` still becomes true."""
        self._ending = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done within is done whole; a signal that comes meanwhile is raised after it."""
        raising, self._raising = self._raising, False
        try:
            yield
        finally:
            self._raising = raising
        if raising:
            self.check()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self._asked = not self._asked, True
        if self._ending or not first:
            say("Already ending: the children are being stopped and the folder written.")
        elif self._raising:
            raise Interrupted
