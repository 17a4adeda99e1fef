"""Probes inside the host process: garbage-collection pauses and event-loop lag."""

from __future__ import annotations

import asyncio
import gc
from array import array
from typing import Any

import msgspec

from agentdyno.emit.exposition import Buckets
from agentdyno.emit.sender import Sender
from agentdyno.host.trace import now_ns

LOOP_PROBE_INTERVAL_S = 0.05
_KEPT = 100_000  # events; beyond it the oldest half goes and `lost` counts it
# Both about 2 x apart: a young collection takes microseconds, a full one of a large heap a second.
GC_BOUNDS_S = (
    *(5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3),
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
)
LAG_BOUNDS_S = (*(1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5), 1.0, 2.5, 5.0, 10.0)
_GENERATIONS = 3
_GC_FIELDS = 4
_LOOP_FIELDS = 2


class ProbeReport(msgspec.Struct, frozen=True):
    """Everything the probes saw since the start.

    gc: (start_ns on the monotonic clock, pause in ns, generation, objects collected).
    loop: (deadline_ns, lag_ns): how late the event loop ran a timer that was due at the deadline.
    lost: events that were thrown away because there were too many. spans_recorded, spans_dropped: records of
    requests made for the recorder, and those of them that were thrown away; None when the host is not traced.
    tasks: asyncio's tasks that are not done, now.
    """

    gc: list[tuple[int, int, int, int]]
    loop: list[tuple[int, int]]
    lost: int
    spans_recorded: int | None = None
    spans_dropped: int | None = None
    tasks: int | None = None


class Probes:
    """Registers a GC callback and runs the loop probe. Costs about 2 us a collection and 20 timers a second."""

    def __init__(self) -> None:
        # Flat arrays of 64-bit integers: the probe must not be what grows in the process it watches.
        self._gc = array("q")
        self._loop = array("q")
        self.gc_pauses = [Buckets(GC_BOUNDS_S) for _ in range(_GENERATIONS)]
        self.loop_lags = Buckets(LAG_BOUNDS_S)
        self._gc_start_ns = 0
        self._lost = 0
        self._loop_of: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._interval_ns = round(LOOP_PROBE_INTERVAL_S * 1e9)
        self._deadline_ns = 0

    def start(self) -> None:
        """Begin; call on the running loop."""
        gc.callbacks.append(self._on_gc)
        self._loop_of = asyncio.get_running_loop()
        self._deadline_ns = now_ns() + self._interval_ns
        self._wait(self._loop_of)

    def stop(self) -> None:
        """End; what was seen stays readable."""
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)
        if self._timer is not None:
            self._timer.cancel()

    def report(self, spans: Sender | None = None) -> ProbeReport:
        """What was seen so far; spans: whose ledger to add."""
        # Of copies: making the tuples can itself start a collection, whose event must not shift what is being read.
        gc_events = list(zip(*[iter(self._gc[:])] * _GC_FIELDS, strict=True))
        loop_events = list(zip(*[iter(self._loop[:])] * _LOOP_FIELDS, strict=True))
        recorded, dropped = (None, None) if spans is None else (spans.recorded, spans.dropped)
        return ProbeReport(gc_events, loop_events, self._lost, recorded, dropped, self.tasks())

    def tasks(self) -> int | None:
        """How many of asyncio's tasks are not done; None before the start. Call on the loop's own thread."""
        return None if self._loop_of is None else len(asyncio.all_tasks(self._loop_of))

    def _on_gc(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._gc_start_ns = now_ns()
            return
        begin = self._gc_start_ns
        pause_ns = now_ns() - begin
        self._gc.extend((begin, pause_ns, info["generation"], info["collected"]))
        self.gc_pauses[info["generation"]].add(pause_ns)
        self._lost += _trim(self._gc, _GC_FIELDS)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        # A bare timer: a task that sleeps costs a fifth more, which is seen in the CPU per request.
        self._timer = loop.call_later((self._deadline_ns - now_ns()) / 1e9, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        now = now_ns()
        while self._deadline_ns <= now:
            late_ns = now - self._deadline_ns
            self._loop.extend((self._deadline_ns, late_ns))
            self.loop_lags.add(late_ns)
            # Absolute deadlines: those that a stall swallowed each count, with the lag they suffered.
            self._deadline_ns += self._interval_ns
            now = now_ns()
        self._lost += _trim(self._loop, _LOOP_FIELDS)
        self._wait(loop)


def _trim(events: array[int], fields: int) -> int:
    if len(events) < _KEPT * fields:
        return 0
    del events[: _KEPT // 2 * fields]
    return _KEPT // 2
