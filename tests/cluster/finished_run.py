"""What must hold of a run that is over: the same wherever its pods were, on a cluster (test_e2e.py), in containers
(tests/k8s/test_containers.py) or as processes of this machine (tests/k8s/test_collected_run.py).

All of it is read from the run's folder and held against what was asked for and against this checkout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from agentdyno.audit.run import audit_run
from agentdyno.contract.run import ExitCode, Finding, Reason
from agentdyno.contract.summary import Summary
from agentdyno.record.cgroup import Cgroup
from agentdyno.record.heap_folder import read_index, read_profile
from agentdyno.record.manifest import Manifest, Status, source_commit
from agentdyno.rig.environments.environment import (
    ROOT,
    adapter_environment,
    lock_sha256,
    profiler_environment,
    rig_environment,
)
from agentdyno.rig.environments.frameworks import resolve
from tests.k8s.pods import quantity

# What a machine that does other things at the same time may be found at, and no other reason.
BUSY = frozenset({Reason.GENERATOR_LATE, Reason.GENERATOR_CPU})
Ask = Callable[[str], list[Any]]


@dataclass(frozen=True)
class FinishedRun:
    """A folder and what its two documents say."""

    folder: Path
    summary: Summary
    manifest: Manifest

    @classmethod
    def only(cls, out: Path) -> FinishedRun:
        """The one that there is in a folder for run folders."""
        (folder,) = out.iterdir()
        return cls.of(folder)

    @classmethod
    def of(cls, folder: Path) -> FinishedRun:
        summary = msgspec.json.decode((folder / "summary.json").read_bytes(), type=Summary)
        return cls(folder, summary, msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest))

    # a run

    def must_be_valid(self, code: ExitCode, but_for: frozenset[Reason] = frozenset()) -> None:
        """code: how the bench ended, which says the same. but_for: reasons that are none here."""
        verdict = self.summary.verdict
        assert {finding.code for finding in verdict.reasons} <= but_for, verdict.reasons
        assert verdict.valid is not bool(verdict.reasons)
        assert code is (ExitCode.VALID if verdict.valid else ExitCode.INVALID_RUN)

    def must_be_whole(self, arrivals: int, workers: int) -> None:
        """arrivals: of all stages. All answers were verified, with the Secret's key, or they would not be ok."""
        assert self.manifest.status is Status.FINISHED
        # Each arrival once, and by the worker whose share it is.
        requests = pq.read_table(self.folder / "requests.parquet")
        indexes, by = requests["index"].to_pylist(), requests["worker"].to_pylist()
        assert sorted(indexes) == list(range(arrivals))
        assert {(index % workers, worker) for index, worker in zip(indexes, by, strict=True)} == {
            (worker, worker) for worker in range(workers)
        }
        assert set(requests["outcome"].to_pylist()) == {"ok"}
        # Spans of host and mock, and the host's resources, on one clock.
        received, expected = self.summary.spans.received, self.summary.spans.expected
        assert received == expected
        assert received
        assert self.manifest.recorder is not None
        assert self.manifest.recorder.frames > 2
        assert set(pq.read_table(self.folder / "resources.parquet")["role"].to_pylist()) == {"host"}
        assert self.summary.cpu_ms_per_request is not None
        t0 = self._cluster()["t0"]
        assert t0["by"] == "causality"
        assert [one["width_ns"] >= 0 for one in t0["workers"]] == [True] * workers
        # Nothing is left to be fetched, and all of it is as it was written and adds up.
        assert not (self.folder / "raw").exists()
        assert audit_run(self.folder).faults == []

    def must_be_made_of_this_checkout(self, framework: str) -> None:
        """The client holds locks and each source file in host, mock and rig against those here; it found nothing."""
        assert self.manifest.framework.name == framework
        adapter, _ = resolve(framework)
        assert self.manifest.environment["lock_sha256"] == lock_sha256(adapter_environment(adapter.path))
        assert self.manifest.rig_environment["lock_sha256"] == lock_sha256(rig_environment())
        assert self.manifest.commit == source_commit(ROOT)
        assert Reason.ENVIRONMENT_DIFFERS not in {finding.code for finding in self.manifest.findings}
        found = [(pod["component"], one) for pod in self._cluster()["pods"] for one in pod["containers"].values()]
        assert {component for component, _ in found} == {"sut", "backend", "recorder", "load-master", "load-worker"}
        assert [component for component, one in found if "sha256:" not in (one["image_id"] or "")] == []

    def must_have_run_within(self, cpu: str, memory: str) -> Cgroup:
        """The host's limits: what the chart asked for is what its kernel held it to."""
        (sut,) = (pod for pod in self._cluster()["pods"] if pod["component"] == "sut")
        assert sut["qos"] == "Guaranteed"
        assert sut["containers"]["host"]["resources"]["limits"] == {"cpu": cpu, "memory": memory}
        cgroup = self.manifest.cgroup
        assert cgroup is not None
        assert (cgroup.cpu_limit_cores, cgroup.memory_limit_bytes) == (quantity(cpu), quantity(memory))
        assert cgroup.periods is not None
        assert cgroup.periods >= 0  # also where the container was started anew, and its group with it
        return cgroup

    def must_not_have_met_its_limits(self, cpu: str, memory: str) -> None:
        """periods: counted through all of a load that lasts some tens of seconds, at ten a second."""
        cgroup = self.must_have_run_within(cpu, memory)
        assert cgroup.oom_kills == 0
        assert (cgroup.periods or 0) > 100

    def must_be_seen_by(self, ask: Ask) -> list[dict[str, str]]:
        """Prometheus saw each part of the run, and its rules make figures of that. The labels of the parts' series."""
        which = f'{{run="{self._cluster()["run"]}"}}'
        up = ask(f"max_over_time(up{which}[5m])")
        assert sorted((one["metric"]["role"], one["value"][1]) for one in up) == [
            ("backend", "1"),
            ("generator", "1"),
            ("host", "1"),
        ]
        goodput = ask(f"max_over_time(run:agentdyno_load_goodput:rate20s{which}[5m])")
        assert [float(one["value"][1]) > 0 for one in goodput] == [True]
        assert {one["metric"]["framework"] for one in (*up, *goodput)} == {self.manifest.framework.name}
        return [one["metric"] for one in up]

    # a profile run

    def must_have_its_hosts_heap(self) -> None:
        """Snapshots from its first answer to its end, by the profiler that is pinned here."""
        index = read_index(self.folder)
        assert index is not None
        assert index.gaps == []
        assert len(index.snapshots) >= 3
        assert min(read_profile(self.folder, one).total(("inuse_space", "bytes")) for one in index.snapshots) > 1e6
        assert self.manifest.heap_profile is not None
        assert self.manifest.heap_profile["environment"]["lock_sha256"] == lock_sha256(profiler_environment())
        assert self.summary.verdict.comparable is False

    # limits that bite

    def must_be_throttled_at(self, cpu: str, memory: str) -> None:
        """The CPU limit is noted, with what it was."""
        assert self.must_have_run_within(cpu, memory).throttled_s
        note = _of(Reason.THROTTLED, self.summary.verdict.notes)
        assert f"its limit of {quantity(cpu):g} cores" in note

    def must_be_killed_at(self, code: ExitCode, cpu: str, memory: str) -> None:
        """The memory limit makes the run invalid, with how the host ended."""
        assert code is ExitCode.INVALID_RUN
        assert not self.summary.verdict.valid
        reason = _of(Reason.OOM_KILLED, self.summary.verdict.reasons)
        assert "was killed at its memory limit: ended with exit code 137 (OOMKilled)" in reason
        assert self.must_have_run_within(cpu, memory).memory_peak_bytes

    def image_id(self, component: str, container: str) -> str:
        """Of the image that a container ran, as its node calls it."""
        (pod,) = (pod for pod in self._cluster()["pods"] if pod["component"] == component)
        return str(pod["containers"][container]["image_id"])

    def _cluster(self) -> dict[str, Any]:
        assert self.manifest.cluster is not None
        return self.manifest.cluster


def _of(code: Reason, findings: tuple[Finding, ...]) -> str:
    messages = [finding.message for finding in findings if finding.code is code]
    assert len(messages) == 1, findings
    return messages[0]
