"""The curves by hand: as deep as the samples carry, no peak lost, each request counting once."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.analysis.curves import MEMORY_POINTS, latency_curve, memory_curve, phase_means
from agentdyno.analysis.percentiles import samples_needed
from agentdyno.analysis.summary import summarise
from agentdyno.contract.summary import CriticalPath, PhaseTime, Summary
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample
from tests.golden.run import HOST, MB, MS, T0, GoldenRun


def test_latency_at_round_shares() -> None:
    points = {round(point.x, 6): point.y for point in latency_curve(np.arange(1.0, 10_001.0))}
    assert points[1.0] == 1.0
    assert points[0.1] == 9000.0
    assert points[0.01] == 9900.0
    assert points[0.001] == 9990.0
    assert min(points) > 1 / 10_000


@given(st.integers(0, 5000))
def test_no_deeper_than_the_floor(count: int) -> None:
    points = latency_curve(np.arange(float(count)))
    assert (points == ()) == (count < samples_needed(0.5))
    for point in points:
        if point.x < 0.5:
            assert count >= samples_needed(1 - point.x)


def test_memory_keeps_its_peak_and_sums_the_processes(tmp_path: Path) -> None:
    run = GoldenRun()
    run.samples = [
        Sample(T0 + look * 10 * MS, look, "host", pid, Reading(rss_bytes=(500 if look == 777 else 40) * MB))
        for look in range(1000)
        for pid in (HOST, HOST + 1)
    ]
    points = memory_curve(run.read(tmp_path))
    assert len(points) == MEMORY_POINTS
    assert max(points, key=lambda point: point.y) == points[155]
    assert (points[155].x, points[155].y) == (7.77, 1000.0)
    assert points[0].y == 80.0


def test_no_memory_no_curve(tmp_path: Path) -> None:
    run = GoldenRun()
    run.samples = None
    assert memory_curve(run.read(tmp_path)) == ()
    later = GoldenRun()
    later.manifest.t0_monotonic_ns = None
    assert memory_curve(later.read(tmp_path)) == ()


@pytest.fixture(scope="module")
def untraced(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return summarise(GoldenRun().read(tmp_path_factory.mktemp("run")))


def traced(summary: Summary, requests: int, parse_ms: float, rest_ms: float) -> Summary:
    phases = {name: PhaseTime(mean=rest_ms / 5) for name in summary.phases_ms} | {"parse": PhaseTime(mean=parse_ms)}
    path = CriticalPath(requests=1, of_requests=requests, steps=())
    return msgspec.structs.replace(summary, phases_ms=phases, critical_path=path)


def test_phases_weigh_by_requests(untraced: Summary) -> None:
    found = phase_means([traced(untraced, 100, 1.0, 5.0), traced(untraced, 300, 2.0, 5.0), untraced])
    assert found is not None
    means = {phase.phase: phase.mean_ms for phase in found}
    assert means["parse"] == pytest.approx(1.75)
    assert sum(phase.share for phase in found) == pytest.approx(1.0)
    assert found[0].share == pytest.approx(1.75 / 6.75)


def test_phases_of_nothing(untraced: Summary) -> None:
    assert phase_means([]) is None
    assert phase_means([untraced]) is None
    assert phase_means([traced(untraced, 5, 0.0, 0.0)]) is None
