"""A fake cluster for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdyno.cluster.kube import Kube
from tests.cluster.fake_cluster import NAMESPACE, FakeCluster, point_at
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
    folder = tmp_path / "cluster"
    folder.mkdir()
    with getattr(request.module, "CLUSTER", FakeCluster)(folder) as made:
        point_at(made, monkeypatch)
        made.python = pod_python
        yield made


@pytest.fixture
def api(cluster: FakeCluster) -> Kube:
    return Kube.connect(NAMESPACE)
