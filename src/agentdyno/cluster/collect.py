"""Fetching what a run left in its pods: into `raw/` of its folder, from where the local run's own code takes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from agentdyno.cluster import vllm
from agentdyno.cluster.clock import Between, by_causality, by_marks, earliest
from agentdyno.cluster.kube import Kube
from agentdyno.cluster.objects import Pod
from agentdyno.cluster.preparation import beside_host, container, node_facts, pod_facts
from agentdyno.cluster.programs import Container
from agentdyno.cluster.settings import State
from agentdyno.cluster.sources import differences, rig_image
from agentdyno.cluster.watch import LOCUST, MASTER, SERVERS, WORKER, load_pods
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import BackendStats, Finding, Reason, WorkerEnd
from agentdyno.record.cgroup import grown_through
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Backend, Manifest
from agentdyno.record.sidecar import CGROUP_FILE, RESOURCES_FILE, CgroupReading
from agentdyno.record.spans import OTLP_FILE, RAW_FILE
from agentdyno.rig.backend_options import MOCK, VLLM
from agentdyno.rig.collect import keep_host_answers
from agentdyno.rig.environments.building import say

RECORDS = "/records"
SETTLE_PAUSE_S = 1.0
_SETTLE_S = 15.0
_ANSWER_S = 30.0  # an overloaded host may first have to work off what its clients have given up
_LEDGER_FILE = "recorder.json"
_OTLP_PORT = 4318


class Collection:
    """Everything of one run. pods: as they are now; of them those that hold records of this run."""

    def __init__(self, kube: Kube, state: State, pods: Sequence[Pod], folder: RunFolder, manifest: Manifest) -> None:
        self._kube = kube
        self._state = state
        self._pods = [pod for pod in pods if _holds_records(pod, state)]
        self._folder = folder
        self._manifest = manifest

    def steps(self) -> Iterator[Callable[[], None]]:
        """Each by itself: what is gone must not keep the rest from being fetched. Each raises UserError, OSError, or
        ApiLost, after which none of the others would go better.
        """
        there = {pod.component for pod in self._pods}
        yield from ((lambda worker=worker: self._worker(worker)) for worker in self._workers())
        if "sut" in there:
            yield self._host
            if self._state.sampled:
                yield self._resources
        yield self._backend
        yield self._load_pods
        if "recorder" in there and self._state.recorded:
            yield self._spans
        yield self._logs

    def t0(self, ends: Sequence[WorkerEnd], requests: pa.Table) -> int | None:
        """t0 on the host's clock; how well it is known is noted in the manifest."""
        found: list[Between | None] = []
        how = "causality"
        if self._state.recorded:
            found = by_causality(requests, self._folder.raw, max(end.worker for end in ends) + 1)
        if all(one is None for one in found):
            how, found = "marks", self._by_marks(ends)
        self._manifest.cluster = {
            **(self._manifest.cluster or {}),
            "t0": {
                "by": how,
                "workers": [None if one is None else {"width_ns": one.high_ns - one.low_ns} for one in found],
                "apart_ns": _apart(found),
            },
        }
        return earliest(found)

    def _by_marks(self, ends: Sequence[WorkerEnd]) -> list[Between | None]:
        """None of any where a pod has gone: what needs t0 is then not known, and all else is."""
        try:
            host = beside_host(self._kube, self._pods, self._state).mark()
        except UserError as error:
            say(f"The host's clock can no longer be looked at: {error}")
            return [None] * len(ends)
        workers = dict(enumerate(self._workers()))
        return [by_marks(end, workers[end.worker].mark(), host) if end.worker in workers else None for end in ends]

    # each of the parts

    def _workers(self) -> list[Container]:
        return [Container(self._kube, pod.name, "records") for pod in load_pods(self._pods) if pod.component == WORKER]

    def _worker(self, worker: Container) -> None:
        self._fetch(worker, ("requests-", "seconds-", "end-"))

    def _resources(self) -> None:
        self._fetch(beside_host(self._kube, self._pods, self._state), (RESOURCES_FILE, CGROUP_FILE))
        self._keep_cgroup(self._folder.raw / CGROUP_FILE)

    def _host(self) -> None:
        beside, url = beside_host(self._kube, self._pods, self._state), f"http://127.0.0.1:{self._state.sut_port}"
        try:
            metrics = beside.offered(f"{url}/metrics", _ANSWER_S)
            probes = beside.offered(f"{url}/debug/probes", _ANSWER_S)
            keep_host_answers(self._folder, self._manifest, metrics, probes)
        except (OSError, msgspec.MsgspecError) as error:
            text = f"The host did not answer after the load ({error}): GC pauses and loop lag are not known."
            self._manifest.findings.append(Finding(Reason.HOST_FAILED, text))

    def _backend(self) -> None:
        kind, model = (str(self._manifest.backend[name]) for name in ("kind", "model"))
        served = Backend(kind=kind, model=model)
        try:
            there = {pod.component for pod in self._pods}
            if kind == VLLM and "sut" in there:
                served = vllm.record(beside_host(self._kube, self._pods, self._state), self._state, model)
                return
            if kind != MOCK or "backend" not in there:
                return
            mock = container(self._kube, self._pods, "backend", "mock")
            said = mock.offered(f"http://127.0.0.1:{self._state.backend_port}/stats", _ANSWER_S)
            if said is not None:
                served = Backend(kind=kind, model=model, stats=msgspec.json.decode(said, type=BackendStats))
        except (OSError, msgspec.MsgspecError) as error:
            text = f"The backend did not answer after the load ({error}): its own count is not known."
            self._manifest.findings.append(Finding(Reason.BACKEND_FAILED, text))
        finally:
            self._folder.write_json("backend.json", served)

    def _load_pods(self) -> None:
        """Where they ran, and whether their image is the one that was looked at before the load."""
        state, pods = self._state, load_pods(self._pods)
        new = [pod.spec.node_name for pod in pods if pod.spec.node_name and pod.spec.node_name not in state.nodes]
        state.nodes += dict.fromkeys(new)
        about = self._manifest.cluster or {}
        known = about.get("nodes", {})
        more = {number: node for number, node in node_facts(self._kube, state.nodes).items() if number not in known}
        servers = [pod for pod in about.get("pods", []) if pod["component"] in SERVERS]
        load = pod_facts(pods, state.nodes)
        self._manifest.cluster = {**about, "nodes": {**known, **more}, "pods": [*servers, *load]}
        for pod in pods:
            image = status.image_id if (status := pod.container(LOCUST)) else ""
            if image not in state.rig_images:
                state.rig_images.append(image)
                found = differences(Container(self._kube, pod.name, "records"), rig_image())
                self._manifest.findings += [one for one in found if one not in self._manifest.findings]

    def _spans(self) -> None:
        recorder = container(self._kube, self._pods, "recorder", "recorder")
        ledger = self._settled(recorder)
        if ledger is not None:
            (self._folder.raw / _LEDGER_FILE).write_bytes(ledger)
        self._fetch(recorder, (RAW_FILE, OTLP_FILE))

    def _settled(self, recorder: Container) -> bytes | None:
        """Its ledger, once two looks in a row say the same: the last spans are a quarter of a second on their way."""
        url, before = f"http://127.0.0.1:{_OTLP_PORT}/ledger", b""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            now = recorder.offered(url, _ANSWER_S)
            if now is None or now == before or time.monotonic() > deadline:
                return now
            before = now
            time.sleep(SETTLE_PAUSE_S)

    def _logs(self) -> None:
        llm = self._state.backend_kind  # what its container is called as well
        servers = {"sut": ("host", "host"), "backend": (llm, "backend"), "recorder": ("recorder", "recorder")}
        wanted = [(pod, *servers[pod.component]) for pod in self._pods if pod.component in servers]
        workers = [pod for pod in load_pods(self._pods) if pod.component == WORKER]
        wanted += [(pod, LOCUST, "coordinator") for pod in self._pods if pod.component == MASTER]
        wanted += [(pod, LOCUST, f"generator-{number}") for number, pod in enumerate(workers)]
        for pod, source, name in wanted:
            if pod.container(source) is not None:
                self._folder.log(name).write_bytes(self._kube.log(pod.name, source))

    def _fetch(self, source: Container, wanted: tuple[str, ...]) -> None:
        for name, size in sorted(source.files(RECORDS).items()):
            if name.startswith(wanted) and "/" not in name:
                into = self._folder.raw / name
                if size > 1 << 20:
                    say(f"fetching {name} from {source.pod}, {size / 1e6:.0f} MB")
                source.fetch(f"{RECORDS}/{name}", size, into)

    def _keep_cgroup(self, file: Path) -> None:
        """Limits, and what came to the counts while the run was measured."""
        readings = [msgspec.json.decode(line, type=CgroupReading) for line in _whole_lines(file)]
        after = [one for one in readings if self._state.idle_ns is None or one.monotonic_ns >= self._state.idle_ns]
        if not after:
            return
        cgroup = self._manifest.cgroup = grown_through([one.cgroup for one in after])
        known = {finding.code for finding in self._manifest.findings}
        if cgroup.oom_kills and Reason.OOM_KILLED not in known:
            text = (
                f"The kernel killed {cgroup.oom_kills} processes of the host at its memory limit. Give it more memory."
            )
            self._manifest.findings.append(Finding(Reason.OOM_KILLED, text))


def _holds_records(pod: Pod, state: State) -> bool:
    """Not one that has not begun, has ended or is going, nor one that took the place of a server of the run: its files
    are its own.
    """
    own = pod.component not in SERVERS or pod.metadata.uid in {was.uid for was in state.servers}
    return own and pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None


def _apart(found: Sequence[Between | None]) -> int | None:
    """How far apart the workers began, by the host's clock."""
    moments = [one.middle_ns for one in found if one is not None]
    return max(moments) - min(moments) if moments else None


def _whole_lines(file: Path) -> list[bytes]:
    content = file.read_bytes() if file.exists() else b""
    return content[: content.rfind(b"\n") + 1].splitlines()
