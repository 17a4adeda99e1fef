"""Who runs where, on machines with one core, with more, and where nothing can be pinned."""

import os
from collections.abc import Iterator

import pytest

from agentdyno.record import calibration
from agentdyno.record.manifest import given_cores, machine_facts
from agentdyno.rig.cores import CorePlan, calibrate, plan, stay_on


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    given_cores.cache_clear()
    yield
    given_cores.cache_clear()


@pytest.mark.parametrize(
    ("usable", "host", "rest"),
    [
        ({0}, None, None),
        ({5}, None, None),
        ({0, 1}, {1}, {0}),
        ({2, 7, 4}, {7}, {2, 4}),
        (set(range(64)), {63}, set(range(63))),
    ],
)
def test_the_host_gets_the_last_core_and_shares_it_with_nobody(
    monkeypatch: pytest.MonkeyPatch, usable: set[int], host: set[int] | None, rest: set[int] | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable, raising=False)
    found = plan()
    assert found == CorePlan(frozenset(host) if host else None, frozenset(rest) if rest else None)
    assert found.pinned == (host is not None)


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="there is one core to plan with"
)
def test_the_second_run_of_a_process_is_pinned_like_the_first() -> None:
    before = os.sched_getaffinity(0)
    first = plan()
    try:
        stay_on(first.rest)
        assert plan() == first
        assert first.pinned
        assert machine_facts().cores_usable == len(before)
    finally:
        os.sched_setaffinity(0, before)


def test_a_platform_that_cannot_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert plan() == CorePlan(None, None)
    assert calibrate(None).median_ms > 0


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this platform cannot pin a process to a core")
def test_calibration_runs_on_the_core_and_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    core = frozenset([max(before)])
    seen = []
    timed = calibration._timed
    monkeypatch.setattr(calibration, "_timed", lambda: seen.append(os.sched_getaffinity(0)) or timed())
    found = calibrate(core)
    assert {frozenset(where) for where in seen} == {core}
    assert os.sched_getaffinity(0) == before
    assert 0 < found.min_ms <= found.median_ms <= found.max_ms
    assert found.spread == pytest.approx((found.max_ms - found.min_ms) / found.median_ms)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this platform cannot pin a process to a core")
def test_calibration_goes_back_also_when_it_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)

    def broken() -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "_timed", broken)
    with pytest.raises(KeyboardInterrupt):
        calibrate(frozenset([max(before)]))
    assert os.sched_getaffinity(0) == before
