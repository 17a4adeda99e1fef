"""The life of a run: prepare, start, warm up, measure, drain, collect, check, write."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from agentdyno.analysis.figures import run_queue_waits_ms
from agentdyno.analysis.run_data import RunData, read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.errors import UserError
from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import ExitCode, Finding, Reason
from agentdyno.contract.summary import Summary
from agentdyno.load.records import DISK_FULL_EXIT
from agentdyno.record.cgroup import Cgroup, read_cgroup
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Status
from agentdyno.record.processes import default_reader
from agentdyno.record.sampler import Sampler
from agentdyno.rig import cores
from agentdyno.rig.building import say
from agentdyno.rig.collect import ask_backend, ask_host, export_clients, keep_records, resource
from agentdyno.rig.environments import ROOT, adapter_environment, check
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.load import start_load
from agentdyno.rig.observation import Observation, export_to_collector
from agentdyno.rig.options import BenchOptions
from agentdyno.rig.preparation import first_manifest
from agentdyno.rig.processes import Child, ChildFailed, Children
from agentdyno.rig.progress import LiveLoad
from agentdyno.rig.servers import (
    Backend,
    Host,
    RecorderProcess,
    WrongAnswer,
    first_answer,
    start_backend,
    start_host,
    start_recorder,
)
from agentdyno.rig.snapshots import HeapProfiling, Snapshots

_POLL_S = 0.2
_LOAD_START_S = 30.0
_HOST_GRACE_S = 12.0
_OTHER_GRACE_S = 3.0
_RECORDER_GRACE_S = 6.0  # it may have spans to export
_MAKE_ROOM = "Make room on the disk and run it again."


class RunStopped(Exception):
    """The run cannot go on; the finding says why."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.finding = Finding(reason, text)


class Run:
    """One run of one framework, from an empty folder to a verdict. Use once.

    interruption: entered already; a signal that it noted stops the run. heap: sample the host's heap.
    """

    def __init__(
        self,
        options: BenchOptions,
        adapter: AdapterFolder,
        variant: Variant,
        folder: RunFolder,
        interruption: Interruption,
        heap: HeapProfiling | None = None,
    ) -> None:
        self.folder = folder
        self._options = options
        self._adapter = adapter
        self._variant = variant
        self._environment = adapter_environment(adapter.path)
        self._cores = cores.plan()
        self._key = secrets.token_bytes(KEY_BYTES)
        self._interruption = interruption
        self._servers = Children(interruption.held)
        self._generators = Children(interruption.held)
        self._recorders = Children(interruption.held)
        self._backend: Backend | None = None
        self._recorder: RecorderProcess | None = None
        self._host: Host | None = None
        self._cgroup_before: Cgroup | None = None
        self._sampler = Sampler(folder.raw / "resources.jsonl")
        self._manifest = first_manifest(options, variant, self._environment, self._cores, folder.run_id, heap)
        self._heap = None if heap is None else heap.options(folder)
        self._snapshots = None if heap is None else Snapshots(folder, heap)

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
            self._note(Reason.NO_SUCCESS, str(error) + (self._host.child.log_tail() if self._host else ""))
        except ChildFailed as error:
            self._note(_CHILD_REASONS.get(error.role.partition("-")[0], Reason.RIG_FAILED), str(error))
        except OSError as error:
            self._note(_disk_or_rig(error), _cannot("The rig could not go on", error))
        return self._conclude(status)

    # up to the end of the load

    def _measure(self) -> None:
        manifest, options = self._manifest, self._options
        self.folder.reserve()
        self.folder.write_json("manifest.json", manifest)
        self._refuse_changed_environment()
        cores.stay_on(self._cores.rest)
        if options.observe is not None:
            export_to_collector()
        manifest.calibration["before"] = cores.calibrate(self._cores.host)
        with self._timed("start"):
            spans = self._start_recorder() if options.plan.trace_every else None
            self._backend = start_backend(
                options, self._cores.rest, self.folder.log("backend"), self._servers, spans=spans
            )
            say(f"{self._variant.name}: starting")
            self._host = start_host(
                self._environment.python,
                self._adapter,
                self._variant,
                options,
                backend_url=self._backend.url,
                key=self._key,
                cores=self._cores.host,
                log=self.folder.log("host"),
                children=self._servers,
                spans=spans,
                heap=self._heap,
            )
            manifest.cold_start_ms = self._host.cold_start_ms
            manifest.first_answer_ms = first_answer(self._host.url, options, self._key)
        say(f"{self._variant.name}: ready after {manifest.cold_start_ms / 1000:.1f} s, first answer verified")
        reading = default_reader().read(self._host.child.pid, detailed=False)
        manifest.rss_idle_bytes = reading.rss_bytes if reading is not None else None
        self._cgroup_before = read_cgroup(self._host.child.pid)
        self._start_sampler()
        if self._snapshots is not None:
            self._snapshots.begin(self._host.url)
        with self._timed("load"):
            self._follow_load(self._host)

    def _start_recorder(self) -> str:
        self._recorder = start_recorder(self.folder, resource(self._manifest), self._cores.rest, self._recorders)
        return self._recorder.address

    def _refuse_changed_environment(self) -> None:
        differences = check(self._environment)
        if differences:
            again = f"Rebuild it: rm -r {self._environment.path.relative_to(ROOT)}, and run this again."
            raise RunStopped(Reason.ENVIRONMENT_DIFFERS, " ".join([*differences[:5], again]))

    def _start_sampler(self) -> None:
        self._sampler.watch("rig", os.getpid())
        if self._host is not None:
            self._sampler.watch("host", self._host.child.pid)
        if self._backend is not None and self._backend.child is not None:
            self._sampler.watch("backend", self._backend.child.pid)
        if self._recorder is not None:
            self._sampler.watch("recorder", self._recorder.child.pid)
        self._sampler.start()

    def _follow_load(self, host: Host) -> None:
        with self._observed(host) as observation:
            self._watch_load(host, observation.load_port)
        self._rest()

    def _observed(self, host: Host) -> Observation:
        observation = Observation(self._manifest, self.folder.raw, self._options.observe, self._sampler.latest)
        observation.add("host", host.url)
        observation.add("backend", self._backend.url if self._backend is not None else None)
        return observation

    def _watch_load(self, host: Host, metrics_port: int) -> None:
        plan = self._options.plan
        raw, rest = self.folder.raw, self._cores.rest
        load = start_load(
            plan, host.url, raw, self._key, rest, self.folder.log, self._generators, metrics_port=metrics_port
        )
        for child in load:
            self._sampler.watch("generator", child.pid)
        total_s = plan.warmup_s + plan.duration_s + plan.cooldown_s
        deadline = time.monotonic() + _LOAD_START_S + total_s + plan.timeout_s
        live = LiveLoad(self.folder.raw, total_s)
        try:
            while load[0].exit_code() is None:
                self._interruption.check()
                live.show()
                self._check_servers()
                if self._snapshots is not None:
                    self._snapshots.tick(host.url)
                if time.monotonic() > deadline:
                    raise RunStopped(Reason.GENERATOR_DIED, f"The load generator did not end.{load[0].log_tail()}")
                time.sleep(_POLL_S)
        finally:
            live.end()
        self._check_load(load[0])
        if self._snapshots is not None:
            self._snapshots.end(host.url)

    def _rest(self) -> None:
        """What the host holds once all is answered, and after a while in which nothing is asked of it."""
        moments = self._manifest.moments_monotonic_ns
        moments["drained"] = time.monotonic_ns()
        if not self._options.idle_wait_s:
            return
        say(f"{self._variant.name}: left alone for {self._options.idle_wait_s:g} s")
        with self._timed("idle_wait"):
            end = time.monotonic() + self._options.idle_wait_s
            while (left := end - time.monotonic()) > 0:
                self._interruption.check()
                self._check_servers()
                time.sleep(min(_POLL_S, left))
        moments["rested"] = time.monotonic_ns()

    def _check_servers(self) -> None:
        backend = self._backend
        for child, reason in (
            (self._host.child if self._host else None, Reason.HOST_FAILED),
            (backend.child if backend else None, Reason.BACKEND_FAILED),
        ):
            if child is not None and child.exit_code() is not None:
                text = f"The {child.role} {child.describe_exit()} in the middle of the run.{child.log_tail()}"
                raise RunStopped(reason, text)
        if backend is not None and backend.stalled():
            self._note(Reason.BACKEND_FAILED, "The backend stalled: it missed three health checks in a row.")
        if self._sampler.failure is not None:
            raise self._sampler.failure

    def _check_load(self, first: Child) -> None:
        if first.exit_code() == DISK_FULL_EXIT:
            text = f"The load generator could not write its records. {_MAKE_ROOM}{first.log_tail()}"
            raise RunStopped(Reason.DISK_FULL, text)
        if first.exit_code() != 0:
            raise RunStopped(Reason.GENERATOR_DIED, f"The load generator {first.describe_exit()}.{first.log_tail()}")

    # the end

    def _conclude(self, status: Status) -> tuple[Summary, ExitCode]:
        manifest = self._manifest
        manifest.status = status
        manifest.proof_key = self._key.hex()
        with self._timed("end"):
            # Each by itself: what cannot be had any more must not keep the rest from being kept.
            for step in (
                self._end_load,
                self._read_cgroup,
                self._ask_servers,
                self._end_servers,
                self._calibrate_again,
            ):
                self._try(step)
        self._try(lambda: keep_records(self.folder, manifest))
        self._try(lambda: export_clients(self.folder, manifest))
        self.folder.release_reserve()
        if (self.folder.path / "requests.parquet").exists():
            self._try(self.folder.drop_raw)
        summary = self._write()
        if self._interruption.asked:
            return summary, ExitCode.INTERRUPTED
        return summary, ExitCode.VALID if summary.verdict.valid else ExitCode.INVALID_RUN

    def _write(self) -> Summary:
        """Summary and manifest; again, when what happened meanwhile belongs into them."""
        manifest = self._manifest
        for _ in range(2):
            if self._interruption.asked and manifest.status is Status.FINISHED:
                manifest.status = Status.INTERRUPTED
                self._note(Reason.INTERRUPTED, "The run was interrupted while it was ending; all it measured is kept.")
            known = len(manifest.findings)
            summary = self._summarise()
            self._try(partial(self.folder.write_json, "summary.json", summary))
            self._try(partial(self.folder.write_json, "manifest.json", manifest))
            unsaid = self._interruption.asked and manifest.status is Status.FINISHED
            if len(manifest.findings) == known and not unsaid:
                break
        return summary

    def _try(self, step: Callable[[], None]) -> None:
        """Do one step of the ending; when it fails the run has failed, and says why."""
        manifest = self._manifest
        try:
            step()
        except OSError as error:
            finding = Finding(_disk_or_rig(error), _cannot("Not everything could be kept", error))
        except UserError as error:
            finding = Finding(Reason.RIG_FAILED, str(error))
        else:
            return
        if manifest.status is Status.FINISHED:
            manifest.status = Status.FAILED
        if finding.code not in {known.code for known in manifest.findings}:
            manifest.findings.append(finding)

    def _summarise(self) -> Summary:
        manifest = self._manifest
        try:
            data = read_run(self.folder.path, manifest=manifest)
            manifest.run_queue_wait_ms = run_queue_waits_ms(data)
            return summarise(data)
        except UserError as error:
            manifest.findings.append(Finding(Reason.RIG_FAILED, str(error)))
            manifest.status = Status.FAILED
            nothing = RunData(
                self.folder.path, manifest, requests=None, resources=None, gc=None, loop=None, spans=None, backend=None
            )
            return summarise(nothing)

    def _end_load(self) -> None:
        """The load first, so that it can write what it still has."""
        self._generators.stop(_OTHER_GRACE_S)
        self._sampler.stop()
        if self._sampler.failure is not None:
            raise self._sampler.failure

    def _ask_servers(self) -> None:
        try:
            if self._host is not None:
                ask_host(self.folder, self._host.child, self._host.url, self._manifest)
        finally:
            ask_backend(self.folder, self._backend, self._manifest)

    def _read_cgroup(self) -> None:
        if self._host is not None:
            self._manifest.cgroup = read_cgroup(self._host.child.pid, self._cgroup_before)

    def _end_servers(self) -> None:
        # A host that never became ready has nothing to drain, and would not even hear of it.
        self._servers.stop(_HOST_GRACE_S if self._host is not None else _OTHER_GRACE_S)
        self._recorders.stop(_RECORDER_GRACE_S)  # after those that send to it

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


def _disk_or_rig(error: OSError) -> Reason:
    return Reason.DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else Reason.RIG_FAILED


def _cannot(what: str, error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    advice = f" {_MAKE_ROOM}" if _disk_or_rig(error) is Reason.DISK_FULL else ""
    return f"{what}: {error.strerror or error}{where}.{advice}"
