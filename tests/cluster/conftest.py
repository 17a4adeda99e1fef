"""A fake cluster for each test, and a rig that looks at it without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdyno.cluster import collect, kube, run
from agentdyno.cluster.kube import Kube
from tests.cluster.fake_cluster import NAMESPACE, FakeCluster
from tests.cluster.pod_python import PodPython


@pytest.fixture(scope="session")
def pod_python() -> Iterator[PodPython]:
    with PodPython() as made:
        yield made


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod_python: PodPython
) -> Iterator[FakeCluster]:
    """Another fake, where the test's module names one: CLUSTER."""
    monkeypatch.setattr(run, "LOOK_S", 0.02)
    monkeypatch.setattr(collect, "SETTLE_PAUSE_S", 0.01)
    monkeypatch.setattr(kube, "PATIENCE_S", 20.0)
    folder = tmp_path / "cluster"
    folder.mkdir()
    with getattr(request.module, "CLUSTER", FakeCluster)(folder) as made:
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
        monkeypatch.setenv("HELM", str(made.helm))
        made.python = pod_python
        yield made


@pytest.fixture
def api(cluster: FakeCluster) -> Kube:
    return Kube.connect(NAMESPACE)
