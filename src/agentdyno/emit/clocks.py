"""One moment on both of a machine's clocks, for times of one to be told by the other."""

from __future__ import annotations

import time

_LOOKS = 16


def both_clocks() -> tuple[int, int]:
    """One moment: ns of time.monotonic_ns, and the Unix time, ns.

    The clocks are read one after the other, and a process that has to wait for its core in between has them apart by
    that: a second, on a busy machine. So of some looks, each between two readings of the monotonic clock, the
    shortest counts; half of what it took is how wrong the pair can be.
    """
    _, monotonic_ns, unix_ns = min(_look() for _ in range(_LOOKS))
    return monotonic_ns, unix_ns


def _look() -> tuple[int, int, int]:
    """How long it took, the middle of it, and the Unix time then; ns."""
    before_ns, unix_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after_ns - before_ns, (before_ns + after_ns) // 2, unix_ns
