"""The life of a run: prepare, start, warm up, measure, drain, collect, check, write."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agentdyno.contract.run import ExitCode, Finding, Reason
from agentdyno.contract.summary import Summary
from agentdyno.record.cgroup import Cgroup, read_cgroup
from agentdyno.record.manifest import Status
from agentdyno.record.processes import default_reader
from agentdyno.record.sampler import Sampler
from agentdyno.rig import cores
from agentdyno.rig.collect import ask_backend, ask_host, export_clients, keep_records, resource
from agentdyno.rig.conclusion import Conclusion, cannot, disk_or_rig
from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.environment import ROOT, Environment, check, shown
from agentdyno.rig.interruption import Interrupted
from agentdyno.rig.observation import export_to_collector, observed
from agentdyno.rig.preparation import first_manifest
from agentdyno.rig.processes import ChildFailed
from agentdyno.rig.progress import LiveLoad
from agentdyno.rig.run_processes import NoRoom, RunProcesses
from agentdyno.rig.servers import STALLED, Host, WrongAnswer
from agentdyno.rig.snapshots import HeapProfiling, Snapshots, taken_from
from agentdyno.rig.task import Task
from agentdyno.rig.vllm_cpu import backend_environment


class RunStopped(Exception):
    """The run cannot go on; the finding says why."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.finding = Finding(reason, text)


class Run:
    """One run of one framework, from an empty folder to a verdict. Use once.

    heap: sample the host's heap. native: the ready environment of the framework's instrumentation, for its own spans.
    """

    def __init__(self, task: Task, heap: HeapProfiling | None = None, native: Environment | None = None) -> None:
        self.folder = folder = task.folder
        self._options = task.options
        self._name = task.variant.name
        self._native = native
        self._interruption = task.interruption
        self._processes = RunProcesses(task)
        self._environment = self._processes.environment
        self._cores = self._processes.cores
        self._cgroup_before: Cgroup | None = None
        self._sampler = Sampler(folder.raw / "resources.jsonl")
        self._manifest = first_manifest(
            task.options, task.variant, self._environment, self._cores, folder.run_id, heap, native
        )
        self._heap = None if heap is None else heap.options(folder)
        self._snapshots = None if heap is None else Snapshots(folder, heap.interval_s)

    def run(self) -> tuple[Summary, ExitCode]:
        """Live through it. Whatever happens, the children are ended and what was measured is kept and judged."""
        status = Status.FAILED
        try:
            try:
                self._interruption.listen()
                self._measure()
            finally:
                self._interruption.end()  # a signal up to here is raised here, within the outer try
            status = Status.FINISHED
        except Interrupted:
            status = Status.INTERRUPTED
            self._note(Reason.INTERRUPTED, "The run was interrupted before its end.")
        except RunStopped as stopped:
            self._manifest.findings.append(stopped.finding)
        except WrongAnswer as error:
            self._note(Reason.NO_SUCCESS, str(error))
        except NoRoom as error:
            self._note(Reason.DISK_FULL, str(error))
        except ChildFailed as error:
            self._note(_CHILD_REASONS.get(error.role.partition("-")[0], Reason.RIG_FAILED), str(error))
        except OSError as error:
            self._note(disk_or_rig(error), cannot("The rig could not go on", error))
        return self._conclude(status)

    # up to the end of the load

    def _measure(self) -> None:
        manifest, processes = self._manifest, self._processes
        self.folder.reserve()
        self.folder.write_json("manifest.json", manifest)
        self._refuse_changed_environment()
        cores.stay_on(self._cores.rest)
        if self._options.observe is not None:
            export_to_collector()
        manifest.calibration["before"] = cores.calibrate(self._cores.host)
        with self._timed("start"):
            say(f"{self._name}: starting")
            if self._options.plan.trace_every:
                processes.start_recorder(resource(manifest))
            host = processes.start_host(heap=self._heap, native=self._native)
            manifest.cold_start_ms = host.cold_start_ms
            manifest.first_answer_ms = processes.first_answer(host)
            manifest.backend |= processes.told()
        say(f"{self._name}: ready after {manifest.cold_start_ms / 1000:.1f} s, first answer verified")
        reader = default_reader()
        reading = reader.read(host.child.pid, detailed=False)
        manifest.rss_idle_bytes = reading.rss_bytes if reading is not None else None
        for gap in reader.gaps(host.child.pid):
            self._note(Reason.NOT_READABLE, gap)
        self._cgroup_before = read_cgroup(host.child.pid)
        self._start_sampler()
        if self._snapshots is not None:
            self._snapshots.begin(taken_from(host.url), time.monotonic_ns())
        with self._timed("load"):
            with observed(processes, manifest, self._sampler.latest):
                self._follow_load(host)
            self._rest()

    def _refuse_changed_environment(self) -> None:
        served_from = backend_environment(self._options)
        for environment in filter(None, (self._environment, self._native, served_from)):
            differences = check(environment)
            if differences:
                again = f"Rebuild it: rm -r {shown(environment.path, ROOT)}, and run this again."
                raise RunStopped(Reason.ENVIRONMENT_DIFFERS, " ".join([*differences[:5], again]))

    def _start_sampler(self) -> None:
        self._sampler.watch("rig", os.getpid())
        servers = (self._processes.host, self._processes.backend, self._processes.recorder)
        for child in (server.child for server in servers if server is not None):
            if child is not None:
                self._sampler.watch(child.role, child.pid)
        self._sampler.start()

    def _follow_load(self, host: Host) -> None:
        plan = self._options.plan
        load = self._processes.start_load(plan, host, self.folder.raw)
        for child in load:
            self._sampler.watch("generator", child.pid)
        live = LiveLoad(self.folder.raw, plan.warmup_s + plan.duration_s + plan.cooldown_s)

        def look() -> None:
            live.show()
            self._check()
            if self._snapshots is not None:
                self._snapshots.tick()

        try:
            self._processes.follow(load, plan, look)
        finally:
            live.end()
        if self._snapshots is not None:
            self._snapshots.end()

    def _rest(self) -> None:
        """What the host holds once all is answered, and after a while in which nothing is asked of it."""
        moments = self._manifest.moments_monotonic_ns
        moments["drained"] = time.monotonic_ns()
        if not self._options.idle_wait_s:
            return
        say(f"{self._name}: left alone for {self._options.idle_wait_s:g} s")
        with self._timed("idle_wait"):
            self._processes.wait(self._options.idle_wait_s, self._check)
        moments["rested"] = time.monotonic_ns()

    def _check(self) -> None:
        backend = self._processes.backend
        if backend is not None and backend.stalled():
            self._note(Reason.BACKEND_FAILED, STALLED)
        if self._sampler.failure is not None:
            raise self._sampler.failure

    # the end

    def _conclude(self, status: Status) -> tuple[Summary, ExitCode]:
        manifest, end = self._manifest, Conclusion(self.folder, self._manifest, self._interruption)
        manifest.status = status
        manifest.proof_key = self._processes.key.hex()
        with self._timed("end"):
            # Each by itself: what cannot be had any more must not keep the rest from being kept.
            for step in (
                self._end_load,
                self._read_cgroup,
                self._ask_servers,
                self._processes.end_servers,
                self._calibrate_again,
            ):
                end.attempt(step)
        end.attempt(lambda: keep_records(self.folder, manifest))
        end.attempt(lambda: export_clients(self.folder, manifest))
        self.folder.release_reserve()
        if (self.folder.path / "requests.parquet").exists():
            end.attempt(self.folder.drop_raw)
        summary = end.write()
        if self._interruption.asked:
            return summary, ExitCode.INTERRUPTED
        return summary, ExitCode.VALID if summary.verdict.valid else ExitCode.INVALID_RUN

    def _end_load(self) -> None:
        self._processes.end_load()
        self._sampler.stop()
        if self._sampler.failure is not None:
            raise self._sampler.failure

    def _ask_servers(self) -> None:
        host = self._processes.host
        try:
            if host is not None:
                ask_host(self.folder, host.child, host.url, self._manifest)
        finally:
            ask_backend(self.folder, self._processes.backend, self._manifest)

    def _read_cgroup(self) -> None:
        if self._processes.host is not None:
            self._manifest.cgroup = read_cgroup(self._processes.host.child.pid, self._cgroup_before)

    def _calibrate_again(self) -> None:
        self._manifest.calibration["after"] = cores.calibrate(self._cores.host)

    def _note(self, reason: Reason, text: str) -> None:
        self._manifest.findings.append(Finding(reason, text))

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self._manifest.stage_seconds[part] = round(time.monotonic() - begin, 3)


_CHILD_REASONS = {
    "host": Reason.HOST_FAILED,
    "backend": Reason.BACKEND_FAILED,
    "coordinator": Reason.GENERATOR_DIED,
    "generator": Reason.GENERATOR_DIED,
}
