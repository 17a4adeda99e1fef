"""The life of a run on a cluster: its load, what befalls its pods meanwhile, its records, its verdict.

What must be known to go on is in `raw/` of the run folder from the beginning, so that a run whose rig was cut off can
be taken up again: `resume` follows it to its end where it still goes on, and fetches what it left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
import pyarrow.compute as pc

from agentdyno.analysis.figures import whole_looks
from agentdyno.cluster import vllm
from agentdyno.cluster.collect import Collection
from agentdyno.cluster.kube import ApiLost, Kube, NotThere
from agentdyno.cluster.objects import Pod
from agentdyno.cluster.preparation import beside_host, container, run_labels, run_pods
from agentdyno.cluster.programs import Container
from agentdyno.cluster.release import Release
from agentdyno.cluster.settings import LOAD_OFF, LOAD_ON, State
from agentdyno.cluster.watch import (
    ENDED,
    LOCUST,
    disturbances,
    load_ended,
    load_pods,
    load_running,
    lost_load,
    why_not_started,
)
from agentdyno.contract.errors import UserError
from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.run import ExitCode, Finding, Reason
from agentdyno.contract.summary import Summary
from agentdyno.host.app import HEAP_PATH
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Manifest, Status
from agentdyno.rig.backend_options import VLLM
from agentdyno.rig.collect import export_clients, keep_records
from agentdyno.rig.conclusion import Conclusion, cannot, disk_or_rig
from agentdyno.rig.environments.building import say
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.servers import FirstRequest, WrongAnswer
from agentdyno.rig.snapshots import SNAPSHOT_S, Snapshots

STATE_FILE = "cluster-run.json"
LOOK_S = 2.0
_SAY_S = 10.0
_START_S = 120.0  # for the load's pods to be scheduled, pulled and started
_DRAIN_S = 60.0
_STOP_S = 20.0
AGAIN = "What was measured is still in the pods: agentdyno fetch RUN brings it here, once the API answers."


class RunStopped(Exception):
    """The run cannot go on, for the reasons that it has found."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__(findings[0].message)
        self.findings = findings


def _profile(beside: Container, url: str) -> bytes:
    """A heap profile of the host. Raises OSError, KubeError, ApiLost."""
    content = beside.offered(url, SNAPSHOT_S)
    if content is None:
        raise OSError("it carries no profiler")
    return content


class ClusterRun:
    """One run, from its first request to its verdict. Use once. interruption: entered already."""

    def __init__(
        self,
        folder: RunFolder,
        manifest: Manifest,
        state: State,
        release: Release,
        kube: Kube,
        interruption: Interruption,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._state = state
        self._release = release
        self._kube = kube
        self._interruption = interruption
        self._reachable = True
        heap = manifest.heap_profile
        self._snapshots = None if heap is None else Snapshots(folder, heap["interval_s"])

    def run(self, first: FirstRequest, key: bytes) -> tuple[Summary, ExitCode]:
        """Ask once, put the load on, follow it. The host is ready, and `state.servers` are its pods."""
        self._manifest.proof_key = key.hex()
        return self._live(lambda: self._measure(first, key))

    def resume(self) -> tuple[Summary, ExitCode]:
        """Go on with a run that another rig began, or this one before it was cut off.

        Raises KubeError when there is nothing left to go on with.
        """
        pods = self._kube.pods(run_labels(self._state))
        load = load_pods(pods)
        if not pods or (load and all(pod.status.phase in ENDED for pod in load)):
            raise NotThere(
                f"The records of run {self._state.run} are gone from the namespace {self._state.namespace}, and so "
                "are the pods that held them, or they have ended: a later run has taken their place, or they were "
                "kept as long as they could be (load.keepRecordsSeconds of the chart)."
            )
        return self._live(self._go_on)

    def _live(self, part: Callable[[], None]) -> tuple[Summary, ExitCode]:
        manifest, status = self._manifest, Status.FAILED
        try:
            try:
                self._interruption.listen()
                part()
            finally:
                self._interruption.end()
            status = Status.FINISHED
        except Interrupted:
            status = Status.INTERRUPTED
            self._note(Reason.INTERRUPTED, "The run was interrupted before its end.")
        except RunStopped as stopped:
            manifest.findings += [one for one in stopped.findings if one not in manifest.findings]
        except WrongAnswer as error:
            self._note(Reason.NO_SUCCESS, str(error))
        except ApiLost as error:
            self._lost(error)
        except UserError as error:
            self._note(Reason.RIG_FAILED, str(error))
        except OSError as error:
            self._note(disk_or_rig(error), cannot("The rig could not go on", error))
        except Exception:  # a fault of ours, to be seen as such; but no load is left behind
            with suppress(UserError):
                self._remove_load()
            raise
        return self._conclude(status)

    # up to the end of the load

    def _measure(self, first: FirstRequest, key: bytes) -> None:
        manifest = self._manifest
        self._save()
        self._folder.reserve()
        self._folder.write_json("manifest.json", manifest)
        pods = self._pods()
        host, beside = container(self._kube, pods, "sut", "host"), beside_host(self._kube, pods, self._state)
        manifest.calibration["before"] = host.calibrated()
        asked, body = beside.ask(self._url(INVOKE_PATH), timeout_s=first.timeout_s, method="POST", body=first.body)
        if asked.status is None:
            raise WrongAnswer(f"The first request got no answer: {asked.error}.")
        first.check(asked.status, body, key)
        manifest.first_answer_ms = asked.ms
        self._state.idle_ns = beside.mark().there_ns
        if self._state.backend_kind == VLLM:
            self._state.vllm_before = vllm.counters(beside, self._state)
            manifest.backend |= vllm.told(beside, self._state, str(manifest.backend["model"]))
        self._save()
        self._folder.write_json("manifest.json", manifest)  # again: what is known by now is for whoever resumes
        self._begin_snapshots(beside)
        say(f"{manifest.framework.name}: first answer verified; {self._state.workers} load workers are started")
        with self._timed("load"):
            with self._interruption.held():  # helm, cut off in its middle, leaves a release that it refuses to change
                self._release.change(LOAD_ON)
            self._follow()
            self._rest(beside)
        manifest.calibration["after"] = host.calibrated()

    def _go_on(self) -> None:
        """What another rig began: to the end of its load, where that has not come yet."""
        pods = self._pods()
        if load_ended(pods, self._state.workers) or not any(pod.component == "sut" for pod in pods):
            return self._follow()
        beside = beside_host(self._kube, pods, self._state)
        self._begin_snapshots(beside)
        self._follow()
        return self._rest(beside)

    def _begin_snapshots(self, beside: Container) -> None:
        if self._snapshots is not None:
            url = self._url(HEAP_PATH)
            self._snapshots.begin(lambda: _profile(beside, url), beside.mark().there_ns)

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._state.sut_port}{path}"

    def _rest(self, beside: Container) -> None:
        """The last snapshot, and what the host holds when nothing is asked of it any more."""
        if self._snapshots is not None:
            self._snapshots.end()
        self._state.drained_ns = beside.mark().there_ns
        self._save()
        wait_s = self._state.idle_wait_s
        if not wait_s:
            return
        say(f"{self._manifest.framework.name}: left alone for {wait_s:g} s")
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            self._interruption.check()
            self._look(self._pods())
            time.sleep(min(LOOK_S, max(0.0, end - time.monotonic())))
        self._state.rested_ns = beside.mark().there_ns
        self._save()

    def _follow(self) -> None:
        """Until all of the load has ended. Raises RunStopped for what befalls a pod, ApiLost."""
        state, plan = self._state, self._manifest.plan
        total_s = plan.warmup_s + plan.duration_s + plan.cooldown_s
        begin = time.monotonic()
        started, said = None, begin
        while True:
            self._interruption.check()
            pods = self._pods()
            self._look(pods)
            if load_ended(pods, state.workers):
                return
            if self._snapshots is not None:
                self._snapshots.tick()
            now = time.monotonic()
            if started is None and load_running(pods, state.workers):
                started = now
            if started is None and now - begin > _START_S + state.ready_timeout_s:
                text = f"The load did not start within {now - begin:.0f} s. {why_not_started(pods)}"
                raise RunStopped(Finding(Reason.RIG_FAILED, text))
            if started is not None and now - started > total_s + plan.timeout_s + _START_S + _DRAIN_S:
                raise RunStopped(Finding(Reason.GENERATOR_DIED, "The load did not come to its end in time."))
            if now - said > _SAY_S:
                said = now
                where = "starting" if started is None else f"{min(now - started, total_s):4.0f}/{total_s:.0f} s"
                say(f"load  {where}  {len(load_pods(pods))} pods")
            time.sleep(LOOK_S)

    def _look(self, pods: list[Pod]) -> None:
        state = self._state
        found = self._befallen(pods)
        names = {pod.name for pod in load_pods(pods)}
        if not names <= set(state.load_seen):
            state.load_seen = sorted(names | set(state.load_seen))
            self._save()
        if found:
            raise RunStopped(*found)

    def _befallen(self, pods: list[Pod]) -> list[Finding]:
        state = self._state
        return disturbances(state.servers, pods) + lost_load(pods, state.load_seen, state.workers)

    def _pods(self) -> list[Pod]:
        return run_pods(self._kube, self._state)

    # the end

    def _conclude(self, status: Status) -> tuple[Summary, ExitCode]:
        manifest, end = self._manifest, Conclusion(self._folder, self._manifest, self._interruption)
        manifest.status = status
        self._folder.release_reserve()
        whole = False
        if self._reachable:
            with self._timed("end"):
                whole = self._collect(end, stop=status is not Status.FINISHED)
        if whole:
            end.attempt(lambda: export_clients(self._folder, manifest))
            end.attempt(self._folder.drop_raw)
        summary = end.write()
        if self._interruption.asked:
            return summary, ExitCode.INTERRUPTED
        return summary, ExitCode.VALID if summary.verdict.valid else ExitCode.INVALID_RUN

    def _collect(self, end: Conclusion, *, stop: bool) -> bool:
        """Stop what still runs of the load, fetch, and remove the load. False when the API was lost on the way."""
        try:
            pods = self._pods()
            for finding in self._befallen(pods):  # in the last moments too
                self._note(finding.code, finding.message)
            if stop:
                pods = self._stopped(pods)
            collection = Collection(self._kube, self._state, pods, self._folder, self._manifest)
            fetched = not [step for step in collection.steps() if not end.attempt(step)]
            end.attempt(self._moments)
            kept = end.attempt(lambda: keep_records(self._folder, self._manifest, collection.t0))
            if not (fetched and kept) and not self._interruption.asked:
                sys.stderr.write(f"Not all of it could be fetched. {AGAIN}\n")
                return False
            end.attempt(self._remove_load)
            return kept
        except ApiLost as error:
            self._lost(error)
        except UserError as error:
            self._note(Reason.RIG_FAILED, str(error))
        return False

    def _remove_load(self) -> None:
        """Its Jobs and pods; not those of another run, which the release may be in the middle of by now."""
        if self._release.values()["run"]["id"] == self._state.run:
            self._release.change(LOAD_OFF)

    def _stopped(self, pods: list[Pod]) -> list[Pod]:
        """SIGTERM to master and workers, which write what they have. Then a look at them all."""
        deadline = time.monotonic() + _STOP_S
        for pod in load_pods(pods):
            status = pod.container(LOCUST)
            if status is not None and status.state.running is not None:
                try:
                    Container(self._kube, pod.name, LOCUST).end()
                except UserError as error:  # most often it has just ended, and what is to come of it comes
                    say(f"{pod.name} could not be stopped: {error}")
        while time.monotonic() < deadline:
            pods = self._pods()
            if all(pod.ended(LOCUST) is not None or pod.status.phase == "Pending" for pod in load_pods(pods)):
                break
            time.sleep(LOOK_S)
        return pods

    def _moments(self) -> None:
        """What the host held when it was ready, and where the load had ended, by its own clock."""
        state, manifest = self._state, self._manifest
        if state.drained_ns is not None:
            manifest.moments_monotonic_ns["drained"] = state.drained_ns
        if state.rested_ns is not None:
            manifest.moments_monotonic_ns["rested"] = state.rested_ns
        samples = self._folder.samples()
        host = samples.filter(pc.equal(samples["role"], "host"))
        if state.idle_ns is None or not host.num_rows:
            return
        looks = whole_looks(host, "rss_bytes")
        looks = looks.filter(pc.greater_equal(looks["monotonic_ns_min"], state.idle_ns)).sort_by("look")
        manifest.rss_idle_bytes = looks["rss_bytes_sum"][0].as_py() if looks.num_rows else None

    def _lost(self, error: ApiLost) -> None:
        self._reachable = False
        self._note(Reason.API_LOST, f"{error} {AGAIN}")

    def _save(self) -> None:
        (self._folder.raw / STATE_FILE).write_bytes(msgspec.json.encode(self._state))

    def _note(self, reason: Reason, text: str) -> None:
        finding = Finding(reason, text)
        if finding not in self._manifest.findings:
            self._manifest.findings.append(finding)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self._manifest.stage_seconds[part] = round(time.monotonic() - begin, 3)
