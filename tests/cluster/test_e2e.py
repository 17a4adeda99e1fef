"""The same on a real cluster: `make cluster-e2e`, with the kubeconfig's context (or $CONTEXT), in its own release.

The cluster must have the images (`make images`, for kind then `kind load`). VALUES names a values file; by default that
of kind, whose limits are a laptop's.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agentdyno.cluster.bench import bench, install, uninstall
from agentdyno.cluster.kube import Kube, KubeError
from agentdyno.cluster.objects import COMPONENT, INSTANCE
from agentdyno.cluster.release import Place
from agentdyno.contract.run import ExitCode
from agentdyno.rig.environments import ROOT
from agentdyno.rig.options import Words
from tests.cluster.test_bench import manifest_of, only, summary_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("AGENTDYNO_CLUSTER"),
        reason="It installs a release on the kubeconfig's cluster: make cluster-e2e",
    ),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    there = Place(f"dyno-e2e-{secrets.token_hex(2)}", "agentdyno-e2e", os.environ.get("CONTEXT"))
    try:
        Kube.connect(there.namespace, there.context, patience_s=5).pods({})
    except KubeError as error:
        pytest.skip(f"There is no cluster to test on: {error}")
    install(there, [Path(os.environ.get("VALUES") or ROOT / "k8s" / "kind-values.yaml")])
    yield there
    uninstall(there)


def test_a_run_there_is_a_run(place: Place, tmp_path: Path) -> None:
    """What tests/k8s/test_rendered_run.py asks of the rendered words, and the verdict."""
    words = Words(
        framework="bare", rate="10", warmup="1s", duration="10s", cooldown="1s", workers="2", out=str(tmp_path)
    )
    code = bench(words, place)
    summary, manifest = summary_of(tmp_path), manifest_of(tmp_path)
    assert (code, summary.verdict.reasons) == (ExitCode.VALID, ())
    # Each arrival once, by one of the two, and every answer verified with the Secret's key.
    requests = pq.read_table(only(tmp_path) / "requests.parquet")
    assert sorted(requests["index"].to_pylist()) == list(range(120))
    shares = {
        (index % 2, worker)
        for index, worker in zip(requests["index"].to_pylist(), requests["worker"].to_pylist(), strict=True)
    }
    assert shares == {(0, 0), (1, 1)}
    assert set(requests["outcome"].to_pylist()) == {"ok"}
    # The spans of host and mock, and the host's resources, on one clock.
    assert summary.spans.expected == summary.spans.received
    assert manifest.recorder is not None
    assert manifest.recorder.frames > 2
    assert set(pq.read_table(only(tmp_path) / "resources.parquet")["role"].to_pylist()) == {"host"}
    assert summary.cpu_ms_per_request is not None
    assert manifest.cluster is not None
    assert manifest.cluster["t0"]["by"] == "causality"
    kube = Kube.connect(place.namespace, place.context)
    left = [pod for pod in kube.pods({INSTANCE: place.release}) if pod.metadata.labels[COMPONENT].startswith("load-")]
    assert [pod.name for pod in left if pod.metadata.deletion_timestamp is None] == []
