"""The last step of the ladder: a run on a real cluster, `make cluster-e2e`, of which the same is asserted as of one in
containers (tests/k8s/test_containers.py), by the same words: finished_run.py.

It uses the kubeconfig's context, or $CONTEXT, and a release of its own in the namespace agentdyno-e2e, which stays.
VALUES names a values file; by default that of kind, whose limits are a laptop's. The cluster must have the images rig,
mock, profiler and host-lightagent (`make images`, for kind then `kind load`) and get the others from their registries.

What the step before asserts and no cluster tells: what an image is (its user, its labels, that nothing in it builds; a
node says which one it runs, by a digest of its own), and that the image that ran is the one that was just built, in
place of which the client holds each of its source files and its lock against those here. On nodes whose CPU manager
gives whole cores away there is no CPU limit to be seen, and before Linux 5.19 control groups of version 2 do not tell
the peak of memory: there these tests fail.

Without a cluster test_rehearsal.py takes these tests to the fake one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdyno.cluster.bench import bench, uninstall
from agentdyno.cluster.kube import ApiLost, Kube, KubeError
from agentdyno.cluster.profile import profile
from agentdyno.cluster.release import Place
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.options import Words
from tests.cluster.finished_run import FinishedRun
from tests.cluster.full_memory import LIMIT, Filler
from tests.cluster.own_release import OwnRelease

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("AGENTDYNO_CLUSTER"),
        reason="It installs a release on the kubeconfig's cluster: make cluster-e2e",
    ),
]
FRAMEWORK = "lightagent"
CPU, MEMORY = "1", "512Mi"
INTERVAL = "5s"  # between snapshots of the heap


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    there = Place(f"dyno-e2e-{secrets.token_hex(2)}", "agentdyno-e2e", os.environ.get("CONTEXT"))
    try:
        Kube.connect(there.namespace, there.context, patience_s=5).pods({})
    except (KubeError, ApiLost) as error:
        pytest.skip(f"There is no cluster to test on: {error}")
    yield there
    uninstall(there)


@pytest.fixture
def release(place: Place, tmp_path: Path) -> OwnRelease:
    return OwnRelease(place, Path(os.environ.get("VALUES") or ROOT / "k8s" / "kind-values.yaml"), tmp_path)


def words(out: Path, **more: str) -> Words:
    given = {"rate": "20", "duration": "10s", "warmup": "2s", "cooldown": "1s", "workers": "2", "out": str(out)}
    return Words(framework=FRAMEWORK, ready_timeout="300s", **(given | more))


def test_a_run_there_is_a_run(release: OwnRelease, tmp_path: Path) -> None:
    """30 s of load by a master and two workers; then the chart's own check, and its Prometheus."""
    release.give(CPU, MEMORY)
    code = bench(words(tmp_path / "runs", duration="30s"), release.place)
    run = FinishedRun.only(tmp_path / "runs")
    run.must_be_valid(code)
    run.must_be_whole(arrivals=660, workers=2)
    run.must_be_made_of_this_checkout(FRAMEWORK)
    run.must_not_have_met_its_limits(CPU, MEMORY)
    release.must_be_without_load()
    release.check()
    seen = run.must_be_seen_by(release.ask)
    (sut,) = (pod.name for pod in release.pods() if pod.component == "sut")
    assert [labels["pod"] for labels in seen if labels["role"] == "host"] == [sut]


def test_a_profiled_run_there_has_the_heap_of_its_host(release: OwnRelease, tmp_path: Path) -> None:
    release.give(CPU, MEMORY)
    code = profile(words(tmp_path / "runs", rate="10", workers="1"), release.place, INTERVAL, "off")
    run = FinishedRun.only(tmp_path / "runs")
    run.must_be_valid(code)
    run.must_be_made_of_this_checkout(FRAMEWORK)
    run.must_have_its_hosts_heap()


def test_a_host_at_its_cpu_limit_is_noted_there(release: OwnRelease, tmp_path: Path) -> None:
    release.give("100m", MEMORY)
    bench(words(tmp_path / "runs", rate="60", duration="5s"), release.place)
    FinishedRun.only(tmp_path / "runs").must_be_throttled_at("100m", MEMORY)


def test_a_host_that_is_killed_at_its_memory_limit_makes_the_run_invalid_there(
    release: OwnRelease, tmp_path: Path
) -> None:
    release.give(CPU, LIMIT)
    with Filler(release.place, workers=2) as filler:
        code = bench(words(tmp_path / "runs"), release.place)
    assert filler.filled
    FinishedRun.only(tmp_path / "runs").must_be_killed_at(code, CPU, LIMIT)
