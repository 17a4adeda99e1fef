"""The probes in the host process: every collection, every deadline of the loop, and never more memory than stated."""

import asyncio
import gc
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest

from agentdyno.host import probes as probes_module
from agentdyno.host.probes import ProbeReport, Probes
from agentdyno.host.trace import now_ns


@pytest.fixture
def quiet_gc():
    """Collections only where the test asks for them."""
    gc.disable()
    yield
    gc.enable()


async def test_each_collection_is_recorded_with_its_generation(quiet_gc):
    probes = Probes()
    probes.start()
    before_ns = now_ns()
    for generation in (0, 1, 2, 2):
        gc.collect(generation)
    after_ns = now_ns()
    probes.stop()
    events = probes.report().gc
    assert [generation for _, _, generation, _ in events] == [0, 1, 2, 2]
    for start_ns, pause_ns, _, _ in events:
        assert before_ns <= start_ns <= start_ns + pause_ns <= after_ns
    starts = [start_ns for start_ns, *_ in events]
    assert starts == sorted(starts)


async def test_what_a_collection_freed_is_counted(quiet_gc):
    gc.collect()
    probes = Probes()
    probes.start()
    for _ in range(50):
        cycle: list[object] = []
        cycle.append(cycle)
    del cycle
    gc.collect()
    probes.stop()
    ((_, _, _, collected),) = probes.report().gc
    assert collected >= 50


async def test_stop_really_ends_both_probes(quiet_gc):
    before = list(gc.callbacks)
    probes = Probes()
    probes.start()
    assert len(gc.callbacks) == len(before) + 1
    probes.stop()
    await asyncio.sleep(0)
    assert gc.callbacks == before
    gc.collect()
    assert probes.report().gc == []
    seen = len(probes.report().loop)
    await asyncio.sleep(3 * probes_module.LOOP_PROBE_INTERVAL_S)
    assert len(probes.report().loop) == seen


async def test_stop_leaves_another_probe_of_the_process_alone(quiet_gc):
    first, second = Probes(), Probes()
    first.start()
    second.start()
    first.stop()
    gc.collect()
    second.stop()
    assert len(first.report().gc) == 0
    assert len(second.report().gc) == 1


class Clock:
    """Virtual time, and a loop whose timers are called when it has jumped there; a stall is given for the n-th."""

    def __init__(self, monkeypatch, stalls_ns: dict[int, int] | None = None) -> None:
        self.now_ns = 1_000_000
        self._stalls_ns = stalls_ns or {}
        monkeypatch.setattr(probes_module, "asyncio", SimpleNamespace(get_running_loop=lambda: self))
        monkeypatch.setattr(probes_module, "now_ns", lambda: self.now_ns)

    def call_later(self, seconds: float, call, *arguments) -> SimpleNamespace:
        self._next = (seconds, call, arguments)
        return SimpleNamespace(cancel=lambda: None)

    def run(self, timers: int) -> None:
        for number in range(timers):
            seconds, call, arguments = self._next
            self.now_ns += round(seconds * 1e9) + self._stalls_ns.get(number, 0)
            call(*arguments)


MS = 1_000_000


def test_every_deadline_that_a_stall_swallowed_counts_with_the_lag_it_suffered(monkeypatch):
    clock = Clock(monkeypatch, {1: 220 * MS})
    probes = Probes()
    probes.start()
    clock.run(3)
    probes.stop()
    monkeypatch.setattr(probes, "tasks", lambda: None)
    events = probes.report().loop
    deadlines = [deadline for deadline, _ in events]
    assert deadlines == [1 * MS + 50 * MS * n for n in range(1, 8)]
    assert [lag / MS for _, lag in events] == [0, 220, 170, 120, 70, 20, 0]


async def test_a_loop_that_is_really_blocked_misses_deadlines(monkeypatch):
    monkeypatch.setattr(probes_module, "LOOP_PROBE_INTERVAL_S", 0.001)
    probes = Probes()
    probes.start()
    await asyncio.sleep(0)
    begin_ns = now_ns()
    while now_ns() < begin_ns + 20 * MS:
        pass
    blocked_until_ns = now_ns()
    await asyncio.sleep(0.05)
    probes.stop()
    deadlines = [deadline for deadline, _ in probes.report().loop]
    assert {b - a for a, b in pairwise(deadlines)} == {1 * MS}
    swallowed = [(d, lag) for d, lag in probes.report().loop if begin_ns <= d < blocked_until_ns]
    assert len(swallowed) >= 15
    assert all(deadline + lag >= blocked_until_ns for deadline, lag in swallowed)


async def test_memory_is_bounded_and_what_was_thrown_away_is_counted(monkeypatch, quiet_gc):
    monkeypatch.setattr(probes_module, "_KEPT", 100)
    probes = Probes()
    probes.start()
    for _ in range(1000):
        gc.collect(0)
        assert len(probes.report().gc) < 100
    probes.stop()
    report = probes.report()
    assert len(report.gc) + report.lost == 1000
    # The newest are the ones that stay.
    probes.start()
    gc.collect(2)
    probes.stop()
    assert probes.report().gc[-1][2] == 2


def test_the_loop_probe_is_bounded_too(monkeypatch):
    monkeypatch.setattr(probes_module, "_KEPT", 100)
    clock = Clock(monkeypatch)
    probes = Probes()
    probes.start()
    clock.run(1000)
    probes.stop()
    monkeypatch.setattr(probes, "tasks", lambda: None)
    report = probes.report()
    assert len(report.loop) < 100
    assert len(report.loop) + report.lost == 1000
    assert report.loop[-1][0] == 1 * MS + 50 * MS * 1000


async def test_collections_that_making_a_report_starts_do_not_shift_what_is_being_read(quiet_gc):
    probes = Probes()
    probes.start()
    for _ in range(1000):
        gc.collect(0)
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    gc.enable()
    report = probes.report()
    gc.disable()
    gc.set_threshold(*thresholds)
    probes.stop()
    assert 1000 <= len(report.gc) <= 1010
    assert len(probes.report().gc) > 1010


async def test_a_report_survives_its_json():
    probes = Probes()
    probes.start()
    gc.collect()
    probes.stop()
    assert msgspec.json.decode(msgspec.json.encode(probes.report()), type=ProbeReport) == probes.report()
