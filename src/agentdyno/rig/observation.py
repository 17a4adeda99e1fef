"""Watching a run from outside: the rig's own metrics, and word of all of a run's metrics to whoever looks.

Every run tells `agentdyno top` of itself in its folder. With OBSERVE it also tells a Prometheus, which reads the
files of one folder for its targets.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from agentdyno.analysis.not_comparable import not_comparable
from agentdyno.contract.campaign import PROBE
from agentdyno.record.export import ENDPOINT_VARIABLES
from agentdyno.record.live import LiveRun, alive, tell, write_whole
from agentdyno.record.manifest import Manifest
from agentdyno.record.sampler import Sample
from agentdyno.rig.environments.building import say
from agentdyno.rig.run_processes import RunProcesses

COLLECTOR = ("127.0.0.1", 4318)  # otel/collector.yaml's OTLP over HTTP
_CONNECT_S = 0.2
_PID_LABEL = "__rig_pid"  # Prometheus drops what begins with two underscores
_GAUGES = {
    "agentdyno_process_resident_memory_bytes": ("rss_bytes", False, "Resident size, summed over a role's processes."),
    "agentdyno_process_proportional_memory_bytes": ("pss_bytes", True, "PSS of the host's processes."),
    "agentdyno_process_threads": ("threads", False, "Threads, by role."),
}

_LOOKS_KEPT = 8
_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)


class Latest(Protocol):
    """The sampler's last samples."""

    def __call__(self, *, detailed: bool) -> Sequence[Sample]:
        """See Sampler.latest."""


class Observation:
    """The metrics of one run, from when its host is ready. Enter it around the load, or around a series of loads, in
    which `tell` says what has changed; use once.

    observe: the folder that Prometheus reads; None: nobody but `agentdyno top` is told. latest: the sampler's last
    samples of each process, ended ones too. bench: the load is that of one bench, and not many loads of a series.
    """

    def __init__(
        self, manifest: Manifest, raw: Path, observe: Path | None, latest: Latest | None = None, *, bench: bool = True
    ) -> None:
        self._manifest = manifest
        self._comparison = _comparison(manifest, bench=bench)
        self._raw = raw
        self._told = None if observe is None else observe / f"{manifest.run_id}.json"
        self._registry = CollectorRegistry()
        self._registry.register(RigMetrics(manifest, latest or _nothing))
        self._urls: dict[str, str] = {}

    def add(self, role: str, url: str | None) -> None:
        """A role's metrics: their URL; None: it has none, or none any more."""
        self._urls.pop(role, None)
        if url is not None:
            self._urls[role] = url

    def __enter__(self) -> Observation:
        """Serve and tell. Raises OSError."""
        self._server, self._thread = start_http_server(0, addr="127.0.0.1", registry=self._registry)
        self.add("rig", f"http://127.0.0.1:{self._server.server_port}/metrics")
        if self._told is not None:
            self._told.parent.mkdir(parents=True, exist_ok=True)
            forget_the_dead(self._told.parent)
        self.tell()
        return self

    def tell(self) -> None:
        """Where the metrics are now. Raises OSError."""
        manifest = self._manifest
        run = LiveRun(
            run_id=manifest.run_id,
            framework=manifest.framework.name,
            scenario=manifest.plan.scenario,
            backend=str(manifest.backend["kind"]),
            pid=os.getpid(),
            metrics=self._urls,
        )
        tell(self._raw, run)
        if self._told is not None:
            write_whole(self._told, json.dumps(targets(run, self._comparison), indent=1).encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the word back; Prometheus then knows that the series have ended."""
        if self._told is not None:
            self._told.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def observed(
    processes: RunProcesses, manifest: Manifest, latest: Latest | None = None, *, bench: bool = True
) -> Observation:
    """The observation of a run whose servers are ready."""
    watching = Observation(manifest, processes.task.folder.raw, processes.task.options.observe, latest, bench=bench)
    watching.add("load", f"http://127.0.0.1:{processes.metrics_port}/metrics")
    watching.add("host", None if processes.host is None else f"{processes.host.url}/metrics")
    watching.add("backend", None if processes.backend is None else processes.backend.metrics_url)
    return watching


class RigMetrics(Collector):
    """Which run this is, and what the sampler last saw of its processes."""

    def __init__(self, manifest: Manifest, latest: Latest) -> None:
        self._manifest = manifest
        self._latest = latest
        self._started_s = time.time()

    def collect(self) -> Iterator[Metric]:
        """Run info; CPU and memory by role."""
        manifest = self._manifest
        info = {
            "run": manifest.run_id,
            "framework": manifest.framework.name,
            "framework_version": manifest.framework.version or "",
            "approach": manifest.framework.approach,
            "scenario": manifest.plan.scenario,
            "backend": str(manifest.backend["kind"]),
            "workload_hash": manifest.workload_hash,
        }
        yield InfoMetricFamily("agentdyno_run", "The run that this is.", value=info)
        yield GaugeMetricFamily("agentdyno_run_start_time_seconds", "Unix time of its load.", value=self._started_s)
        samples = self._latest(detailed=False)
        yield _by_role(
            CounterMetricFamily("agentdyno_process_cpu_seconds", "User and system, by role.", labels=("role",)),
            samples,
            _cpu_s,
        )
        yield _by_role(
            CounterMetricFamily("agentdyno_process_run_queue_wait_seconds", "Ready, without a core.", labels=("role",)),
            samples,
            lambda s: s.reading.run_queue_wait_s,
        )
        last_look = max((sample.look for sample in samples), default=0)
        for name, (field, detailed, text) in _GAUGES.items():
            # A process that has ended holds nothing any more; a detailed look comes only now and then.
            there = [it for it in self._latest(detailed=detailed) if it.look >= last_look - _LOOKS_KEPT]
            yield _by_role(GaugeMetricFamily(name, text, labels=("role",)), there, partial(_read, field))


def targets(run: LiveRun, comparison: dict[str, str]) -> list[dict[str, object]]:
    """The run as Prometheus' file_sd reads it: a target for each role, with the labels that all its series get.

    comparison: those that say with which runs it may be compared.
    """
    found: list[dict[str, object]] = []
    for role, url in sorted(run.metrics.items()):
        parts = urlsplit(url)
        labels = {
            "run": run.run_id,
            "framework": run.framework,
            "scenario": run.scenario,
            "backend": run.backend,
            "role": role,
            **comparison,
            "__scheme__": parts.scheme,
            "__metrics_path__": parts.path,
            _PID_LABEL: str(run.pid),
        }
        found.append({"targets": [parts.netloc], "labels": labels})
    return found


def forget_the_dead(folder: Path) -> None:
    """Remove the word of runs whose rig was killed before it could."""
    for file in folder.glob("*.json"):
        with suppress(OSError, ValueError, LookupError):
            if not alive(int(json.loads(file.read_bytes())[0]["labels"][_PID_LABEL])):
                file.unlink(missing_ok=True)


def export_to_collector() -> None:
    """Let the run's spans also go to the collector of `make dashboards`, where it runs and nobody said otherwise."""
    if any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return
    with suppress(OSError), socket.create_connection(COLLECTOR, _CONNECT_S):
        os.environ[ENDPOINT_VARIABLES[-1]] = f"http://{COLLECTOR[0]}:{COLLECTOR[1]}"
        say("traces also go to the collector on this machine")


def _comparison(manifest: Manifest, *, bench: bool) -> dict[str, str]:
    """A probe overloads a host with few seats, so it is no measurement of the framework either."""
    if not bench or manifest.profile == PROBE or any(not_comparable(manifest)):
        return {"compared": "no"}
    return {"compared": "yes", "rate": f"{manifest.plan.rate:g}"}


def _nothing(*, detailed: bool) -> Sequence[Sample]:
    """Where there is no sampler."""
    return ()


def _by_role(family: _Family, samples: Sequence[Sample], value: Callable[[Sample], float | None]) -> _Family:
    """The sums by role; a role of which one process could not be read has none."""
    found: dict[str, list[float | None]] = {}
    for sample in samples:
        found.setdefault(sample.role, []).append(value(sample))
    for role, values in sorted(found.items()):
        known = [one for one in values if one is not None]
        if len(known) == len(values):
            family.add_metric((role,), sum(known))
    return family


def _read(field: str, sample: Sample) -> float | None:
    value: float | None = getattr(sample.reading, field)
    return value


def _cpu_s(sample: Sample) -> float | None:
    reading = sample.reading
    if reading.cpu_s is not None or reading.cpu_user_s is None or reading.cpu_system_s is None:
        return reading.cpu_s
    return reading.cpu_user_s + reading.cpu_system_s
