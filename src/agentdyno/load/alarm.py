"""Waiting for a moment on the monotonic clock, inside gevent."""

from __future__ import annotations

import sys
import time
from typing import Protocol

import gevent

from agentdyno.load.timer_descriptor import NS_PER_S, TimerDescriptor


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


class TimerAlarm:
    """A Linux timerfd, set to the absolute moment: tens of microseconds late on a quiet machine."""

    def __init__(self) -> None:
        """Raises OSError where there is no timerfd."""
        self._timer = TimerDescriptor()
        self._hub = gevent.get_hub()
        self._watcher = self._hub.loop.io(self._timer.descriptor, 1)

    def wait_until(self, at_ns: int) -> None:
        """See Alarm."""
        if at_ns <= time.monotonic_ns():
            gevent.sleep(0)
            return
        self._timer.set(at_ns)
        self._hub.wait(self._watcher)
        self._timer.acknowledge()  # when the wait was ended by something else, the follower calls again

    def close(self) -> None:
        """See Alarm."""
        self._watcher.stop()
        self._watcher.close()
        self._timer.close()


def make_alarm() -> Alarm:
    """The best alarm that this system has."""
    if sys.platform == "linux":
        try:
            return TimerAlarm()
        except OSError:
            return SleepAlarm()
    return SleepAlarm()
