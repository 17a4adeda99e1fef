"""Waiting for a moment on the monotonic clock, inside gevent."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Protocol

import gevent

NS_PER_S = 1_000_000_000


class Alarm(Protocol):
    """Something that can let other greenlets run until a moment."""

    def wait_until(self, at_ns: int) -> None:
        """Return at `at_ns` (of time.monotonic_ns) or soon after. Others run in any case, also when it has passed."""

    def close(self) -> None:
        """Release what it holds."""


class SleepAlarm:
    """gevent.sleep: up to a millisecond late, because libev gives epoll whole milliseconds."""

    def wait_until(self, at_ns: int) -> None:
        """See Alarm."""
        gevent.sleep(max(0, at_ns - time.monotonic_ns()) / NS_PER_S)

    def close(self) -> None:
        """See Alarm."""


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: interval and first expiry, each seconds and nanoseconds."""

    _fields_ = [
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    ]


class TimerAlarm:
    """A Linux timerfd, set to the absolute moment: tens of microseconds late on a quiet machine.

    The C library is called because Python has os.timerfd_create from 3.13 on only.
    """

    _TFD_TIMER_ABSTIME = 1

    def __init__(self) -> None:
        """Raises OSError where there is no timerfd."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "timerfd_create"):
            raise OSError("this system has no timerfd")
        self._descriptor: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._hub = gevent.get_hub()
        self._watcher = self._hub.loop.io(self._descriptor, 1)

    def wait_until(self, at_ns: int) -> None:
        """See Alarm."""
        if at_ns <= time.monotonic_ns():
            gevent.sleep(0)
            return
        spec = _TimerSpec(0, 0, *divmod(at_ns, NS_PER_S))
        if self._libc.timerfd_settime(self._descriptor, self._TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
        self._hub.wait(self._watcher)
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return  # the wait was ended by something else; the follower calls again

    def close(self) -> None:
        """See Alarm."""
        self._watcher.stop()
        self._watcher.close()
        os.close(self._descriptor)


def make_alarm() -> Alarm:
    """The best alarm that this system has."""
    if sys.platform == "linux":
        try:
            return TimerAlarm()
        except OSError:
            return SleepAlarm()
    return SleepAlarm()
