"""The tests for a real cluster (test_e2e.py) on the fake one, as they stand: only the release's place, the framework
and the time between snapshots are others. The fake's Prometheus is asked by the real promtool.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentdyno.rig.environments.environment import ROOT
from tests.cluster import full_memory, own_release, test_e2e
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.limited_cluster import LimitedCluster
from tests.cluster.own_release import OwnRelease
from tests.cluster.test_bench import PLACE
from tests.cluster.test_e2e import (
    test_a_host_at_its_cpu_limit_is_noted_there,
    test_a_host_that_is_killed_at_its_memory_limit_makes_the_run_invalid_there,
    test_a_profiled_run_there_has_the_heap_of_its_host,
    test_a_run_there_is_a_run,
)

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt install prometheus)"
)
__all__ = [
    "test_a_host_at_its_cpu_limit_is_noted_there",
    "test_a_host_that_is_killed_at_its_memory_limit_makes_the_run_invalid_there",
    "test_a_profiled_run_there_has_the_heap_of_its_host",
    "test_a_run_there_is_a_run",
]
CLUSTER = LimitedCluster


@pytest.fixture
def release(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnRelease:
    monkeypatch.setattr(full_memory, "LOOK_S", 0.02)
    monkeypatch.setattr(test_e2e, "INTERVAL", "100ms")
    monkeypatch.setattr(test_e2e, "FRAMEWORK", "bare")  # whose number of LLM calls the fake's answers have
    cluster.looks = 50
    return OwnRelease(PLACE, ROOT / "k8s" / "kind-values.yaml", tmp_path)


def test_none_is_left_out() -> None:
    assert sorted(name for name in vars(test_e2e) if name.startswith("test_")) == __all__


def test_a_check_that_fails_says_what_its_pod_said(cluster: FakeCluster, release: OwnRelease) -> None:
    cluster.helm_fails["test"] = "Error: pod dyno-check failed"
    with pytest.raises(AssertionError, match=r"(?s)pod dyno-check failed.*log of check"):
        release.check()


def test_load_that_stays_is_seen(cluster: FakeCluster, release: OwnRelease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_release, "LEAVING_S", 0.0)
    cluster._pod("load-worker", ["locust"], "node-2")
    with pytest.raises(AssertionError, match="dyno-load-worker-1"):
        release.must_be_without_load()


def test_a_question_that_cannot_be_asked_is_seen(cluster: FakeCluster, release: OwnRelease) -> None:
    cluster._pod("prometheus", ["prometheus"], "node-2")
    with pytest.raises(AssertionError, match="no such series"):
        release.ask("{")
