"""A Linux timerfd: a descriptor that becomes readable at a moment of the monotonic clock, for any event loop."""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress

NS_PER_S = 1_000_000_000
_TFD_TIMER_ABSTIME = 1


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: interval and first expiry, each seconds and nanoseconds."""

    _fields_ = [
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    ]


class TimerDescriptor:
    """One timer. The C library is called because Python has os.timerfd_create from 3.13 on only."""

    def __init__(self) -> None:
        """Raises OSError where there is no timerfd."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "timerfd_create"):
            raise OSError("this system has no timerfd")
        self.descriptor: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, at_ns: int) -> None:
        """Become readable at `at_ns` of time.monotonic_ns, at once when that has passed; an earlier setting is gone."""
        spec = _TimerSpec(0, 0, *divmod(max(1, at_ns), NS_PER_S))  # a moment of 0 would switch the timer off
        if self._libc.timerfd_settime(self.descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def acknowledge(self) -> None:
        """Be readable no more; nothing happens when it was not."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 8)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)
