"""A profile run on a cluster: the same load twice, snapshots of the second, and what is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentdyno.cluster import kube
from agentdyno.cluster.bench import bench, fetch
from agentdyno.cluster.compare import compare
from agentdyno.cluster.profile import profile
from agentdyno.contract.run import ExitCode
from agentdyno.record.heap_folder import HeapIndex, read_index, read_profile
from agentdyno.rig.campaign.compare import CampaignWords
from agentdyno.rig.environments.environment import adapter_environment, profiler_environment
from agentdyno.rig.environments.environment import lock_sha256 as hash_of_lock
from agentdyno.rig.option_values import OptionError
from tests.cluster.api_faults import status, truncated
from tests.cluster.fake_cluster import ROOT, FakeCluster
from tests.cluster.test_bench import PLACE, manifest_of, reasons, summary_of, words
from tests.cluster.test_compare import asked
from tests.cluster.test_faults import in_the_load

__all__ = ["asked"]


def profiled(out: Path) -> Path:
    """The run that has snapshots, of all that there are."""
    (folder,) = (path.parent for path in out.glob("*/heap"))
    return folder


def index_of(run: Path) -> HeapIndex:
    found = read_index(run)
    assert found is not None
    return found


def test_snapshots_are_fetched_and_read_as_those_of_a_local_run(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.looks = 12
    out = tmp_path / "runs"
    assert profile(words(out), PLACE, "100ms", "2s") is ExitCode.VALID
    plain, run = (path for path in sorted(out.iterdir()))
    assert profiled(out) == run
    index = index_of(run)
    # At its start, at its end, and while the load went on; every one is another heap.
    assert len(index.snapshots) >= 3
    assert index.gaps == []
    held = [read_profile(run, one).total(("inuse_space", "bytes")) for one in index.snapshots]
    assert held == [1_000_000 * number for number in range(1, len(held) + 1)]
    # On the host's clock, on which the other records of the run are laid.
    manifest = json.loads((run / "manifest.json").read_text())
    first, last = index.snapshots[0].monotonic_ns, index.snapshots[-1].monotonic_ns
    assert first < manifest["t0_monotonic_ns"] < last
    about = manifest["heap_profile"]
    assert about["interval_s"] == 0.1
    assert about["environment"]["lock_sha256"] == hash_of_lock(profiler_environment())
    assert json.loads((plain / "manifest.json").read_text())["heap_profile"] is None
    assert {"top10.json", "slowdown.json", "difference.html"} <= {file.name for file in (run / "heap").iterdir()}
    said = capsys.readouterr().out
    assert "Profiling costs:" in said
    assert said.splitlines()[-1] == str(run)


def test_the_profiler_is_in_the_host_of_the_profile_run_alone(cluster: FakeCluster, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    assert profile(words(out), PLACE, "30s", "off") is ExitCode.VALID
    assert cluster.given["run"]["heapProfile"] is True
    assert bench(words(tmp_path / "timed"), PLACE) is ExitCode.VALID
    assert cluster.given["run"]["heapProfile"] is False
    assert manifest_of(tmp_path / "timed").heap_profile is None


def test_packages_are_those_of_the_hosts_image(cluster: FakeCluster, tmp_path: Path) -> None:
    given = words(tmp_path / "runs")
    profile(given, PLACE, "30s", "off")
    (run,) = (tmp_path / "runs").iterdir()
    # The control has no framework; its only requirements are clients, which are no framework's either.
    assert json.loads((run / "manifest.json").read_text())["heap_profile"]["framework_packages"] == []
    assert adapter_environment(ROOT / "adapters" / "bare").lock.exists()


def test_a_profile_that_came_in_part_is_asked_for_again_and_one_that_cannot_be_had_is_a_gap(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.looks = 12

    def on_list(_: FakeCluster) -> None:
        if cluster.values["load"]["enabled"] and cluster.profiles == 1:
            cluster.faults.append(("sut-1/exec", truncated(b"a part", status=200, ms=1.0)))
            cluster.profiles += 1
        if cluster.values["load"]["enabled"] and cluster.profiles == 4:
            cluster.faults.append(("/debug/pprof/heap", status(503)))
            cluster.profiles += 1

    cluster.on_list = on_list
    assert profile(words(tmp_path / "runs"), PLACE, "50ms", "off") is ExitCode.VALID
    index = index_of(profiled(tmp_path / "runs"))
    assert cluster.faults == []
    assert [gap.reason for gap in index.gaps] == ["The host gave no heap profile: status 503."]
    assert len(index.snapshots) >= 3


def test_a_host_without_the_profiler_leaves_gaps_and_says_why(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.on_list = lambda c: c.values["run"].update(heapProfile=False)  # a chart that does not know the value
    profile(words(tmp_path / "runs"), PLACE, "30s", "off")
    index = index_of(profiled(tmp_path / "runs"))
    assert index.snapshots == []
    assert {gap.reason for gap in index.gaps} == {"The host gave no heap profile: it carries no profiler."}


def test_a_profile_run_that_was_cut_off_goes_on_with_its_snapshots(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kube, "PATIENCE_S", 0.5)
    in_the_load(cluster, lambda: setattr(cluster, "down", True))
    out = tmp_path / "runs"
    assert profile(words(out), PLACE, "30s", "off") is ExitCode.INVALID_RUN
    run = profiled(out)
    assert len(index_of(run).snapshots) == 1
    cluster.down, cluster.looks, cluster._left = False, 10, 10
    capsys.readouterr()
    fetch(run.name, out)
    assert reasons(out) == {"api_lost"}
    assert summary_of(out).load.ok == 60
    index = index_of(run)
    assert len(index.snapshots) == 3
    assert index.snapshots[0].monotonic_ns < index.snapshots[1].monotonic_ns < index.snapshots[2].monotonic_ns
    assert (run / "heap" / "top10.json").exists()
    assert capsys.readouterr().out.splitlines()[-1] == str(run)


def test_a_campaigns_heap_profiles_are_taken_there(
    cluster: FakeCluster, tmp_path: Path, asked: CampaignWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from agentdyno.rig.campaign import life as campaign

    monkeypatch.setattr(campaign, "ensure", lambda _: None)
    monkeypatch.setattr(campaign, "framework_packages", lambda *_: ())
    compare(replace(asked, names=["bare"], heap="on"), PLACE)
    (folder,) = (tmp_path / "campaigns").iterdir()
    (run,) = (path.parent for path in folder.glob("runs/*/heap"))
    assert len(index_of(run).snapshots) == 2
    assert json.loads((folder / "campaign.json").read_text())["heap_runs"] == {"bare": run.name}


@pytest.mark.parametrize(("interval", "plain"), [("soon", "off"), ("30s", "never")])
def test_a_time_that_is_none_is_refused_before_anything_is_rolled_in(
    cluster: FakeCluster, tmp_path: Path, interval: str, plain: str
) -> None:
    with pytest.raises(OptionError, match=r"INTERVAL|PLAIN"):
        profile(words(tmp_path / "runs"), PLACE, interval, plain)
    assert cluster.rolled_in == []
