"""helm as a program: what it is told, and how it is ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from agentdyno.cluster.bench import bench, install, uninstall
from agentdyno.cluster.release import HelmError, Release, _over
from agentdyno.contract.run import ExitCode
from tests.cluster.api_faults import status
from tests.cluster.fake_cluster import NAMESPACE, FakeCluster
from tests.cluster.fake_pods import RELEASE
from tests.cluster.test_bench import PLACE, words

_SLOW = """#!{python} -S
import json, pathlib, signal, sys, time
here = pathlib.Path({here!r})
if sys.argv[1] == "get":
    print((here / "values").read_text())
    sys.exit()
def end(*_):
    (here / "ended").write_text("by SIGTERM")
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
(here / "begun").write_text("")
time.sleep(60)
"""


def test_it_is_installed_with_the_files_that_are_named(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text('{"framework": "bare"}')
    assert install(PLACE, [file]) is ExitCode.VALID
    for call, last in zip(cluster.helm_calls, ("--dry-run=client", "--wait"), strict=True):
        assert call[:3] == ["upgrade", "--install", RELEASE]
        assert call[call.index("-f") + 1] == str(file)
        assert {last, "--create-namespace"} <= set(call)
        assert call[-2:] == ["--namespace", NAMESPACE]


def test_what_the_chart_notes_is_said(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.helm_says = "NAME: dyno\nNOTES:\nA run:\n  make bench\n"
    install(PLACE, [])
    assert capsys.readouterr().err.endswith("installed\nA run:\n  make bench\n")


def test_the_slowest_part_is_waited_for_as_long_as_the_chart_lets_it_start(cluster: FakeCluster) -> None:
    cluster.manifest = "spec:\n  progressDeadlineSeconds: 1200\n---\nspec:\n  progressDeadlineSeconds: 2700\n"
    install(PLACE, [])
    call = cluster.helm_calls[-1]
    assert call[call.index("--timeout") + 1] == "2700s"


def test_what_holds_an_installation_up_is_said(cluster: FakeCluster) -> None:
    cluster.helm_fails["upgrade"] = "Error: context deadline exceeded"
    with pytest.raises(HelmError, match=r"context deadline exceeded$"):
        install(PLACE, [])  # before there is any pod
    cluster.on_list = lambda c: c.waits("backend", "vllm", "ImagePullBackOff")
    cluster._pod("backend", ["vllm"], "node-2")
    (name,) = cluster.pods
    cluster.pods[name]["status"]["conditions"] = []
    with pytest.raises(HelmError, match=rf"exceeded {name}, container vllm: ImagePullBackOff\."):
        install(PLACE, [])
    cluster.on_list = lambda _: None
    cluster.pods[name]["status"]["containerStatuses"][0]["state"] = {"running": {}}
    with pytest.raises(HelmError, match=rf"exceeded {name} runs and was not ready in time; its log says more\."):
        install(PLACE, [])
    cluster.faults = [("/pods", status(403))]
    with pytest.raises(HelmError, match=r"context deadline exceeded$"):
        install(PLACE, [])


def test_it_is_removed_whether_it_is_there_or_not(cluster: FakeCluster) -> None:
    assert uninstall(PLACE) is ExitCode.VALID
    assert cluster.helm_calls == [["uninstall", RELEASE, "--ignore-not-found", "--wait", "--namespace", NAMESPACE]]


def test_what_helm_says_is_passed_on(cluster: FakeCluster) -> None:
    cluster.helm_fails["uninstall"] = "Error: something is wrong"
    with pytest.raises(HelmError, match="helm uninstall failed: Error: something is wrong"):
        uninstall(PLACE)


def test_ctrl_c_while_it_is_rolled_in_ends_helm_so_that_it_can_say_so(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(_SLOW.format(python=sys.executable, here=str(tmp_path)))
    slow.chmod(0o755)
    monkeypatch.setenv("HELM", str(cluster.helm))
    values = Release(PLACE).values()
    (tmp_path / "values").write_text(json.dumps(values))
    monkeypatch.setenv("HELM", str(slow))

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        bench(words(tmp_path / "runs"), PLACE)
    assert (tmp_path / "ended").read_text() == "by SIGTERM"
    assert not (tmp_path / "runs").exists()


def test_a_runs_values_are_laid_over_a_persons() -> None:
    given = {"load": {"ratePerWorker": 300, "rate": 1}, "run": {"timing": {"tool_latency_ms": {"a": "1"}}}, "x": 1}
    laid = _over(given, {"load": {"rate": 2}, "run": {"timing": {"tool_latency_ms": {}}}, "replicas": 1})
    assert laid == {
        "load": {"ratePerWorker": 300, "rate": 2},
        "run": {"timing": {"tool_latency_ms": {}}},
        "x": 1,
        "replicas": 1,
    }
