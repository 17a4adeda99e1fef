"""`manifest.json`: what was run, where, with what, and how its life went. Everything that cannot be measured twice."""

from __future__ import annotations

import os
import platform
import subprocess
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from agentdyno import __version__
from agentdyno.contract.run import SCHEMA_VERSION, BackendStats, Finding, LoadPlan, ServerCounters, WorkerEnd
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import BackendFacts, Framework
from agentdyno.contract.trace import RecorderLedger
from agentdyno.record.calibration import Calibration
from agentdyno.record.cgroup import Cgroup


class Status(StrEnum):
    """How far a run got; `running` in a folder that nobody writes means that the rig was killed."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Machine(msgspec.Struct, frozen=True):
    """The machine, without anything that names it or its user."""

    system: str
    kernel: str
    architecture: str
    cpu_model: str | None
    cores_usable: int
    memory_bytes: int
    python: str

    def speed_facts(self) -> dict[str, Any]:
        """What the speed depends on. Memory and kernel are left out: they differ between two of the same machines."""
        return {"processor": self.cpu_model, "architecture": self.architecture, "cores": self.cores_usable}


class Manifest(msgspec.Struct, kw_only=True):
    """One run. t0_monotonic_ns: the schedule's origin on this machine's monotonic clock, so that records that
    count from t0 and samples that carry the clock's own time can be laid side by side. recorder: None where nothing
    was traced, and where it died before it could say.
    moments_monotonic_ns: `drained` (the load has ended, nothing is in flight) and `rested` (after the idle wait), for
    which the resources say what was held then. cgroup: limits and throttling, where the host is in one.
    heap_profile: the profiler and its settings, in a run whose times and memory are for that reason no figures of the
    framework; None in every other. native_spans: likewise, the framework's own instrumentation and its distributions.
    cluster: where the run was measured on Kubernetes: release, images, pods, nodes by number, how exactly t0 is known
    on the host's clock. None on one machine.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    status: Status = Status.RUNNING
    agentdyno: str = __version__
    commit: str | None = None
    started_utc: str
    command: list[str] = []
    framework: Framework
    workload: Workload
    workload_hash: str
    plan: LoadPlan
    scheduled: dict[str, int]
    profile: str | None = None
    admission: int | None = None
    expected_llm_calls: int | None = None
    expected_tool_calls: int
    backend: BackendFacts
    machine: Machine
    environment: dict[str, Any]
    rig_environment: dict[str, Any]
    cores: dict[str, list[int] | None]
    calibration: dict[str, Calibration] = {}
    run_queue_wait_ms: dict[str, float | None] = {}
    cold_start_ms: float | None = None
    first_answer_ms: float | None = None
    rss_idle_bytes: int | None = None
    moments_monotonic_ns: dict[str, int] = {}
    cgroup: Cgroup | None = None
    t0_monotonic_ns: int | None = None
    workers: list[WorkerEnd] = []
    spans_dropped: int | None = None
    spans_unreadable: int | None = None
    recorder: RecorderLedger | None = None
    unix_offset_ns: int | None = None
    proof_key: str | None = None
    heap_profile: dict[str, Any] | None = None
    native_spans: dict[str, Any] | None = None
    cluster: dict[str, Any] | None = None
    stage_seconds: dict[str, float] = {}
    findings: list[Finding] = []


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """`backend.json`: what the backend said of itself at the end. stats: the mock's, by stage. counters: vLLM's, over
    the whole load. server: what a vLLM says of its version and model. None for one that does not say.
    """

    kind: str
    model: str
    stats: BackendStats | None = None
    counters: ServerCounters | None = None
    server: dict[str, str | int | None] | None = None


def machine_facts() -> Machine:
    """Read them now; in a measured host's environment too, which has nothing of the rig's."""
    given = given_cores()
    return Machine(
        system=platform.system(),
        kernel=platform.release(),
        architecture=platform.machine(),
        cpu_model=_cpu_model(),
        cores_usable=len(given) if given is not None else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
    )


@cache
def given_cores() -> frozenset[int] | None:
    """The cores that this process was given; None where the system does not tell.

    Asked for once: after a run the rig stays on less, and the next run must neither pin by that nor put it on record.
    """
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def source_commit(root: Path) -> str | None:
    """The checkout's commit, with `+changes` when files differ from it; None outside a checkout."""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+changes" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _cpu_model() -> str | None:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or None
