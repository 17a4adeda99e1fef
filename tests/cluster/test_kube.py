"""The API from a reader's side: what can be mended is a sentence at once, what comes and goes is asked again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentdyno.cluster import programs
from agentdyno.cluster.kube import ApiLost, Kube, KubeError, NotThere
from agentdyno.cluster.programs import Container
from tests.cluster.api_faults import cut, reset_after, status, truncated
from tests.cluster.fake_cluster import KEY, NAMESPACE, FakeCluster

RUN_ID = "r"


@pytest.fixture
def worker(cluster: FakeCluster, api: Kube) -> Container:
    """A container with a file of 100 kB, read in pieces of 30."""
    cluster._pod("load-worker", ["records"], "n", {"batch.kubernetes.io/job-completion-index": "0"})
    (name,) = cluster.pods
    cluster.records(name).mkdir(parents=True)
    (cluster.records(name) / "requests-0.jsonl").write_bytes(os.urandom(100_000))
    return Container(api, name, "records")


def test_without_a_kubeconfig_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(KubeError, match=r"no usable kubeconfig.*KUBECONFIG=/path/to/config"):
        Kube.connect(NAMESPACE)


def test_a_context_that_is_not_there_is_named(cluster: FakeCluster) -> None:
    with pytest.raises(KubeError, match="the context 'other'"):
        Kube.connect(NAMESPACE, "other")


def test_what_one_may_not_do_is_said_with_the_way_out(cluster: FakeCluster, api: Kube) -> None:
    cluster.faults = [("/pods", status(403))]
    says = r"You may not list pods in the namespace bench \(403\).*RELEASE-runner.*helm.*needs more"
    with pytest.raises(KubeError, match=says):
        api.pods({})


def test_a_refused_exec_is_told_apart_though_websockets_hide_the_status(
    cluster: FakeCluster, worker: Container
) -> None:
    cluster.faults = [("/exec", status(403))]
    with pytest.raises(KubeError, match=r"You may not create pods/exec in dyno-load-worker-1 .*\(403\)"):
        worker.files("/records")
    with pytest.raises(NotThere):
        Container(worker.kube, "gone", "records").files("/records")


def test_one_that_the_cluster_does_not_know_is_told_so(cluster: FakeCluster, api: Kube) -> None:
    cluster.faults = [("/secrets", status(401))]
    with pytest.raises(KubeError, match="401"):
        api.secret("dyno-proof", "proof-key")
    assert api.secret("dyno-proof", "proof-key") == KEY.encode()
    with pytest.raises(KubeError, match="no value 'other'"):
        api.secret("dyno-proof", "other")


def test_what_comes_and_goes_is_asked_again(cluster: FakeCluster, api: Kube) -> None:
    cluster.faults = [("/pods", status(500)), ("/pods", cut), ("/pods", status(429))]
    assert api.pods({"a": "b"}) == []
    assert cluster.faults == []


def test_what_stays_away_is_lost_after_its_time(cluster: FakeCluster) -> None:
    cluster.down = True
    with pytest.raises(ApiLost, match=r"for 0.3 s \(list pods: status 503\)"):
        Kube.connect(NAMESPACE, patience_s=0.3).pods({})


def test_a_file_comes_whole_through_streams_that_break(
    cluster: FakeCluster, worker: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_CHUNK_BYTES", 30_000)
    sent = (cluster.records(worker.pod) / "requests-0.jsonl").read_bytes()
    size = worker.files("/records")["requests-0.jsonl"]
    # Cut in the middle of a chunk; short of its end though it says that all went well; and no answer at all.
    cluster.faults = [("/exec", reset_after(sent[:1000])), ("/exec", truncated(sent[:1000])), ("/exec", cut)]
    worker.fetch("/records/requests-0.jsonl", size, tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == sent
    assert cluster.faults == []


def test_a_fetch_goes_on_from_what_is_here(cluster: FakeCluster, worker: Container, tmp_path: Path) -> None:
    sent = (cluster.records(worker.pod) / "requests-0.jsonl").read_bytes()
    (tmp_path / "part").write_bytes(sent[:70_000])
    worker.fetch("/records/requests-0.jsonl", len(sent), tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == sent
    with pytest.raises(KubeError, match="of another run"):
        worker.fetch("/records/requests-0.jsonl", 10, tmp_path / "part")


def test_a_file_that_never_comes_whole_is_not_taken(cluster: FakeCluster, worker: Container, tmp_path: Path) -> None:
    cluster.faults = [("/exec", truncated(b"a"))] * 3
    with pytest.raises(KubeError, match="3 times, and never as it was sent"):
        worker.fetch("/records/requests-0.jsonl", 100_000, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b""
