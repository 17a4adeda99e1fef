"""The processes of a run: recorder, backend, host and load generators, started with one key, watched, and ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_bytes

from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import LoadPlan
from agentdyno.contract.summary import BackendFacts
from agentdyno.load.records import DISK_FULL_EXIT
from agentdyno.rig import cores
from agentdyno.rig.backends import Backend, start_backend
from agentdyno.rig.environments.environment import Environment, adapter_environment
from agentdyno.rig.load import start_load
from agentdyno.rig.processes import Child, ChildFailed, Children, free_port
from agentdyno.rig.servers import (
    HeapOptions,
    Host,
    NativeOptions,
    RecorderProcess,
    first_answer,
    start_host,
    start_recorder,
)
from agentdyno.rig.task import Task

MAKE_ROOM = "Make room on the disk and run it again."
_POLL_S = 0.2
_LOAD_START_S = 30.0
_HOST_GRACE_S = 12.0
_OTHER_GRACE_S = 3.0
_RECORDER_GRACE_S = 6.0  # it may have spans to export


class NoRoom(ChildFailed):
    """The load generator could not write its records: the disk is full."""


class RunProcesses:
    """One framework's servers and the load on them, each on its cores. Use once.

    Their logs go to the task's folder; no process that is being started is lost to a signal.
    recorder, backend, host: None until they are ready. metrics_port: where the load's metrics are served.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.environment = adapter_environment(task.adapter.path)
        self.cores = cores.plan()
        self.key = token_bytes(KEY_BYTES)
        self.metrics_port = free_port()
        self.recorder: RecorderProcess | None = None
        self.backend: Backend | None = None
        self.host: Host | None = None
        self._servers = Children(task.interruption.held)
        self._generators = Children(task.interruption.held)
        self._recorders = Children(task.interruption.held)

    def start_recorder(self, resource: Mapping[str, str]) -> None:
        """Before the others, which then send it their spans. resource: see servers. Raises ChildFailed."""
        self.recorder = start_recorder(
            self.task.folder, resource, self.cores.rest, self._recorders, otlp=self.task.options.otlp
        )

    def start_host(self, heap: HeapOptions | None = None, native: Environment | None = None) -> Host:
        """The backend and then the host, ready. heap: see servers. native: the ready environment of the framework's
        instrumentation, whose spans go to the recorder. Raises ChildFailed.
        """
        spans = None if self.recorder is None else self.recorder.address
        task, log = self.task, self.task.folder.log
        traces_url = None if self.recorder is None else self.recorder.otlp_url
        self.backend = start_backend(
            task.options, self.cores.rest, log("backend"), self._servers, spans=spans, traces_url=traces_url
        )
        self.host = start_host(
            task.adapter,
            task.variant,
            task.options,
            backend_url=self.backend.url,
            key=self.key,
            cores=self.cores.host,
            log=log("host"),
            children=self._servers,
            spans=spans,
            heap=heap,
            native=None
            if native is None or self.recorder is None
            else NativeOptions(native.site_packages, self.recorder.otlp_url),
        )
        return self.host

    def first_answer(self, host: Host) -> float:
        """Ask the host once; how long its verified answer took, ms. What the backend serves is counted from here on.

        Raises ChildFailed, also when the backend does not say what it has counted by now, or WrongAnswer.
        """
        took_ms = first_answer(host, self.task.options, self.key)
        if self.backend is not None:
            self.backend.begin()
        return took_ms

    def told(self) -> BackendFacts:
        """What the backend tells of its settings, for the manifest."""
        return {} if self.backend is None else self.backend.told()

    def start_load(self, plan: LoadPlan, host: Host, records: Path) -> list[Child]:
        """See load.start_load. Raises ChildFailed."""
        return start_load(
            plan,
            host.url,
            records,
            self.key,
            self.cores.rest,
            self.task.folder.log,
            self._generators,
            metrics_port=self.metrics_port,
        )

    def follow(self, load: list[Child], plan: LoadPlan, meanwhile: Callable[[], None]) -> None:
        """Wait for the end of what `start_load` gave. meanwhile: called five times a second.

        Raises ChildFailed when a server dies or the load fails, Interrupted when a signal came.
        """
        first = load[0]
        total_s = plan.warmup_s + plan.duration_s + plan.cooldown_s
        deadline = time.monotonic() + _LOAD_START_S + total_s + plan.timeout_s
        while first.exit_code() is None:
            self.check()
            meanwhile()
            if time.monotonic() > deadline:
                raise ChildFailed("generator", f"The load generator did not end.{first.log_tail()}")
            time.sleep(_POLL_S)
        self.check()  # a server that died last of all has nothing more to say, and would not be missed
        if first.exit_code() == DISK_FULL_EXIT:
            text = f"The load generator could not write its records. {MAKE_ROOM}{first.log_tail()}"
            raise NoRoom("generator", text)
        if first.exit_code() != 0:
            raise ChildFailed("generator", f"The load generator {first.describe_exit()}.{first.log_tail()}")

    def wait(self, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Leave the servers alone for so long. Raises as `follow` does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            meanwhile()
            time.sleep(min(_POLL_S, left))
        self.check()

    def children(self) -> list[Child]:
        """Host and backend, as far as they are started and processes of the rig's."""
        children = (server.child for server in (self.host, self.backend) if server is not None)
        return [child for child in children if child is not None]

    def check(self) -> None:
        """Raises ChildFailed when the host or the backend has ended, Interrupted when a signal has come."""
        self.task.interruption.check()
        for child in self.children():
            if child.exit_code() is not None:
                text = f"The {child.role} {child.describe_exit()} in the middle of the run.{child.log_tail()}"
                raise ChildFailed(child.role, text)

    def end_load(self) -> None:
        """The generators first, so that they can write what they still have."""
        self._generators.stop(_OTHER_GRACE_S)

    def end_servers(self) -> None:
        """Backend and host, and the recorder after these, which send to it."""
        # A host that never became ready has nothing to drain, and would not even hear of it.
        self._servers.stop(_HOST_GRACE_S if self.host is not None else _OTHER_GRACE_S)
        self._recorders.stop(_RECORDER_GRACE_S)
