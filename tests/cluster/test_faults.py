"""What befalls a run on a cluster: each fault invalidates it with its reason, or is met and leaves no trace."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from agentdyno.cluster import bench as bench_module
from agentdyno.cluster import kube
from agentdyno.cluster import run as run_module
from agentdyno.cluster.bench import bench, fetch
from agentdyno.cluster.profile import profile
from agentdyno.cluster.release import HelmError
from agentdyno.cluster.run import STATE_FILE
from agentdyno.contract.adapter import find_variants
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.record.manifest import Status
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.option_values import OptionError
from tests.cluster.api_faults import cut, reset_after, status
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.test_bench import PLACE, manifest_of, only, reasons, summary_of, words


def in_the_load(cluster: FakeCluster, happen: Callable[[], object]) -> None:
    """Let it happen at the second look at the load's pods, of many."""
    cluster.looks = 50
    seen: list[int] = []

    def on_list(_: FakeCluster) -> None:
        if cluster.values["load"]["enabled"]:
            seen.append(1)
            if len(seen) == 2:
                happen()

    cluster.on_list = on_list


def worker(cluster: FakeCluster) -> str:
    name: str = cluster.named("load-worker")["metadata"]["name"]
    return name


def messages(out: Path) -> str:
    return " ".join(finding.message for finding in summary_of(out).verdict.reasons)


@pytest.mark.parametrize(
    ("happen", "reason", "says"),
    [
        (lambda c: c.restarted("sut", "host", 137, "OOMKilled"), "oom_killed", "host of the sut's pod dyno-sut-"),
        (lambda c: c.restarted("sut", "host", 137), "pod_restarted", "ended with exit code 137"),
        (lambda c: c.restarted("backend", "mock", 1), "pod_restarted", "mock of the backend's pod"),
        (lambda c: c.restarted("recorder", "recorder", 0), "pod_restarted", "recorder of the recorder's pod"),
        (lambda c: c.evicted("sut"), "pod_evicted", "Evicted: The node was low on resource: memory"),
        (lambda c: c.disrupted("backend"), "pod_evicted", "Eviction API: evicting"),
        (lambda c: c.replaced("sut"), "pod_evicted", "is gone"),
    ],
)
def test_what_befalls_a_server_ends_the_run_with_its_reason_and_keeps_what_was_measured(
    cluster: FakeCluster, tmp_path: Path, happen: Callable[[FakeCluster], object], reason: str, says: str
) -> None:
    in_the_load(cluster, lambda: happen(cluster))
    out = tmp_path / "runs"
    assert bench(words(out), PLACE) is ExitCode.INVALID_RUN
    assert reason in reasons(out)
    assert says in messages(out)
    assert (only(out) / "requests.parquet").exists()
    assert cluster.values["load"]["enabled"] is False


@pytest.mark.parametrize(
    ("happen", "reason", "says"),
    [
        (lambda c: c.ended(worker(c), "locust", 137, "OOMKilled"), "generator_died", "with exit code 137 (OOMKilled)"),
        (lambda c: c.ended(worker(c), "locust", 74), "disk_full", "raise load.storage"),
        (lambda c: c.pods.pop(worker(c)), "generator_died", "is gone"),
        (lambda c: c.evicted("load-worker"), "generator_died", "Evicted"),
    ],
)
def test_a_lost_worker_is_seen_and_named(
    cluster: FakeCluster, tmp_path: Path, happen: Callable[[FakeCluster], object], reason: str, says: str
) -> None:
    in_the_load(cluster, lambda: happen(cluster))
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.INVALID_RUN
    assert reason in reasons(tmp_path / "runs")
    assert says in messages(tmp_path / "runs")
    # What the other one had sent is kept.
    assert 1 in pq.read_table(only(tmp_path / "runs") / "requests.parquet")["worker"].to_pylist()


def test_nothing_is_taken_from_a_pod_that_took_anothers_place(cluster: FakeCluster, tmp_path: Path) -> None:
    in_the_load(cluster, lambda: cluster.replaced("sut"))
    bench(words(tmp_path / "runs"), PLACE)
    assert pq.read_table(only(tmp_path / "runs") / "resources.parquet").num_rows == 0
    assert not (only(tmp_path / "runs") / "gc.parquet").exists()
    assert pq.read_table(only(tmp_path / "runs") / "requests.parquet").num_rows == 100


def test_a_worker_that_is_never_there_is_missed(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_START_S", 0.1)
    cluster.left_out, cluster.looks = {1}, 10_000
    assert bench(words(tmp_path / "runs", ready_timeout="1s"), PLACE) is ExitCode.INVALID_RUN
    assert "The load did not start" in messages(tmp_path / "runs")
    assert "There are 2 pods of it" in messages(tmp_path / "runs")


def test_a_load_that_no_node_takes_is_not_left_behind(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_START_S", 0.1)
    cluster.on_list = lambda c: c.values["load"]["enabled"] and c.unscheduled("load-worker")
    cluster.looks = 10_000
    assert bench(words(tmp_path / "runs", ready_timeout="1s"), PLACE) is ExitCode.INVALID_RUN
    assert "1 Insufficient cpu" in messages(tmp_path / "runs")
    assert cluster.values["load"]["enabled"] is False
    assert [name for name in cluster.pods if "load" in name] == []


def test_a_process_that_the_kernel_killed_within_the_host_is_seen(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.cgroup = msgspec.structs.replace(cluster.cgroup, oom_kills=2)
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.INVALID_RUN
    assert reasons(tmp_path / "runs") == {"oom_killed"}
    assert "killed 2 processes" in messages(tmp_path / "runs")


def test_a_broken_connection_is_resumed_and_leaves_no_trace(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.faults = [
        *(("/pods", status(code)) for code in (500, 503, 429)),
        ("/pods", cut),
        ("/exec", status(500)),
        ("dyno-load-worker-5/exec", reset_after(b"half of")),
        ("dyno-sut-1/exec", cut),
        ("dyno-recorder-3/exec", reset_after(b"")),
    ]
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.VALID
    assert cluster.faults == []
    assert summary_of(tmp_path / "runs").load.ok == 60


def test_an_api_that_is_lost_makes_it_invalid_and_fetch_brings_the_rest(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kube, "PATIENCE_S", 0.5)
    in_the_load(cluster, lambda: setattr(cluster, "down", True))
    out = tmp_path / "runs"
    assert bench(words(out), PLACE) is ExitCode.INVALID_RUN
    assert reasons(out) == {"api_lost"}
    assert "agentdyno fetch" in messages(out)
    assert (only(out) / "raw" / STATE_FILE).exists()
    assert summary_of(out).load is None

    cluster.down, cluster.looks, cluster._left = False, 2, 2
    capsys.readouterr()
    assert fetch(only(out).name[:12], out) is ExitCode.INVALID_RUN
    assert capsys.readouterr().out.splitlines()[-1] == str(only(out))
    assert reasons(out) == {"api_lost"}
    summary = summary_of(out)
    assert summary.load is not None
    assert (summary.load.ok, summary.spans.received) == (60, 720)
    assert cluster.values["load"]["enabled"] is False
    assert not (only(out) / "raw").exists()
    with pytest.raises(UserError, match="all of it is here already"):
        fetch(str(only(out)), out)


def test_ctrl_c_keeps_what_there_is_and_leaves_nothing_behind(cluster: FakeCluster, tmp_path: Path) -> None:
    in_the_load(cluster, lambda: os.kill(os.getpid(), signal.SIGINT))
    out = tmp_path / "runs"
    assert bench(words(out), PLACE) is ExitCode.INTERRUPTED
    assert manifest_of(out).status is Status.INTERRUPTED
    assert reasons(out) == {"interrupted"}
    assert summary_of(out).load.ok == 60
    assert [name for name in cluster.pods if "load" in name] == []
    assert any("sut" in name for name in cluster.pods)  # the release was there before, and stays
    assert not [call for call in cluster.helm_calls if call[0] == "uninstall"]


# what a reader can mend


def test_a_roll_in_that_fails_says_what_holds_the_pods_up(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.helm_fails["upgrade"] = "Error: context deadline exceeded"
    cluster.on_list = lambda c: c.waits("sut", "host", "ImagePullBackOff")
    with pytest.raises(HelmError, match="deadline exceeded dyno-sut-1, container host: ImagePullBackOff"):
        bench(words(tmp_path / "runs"), PLACE)
    assert not (tmp_path / "runs").exists()


def test_an_image_that_only_a_profile_run_needs_is_named_when_it_is_missing(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.helm_fails["upgrade"] = "Error: context deadline exceeded"

    def waits(_: FakeCluster) -> None:
        cluster.waits("sut", "host", "PodInitializing")
        init = {"name": "profiler", "state": {"waiting": {"reason": "ErrImagePull"}}}
        cluster.named("sut")["status"]["initContainerStatuses"] = [init]

    cluster.on_list = waits
    with pytest.raises(HelmError, match="dyno-sut-1, container profiler: ErrImagePull"):
        profile(words(tmp_path / "runs"), PLACE, "30s", "off")


def test_a_release_that_is_not_there_is_said(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.helm_fails["get"] = "Error: release: not found"
    with pytest.raises(HelmError, match="make cluster-install"):
        bench(words(tmp_path / "runs"), PLACE)


def test_a_run_that_goes_on_is_not_disturbed(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.values["load"]["enabled"] = True
    cluster.values["run"]["id"] = "first"
    with pytest.raises(UserError, match="in the middle of run first"):
        bench(words(tmp_path / "runs"), PLACE)
    assert [call[0] for call in cluster.helm_calls] == ["get"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"backend": "http://llm/v1"}, "BACKEND is chosen at install"),
        ({"model": "qwen"}, "MODEL is chosen at install"),
        ({"url": "http://llm/v1"}, "URL is chosen at install"),
        ({"observe": "1"}, "OBSERVE is for runs on one machine"),
        ({"native_spans": "1"}, "NATIVE_SPANS is for runs on one machine"),
        ({"otlp": "127.0.0.1:4318"}, "OTLP is for runs on one machine"),
    ],
)
def test_options_that_mean_nothing_there_are_refused(
    cluster: FakeCluster, tmp_path: Path, given: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        bench(words(tmp_path / "runs", **given), PLACE)


def test_without_a_recorder_nothing_is_traced(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.given["recorder"] = {"enabled": False}
    cluster.set(cluster.given)
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.VALID
    assert manifest_of(tmp_path / "runs").plan.trace_every == 0
    assert not [note for note in summary_of(tmp_path / "runs").verdict.notes if "recorder" in note.message]
    with pytest.raises(OptionError, match="TRACES needs a recorder"):
        bench(words(tmp_path / "more", traces="20/s"), PLACE)


def test_a_framework_that_is_a_program_of_its_own_is_refused(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, variant = find_variants(ROOT / "adapters")["bare"]
    own = msgspec.structs.replace(variant, name="other", entry=None, command=["./serve"])
    monkeypatch.setattr(bench_module, "resolve", lambda _: (folder, own))
    with pytest.raises(UserError, match=r"other is a program of its own, for which the chart has no image: .*here"):
        bench(replace(words(tmp_path / "runs"), framework="other"), PLACE)
    assert cluster.rolled_in == []


def test_a_rig_that_was_killed_leaves_a_run_that_is_fetched_whole(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Nothing of the rig runs after it."""

    def killed() -> None:
        raise Killed

    out = tmp_path / "runs"
    cluster.looks = 50
    with monkeypatch.context() as patched:
        patched.setattr(run_module.ClusterRun, "_look", lambda *_: killed())
        with pytest.raises(Killed):
            bench(words(out), PLACE)
    assert manifest_of(out).status is Status.RUNNING
    assert cluster.values["load"]["enabled"] is True
    cluster._left = 8  # the load still goes on when it is taken up
    assert fetch(only(out).name, out) is ExitCode.VALID
    manifest = manifest_of(out)
    assert (manifest.status, summary_of(out).load.ok) == (Status.FINISHED, 60)
    assert manifest.first_answer_ms is not None
    assert manifest.rss_idle_bytes is not None
    assert manifest.calibration["before"].median_ms > 0
    assert cluster.values["load"]["enabled"] is False


def test_without_helm_there_is_a_sentence(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HelmError, match="There is no helm on the PATH"):
        bench(words(tmp_path / "runs"), PLACE)


@pytest.fixture
def cut_off(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose API was lost in the load, and answers again."""
    monkeypatch.setattr(kube, "PATIENCE_S", 0.5)
    in_the_load(cluster, lambda: setattr(cluster, "down", True))
    out = tmp_path / "runs"
    bench(words(out), PLACE)
    cluster.down = False
    cluster.on_list = lambda _: None
    return out


def test_what_is_gone_cannot_be_fetched_and_another_run_is_left_alone(cluster: FakeCluster, cut_off: Path) -> None:
    cluster.set({**cluster.given, "run": {**cluster.given["run"], "id": "another"}})
    with pytest.raises(UserError, match="are gone from the namespace bench"):
        fetch(str(only(cut_off)), cut_off)
    assert cluster.values["load"]["enabled"] is True
    assert (only(cut_off) / "raw" / STATE_FILE).exists()


def test_records_that_were_kept_as_long_as_they_could_be_are_gone(cluster: FakeCluster, cut_off: Path) -> None:
    for pod in cluster.pods.values():
        if pod["metadata"]["labels"]["app.kubernetes.io/component"].startswith("load-"):
            pod["status"]["phase"] = "Succeeded"
    with pytest.raises(UserError, match="keepRecordsSeconds"):
        fetch(str(only(cut_off)), cut_off)
    assert (only(cut_off) / "raw" / STATE_FILE).exists()


def test_a_full_disk_here_is_said_and_no_load_is_left(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    in_the_load(cluster, lambda: monkeypatch.setattr(run_module.ClusterRun, "_look", full))
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.INVALID_RUN
    assert reasons(tmp_path / "runs") == {"disk_full"}
    assert cluster.values["load"]["enabled"] is False


def test_a_fault_of_our_own_is_shown_and_no_load_is_left(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module.ClusterRun, "_look", lambda *_: {}["nothing"])
    with pytest.raises(KeyError):
        bench(words(tmp_path / "runs"), PLACE)
    assert cluster.values["load"]["enabled"] is False
