"""A host that is put under one load after the other: started, asked what it counts, waited for until it is itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import token_bytes

from prometheus_client.parser import text_string_to_metric_families

from agentdyno.analysis.capacity import recovered
from agentdyno.contract.capacity import Counters, ProbeAnswer
from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import Finding, Reason
from agentdyno.record.manifest import Manifest, Status
from agentdyno.rig.backends import Backend, start_backend
from agentdyno.rig.cores import CorePlan
from agentdyno.rig.environments.environment import ROOT, Environment, adapter_environment, check
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.processes import Child, ChildFailed, Children, fetch
from agentdyno.rig.servers import Host, WrongAnswer, first_answer, start_host
from agentdyno.rig.task import Task

IDLE_PROBES = 15
_WARM_PROBES = 5
_GRACE_S = 12.0
_FETCH_S = 10.0
_LOOK_S = 0.05
_PROBE_PAUSE_S = 0.1
_NAMES = {"agentdyno_requests", "agentdyno_requests_in_flight", "agentdyno_tasks"}
_ENVIRONMENT = "environment"
_REASONS = {
    "host": Reason.HOST_FAILED,
    "backend": Reason.BACKEND_FAILED,
    "coordinator": Reason.GENERATOR_DIED,
    "generator": Reason.GENERATOR_DIED,
    _ENVIRONMENT: Reason.ENVIRONMENT_DIFFERS,
}


def follow_to_its_end(follow: Callable[[], None], manifest: Manifest, interruption: Interruption, what: str) -> None:
    """Do it; whatever stops it is noted in the manifest, so that what was measured up to then is kept and judged.

    what: its name in the sentence of an interruption.
    """
    manifest.status = Status.FAILED
    try:
        try:
            interruption.listen()
            follow()
        finally:
            interruption.end()
        manifest.status = Status.FINISHED
    except Interrupted:
        manifest.status = Status.INTERRUPTED
        manifest.findings.append(Finding(Reason.INTERRUPTED, f"The {what} was interrupted before its end."))
    except WrongAnswer as error:
        manifest.findings.append(Finding(Reason.NO_SUCCESS, str(error)))
    except ChildFailed as error:
        reason = _REASONS.get(error.role.partition("-")[0], Reason.RIG_FAILED)
        manifest.findings.append(Finding(reason, str(error)))
    except OSError as error:
        manifest.findings.append(Finding(Reason.RIG_FAILED, f"The rig could not go on: {error}."))


class DrivenHost:
    """One framework's host and its backend over a series of loads. number: which process in turn, from 1.

    idle: single requests to the present process before any load, the level that it has recovered to.
    """

    def __init__(self, task: Task, cores: CorePlan) -> None:
        self.key = token_bytes(KEY_BYTES)
        self.number = 0
        self.idle: tuple[ProbeAnswer, ...] = ()
        self._task = task
        self._cores = cores
        self._hosts = Children(task.interruption.held)
        self._backends = Children(task.interruption.held)
        self._host: Host | None = None
        self._backend: Backend | None = None

    @property
    def host(self) -> Host:
        """The present process."""
        if self._host is None:
            raise RuntimeError("the host has not been started")
        return self._host

    @property
    def backend(self) -> Backend:
        """The LLM side."""
        if self._backend is None:
            raise RuntimeError("the backend has not been started")
        return self._backend

    def start(self) -> float:
        """A new host process, in the place of one that is there; returns its cold start, ms.

        Raises ChildFailed, WrongAnswer.
        """
        self._hosts.stop(_GRACE_S)
        environment = adapter_environment(self._task.adapter.path)
        if self._backend is None:
            self._refuse_changed(environment)
            log = self._task.folder.log("backend")
            self._backend = start_backend(self._task.options, self._cores.rest, log, self._backends)
        self._host = start_host(
            self._task.adapter,
            self._task.variant,
            self._task.options,
            backend_url=self._backend.url,
            key=self.key,
            cores=self._cores.host,
            log=self._task.folder.log("host"),
            children=self._hosts,
        )
        self.number += 1
        for _ in range(_WARM_PROBES):
            first_answer(self._host, self._task.options, self.key)
        self.idle = tuple(self.probe() for _ in range(IDLE_PROBES))
        return self._host.cold_start_ms

    def stop(self) -> None:
        """End both."""
        self._hosts.stop(_GRACE_S)
        self._backends.stop(_GRACE_S)

    def children(self) -> list[Child]:
        """Both, as far as they are processes of the rig's."""
        return [child for child in (self.host.child, self.backend.child) if child is not None]

    def refuse_dead(self) -> None:
        """Raises ChildFailed when one of the two has ended."""
        for child in self.children():
            if child.exit_code() is not None:
                text = f"The {child.role} {child.describe_exit()} in the middle of it.{child.log_tail()}"
                raise ChildFailed(child.role, text)

    def probe(self) -> ProbeAnswer:
        """One request by itself."""
        began_ns = time.monotonic_ns()
        try:
            return ProbeAnswer(began_ns, first_answer(self.host, self._task.options, self.key))
        except WrongAnswer:
            return ProbeAnswer(began_ns, None)

    def counters(self) -> Counters:
        """What host and mock have counted up to now; what one of them does not tell is None."""
        moment_ns = time.monotonic_ns()
        outcomes, in_flight, _ = self._host_figures()
        try:
            stats = self.backend.record().stats
        except OSError:
            stats = None
        return Counters(
            monotonic_ns=moment_ns,
            host_in_flight=in_flight,
            host_outcomes=outcomes,
            llm_in_flight=None if stats is None else stats.in_flight,
            llm_calls=None if stats is None else sum(stage.calls for stage in stats.stages.values()),
            llm_cancelled=None if stats is None else stats.cancelled,
        )

    def tasks(self) -> int | None:
        """How many of asyncio's tasks the host has; None where it does not tell."""
        return self._host_figures()[2]

    def drain(self, bound_s: float) -> list[Counters]:
        """Look until nothing is in flight, for so long at most; the looks, the last one being the counters of then."""
        looks: list[Counters] = []
        end = time.monotonic() + bound_s
        while True:
            self._task.interruption.check()
            self.refuse_dead()
            looks.append(self.counters())
            if not (looks[-1].host_in_flight or looks[-1].llm_in_flight) or time.monotonic() > end:
                return looks
            time.sleep(_LOOK_S)

    def recover(self, bound_s: float) -> tuple[list[ProbeAnswer], bool]:
        """Probe until it answers as fast as when idle, for so long at most; the probes, and whether it does."""
        idle = [probe.ms for probe in self.idle if probe.ms is not None]
        probes: list[ProbeAnswer] = []
        end = time.monotonic() + bound_s
        while not (back := recovered(idle, [probe.ms for probe in probes])) and time.monotonic() < end:
            self._task.interruption.check()
            self.refuse_dead()
            probes.append(self.probe())
            if probes[-1].ms is None:
                time.sleep(_PROBE_PAUSE_S)
        return probes, back

    @staticmethod
    def _refuse_changed(environment: Environment) -> None:
        differences = check(environment)
        if differences:
            again = f"Rebuild it: rm -r {environment.path.relative_to(ROOT)}, and run this again."
            raise ChildFailed(_ENVIRONMENT, " ".join([*differences[:5], again]))

    def _host_figures(self) -> tuple[dict[str, int] | None, int | None, int | None]:
        """Outcomes so far, requests in flight, tasks. A program that serves the contract itself may have no metrics."""
        try:
            text = fetch(f"{self.host.url}/metrics", _FETCH_S).decode()
            families = {family.name: family for family in text_string_to_metric_families(text) if family.name in _NAMES}
        except (OSError, ValueError):
            return None, None, None
        counted = families.get("agentdyno_requests")
        outcomes = (
            {s.labels["outcome"]: int(s.value) for s in counted.samples if s.name.endswith("_total")}
            if counted
            else None
        )
        flight, tasks = (
            int(families[name].samples[0].value) if name in families else None
            for name in ("agentdyno_requests_in_flight", "agentdyno_tasks")
        )
        return outcomes, flight, tasks
