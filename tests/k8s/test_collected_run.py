"""The client takes a run of the rendered words to its verdict: real processes, its own programs, this machine as pods.

As tests/k8s/test_rendered_run.py starts them. All share one clock here, so what the client makes of their clocks,
without knowing that, can be held against the truth.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentdyno.cluster.kube import Kube, Ran
from agentdyno.cluster.objects import (
    COMPLETION_INDEX,
    COMPONENT,
    Condition,
    ContainerState,
    ContainerStatus,
    Metadata,
    Pod,
    PodStatus,
    Terminated,
)
from agentdyno.cluster.release import Place, Release
from agentdyno.cluster.run import ClusterRun
from agentdyno.cluster.settings import State
from agentdyno.cluster.watch import known
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import machine_facts
from agentdyno.rig.environments.environment import Facts, adapter_environment, lock_sha256
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.interruption import Interruption
from agentdyno.rig.options import Words, read
from agentdyno.rig.preparation import manifest_of
from tests.cluster.finished_run import BUSY, FinishedRun
from tests.k8s.pods import pods
from tests.k8s.programs import Programs
from tests.k8s.test_rendered_run import HEALTH, SERVERS, SETTINGS, Machine, machine

pytestmark = [pytest.mark.e2e]
__all__ = ["machine"]
Children = dict[str, subprocess.Popen[bytes]]


class Here(Kube):
    """This machine as the cluster. children: by `component-number/container`."""

    def __init__(self, machine: Machine, children: Children) -> None:
        self.namespace = "bench"
        self._machine = machine
        self._children = children

    def pods(self, labels: Mapping[str, str]) -> list[Pod]:
        names = dict.fromkeys(name.partition("/")[0] for name in self._children)
        return [self._pod(name) for name in names]

    def _pod(self, name: str) -> Pod:
        component, _, number = name.rpartition("-")
        own = {key.partition("/")[2]: child for key, child in self._children.items() if key.startswith(f"{name}/")}
        statuses = [ContainerStatus(container, state=_state(child.poll())) for container, child in own.items()]
        labels = {COMPONENT: component, COMPLETION_INDEX: number}
        status = PodStatus("Running", conditions=[Condition("Ready", "True")], container_statuses=statuses)
        return Pod(Metadata(name, f"uid-{name}", labels), status=status)

    def run(self, pod: str, container: str, command: Sequence[str], timeout_s: float = 60.0) -> Ran:
        words = [sys.executable, *(self._here(word, pod, container) for word in command[1:])]
        done = subprocess.run(words, capture_output=True, check=False, timeout=timeout_s)
        return Ran(done.returncode, done.stdout, done.stderr)

    def _here(self, word: str, pod: str, container: str) -> str:
        component = pod.rpartition("-")[0]
        folder = "load" if component.startswith("load-") else f"{component}-{container}"
        for port in (4318, 8000, 8001):
            word = word.replace(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{self._machine.port(port)}")
        return word.replace("/records", str(self._machine.folder / folder)) if word.startswith("/records") else word

    def log(self, pod: str, container: str, *, lines: int | None = None) -> bytes:
        return b""


class NoRelease(Release):
    """One whose load is switched off."""

    def values(self) -> dict[str, Any]:
        return {"run": {"id": "a"}}

    def change(self, values: dict[str, Any], wait_s: float | None = None) -> None:
        assert values == {"load": {"enabled": False}}


def _state(exit_code: int | None) -> ContainerState:
    if exit_code is None:
        return ContainerState(running={})
    return ContainerState(terminated=Terminated(exit_code))


def test_the_records_of_real_processes_become_a_run(tools: Programs, machine: Machine, tmp_path: Path) -> None:
    rendered = {
        f"{pod.component}/{c['name']}": c for pod in pods(tools.objects("--set", SETTINGS)) for c in pod.containers
    }
    children: Children = {}
    for name in SERVERS:
        component, _, container = name.partition("/")
        children[f"{component}-0/{container}"] = machine.start(name, rendered[name])
        if component in HEALTH and container != "sampler":
            machine.ready(component)
    kube = Here(machine, children)
    servers = known(kube.pods({}))
    children["load-master-0/locust"] = machine.start("load-master/locust", rendered["load-master/locust"])
    for worker in range(2):
        child = machine.start(f"load-worker/locust{worker}", rendered["load-worker/locust"])
        children[f"load-worker-{worker}/locust"] = child

    adapter, variant = resolve("bare")
    words = Words(framework="bare", rate="10", warmup="1s", duration="5s", cooldown="1s", workers="2")
    facts = Facts("3.12", lock_sha256(adapter_environment(adapter.path)), 0, 0.0, {})
    folder = RunFolder.create(tmp_path / "runs", "bare")
    manifest = manifest_of(read(words), variant, facts, facts, machine_facts(), folder.run_id)
    manifest.cluster = {}
    state = State(
        release="dyno",
        namespace="bench",
        context=None,
        run="a",
        workers=2,
        ready_timeout_s=60.0,
        sut_port=8000,
        backend_port=8001,
        backend_kind="mock",
        recorded=True,
        sampled=True,
        servers=servers,
        rig_images=[""],  # processes have none; what they run was looked at before the load
    )
    with Interruption() as interruption:
        run = ClusterRun(folder, manifest, state, NoRelease(Place("dyno", "bench")), kube, interruption)
        summary, code = run.resume()

    finished = FinishedRun.of(folder.path)
    finished.must_be_valid(code, but_for=BUSY)  # a machine that does other things may be late
    finished.must_be_whole(arrivals=70, workers=2)
    assert (summary.load.arrivals, summary.load.ok) == (50, 50)
    assert summary.spans.received == 50 * 12
    assert summary.loop_lag_ms.p50 is not None
    # t0 by causes and effects, against the clock that all share here and that nothing above has made use of.
    true_t0_ns = min(end.t0_monotonic_ns for end in manifest.workers)
    widths = [one["width_ns"] for one in manifest.cluster["t0"]["workers"]]
    assert abs(manifest.t0_monotonic_ns - true_t0_ns) <= max(widths) / 2 + 1
    assert msgspec.json.decode((folder.path / "backend.json").read_bytes())["stats"] is not None
