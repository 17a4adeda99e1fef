"""How one schedule is shared out: the coordinator (Locust's master, or a local run) and each worker's session.

The coordinator waits until every worker is ready, then tells each its number and when t0 is. A run without workers
uses the same messages, sent to itself. Nobody ever takes over another's share: when a worker is lost the run ends.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from pathlib import Path

import gevent
import msgspec
import psutil
from gevent.event import AsyncResult, Event
from locust.env import Environment
from locust.runners import STATE_INIT, STATE_MISSING, MasterRunner, Runner, WorkerRunner

from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.proof import key_from_environment
from agentdyno.contract.run import ExitCode, LoadPlan, RequestRecord
from agentdyno.load.connection import Connections, Target, check_descriptors
from agentdyno.load.generator import Generator, OnRecord, freeze_heap
from agentdyno.load.live import LiveCounts, LoadMetrics, WorkerCounts
from agentdyno.load.options import options_of, records_folder
from agentdyno.load.records import DISK_FULL_EXIT, Records, RecordsError
from agentdyno.load.schedule import NS_PER_S

logger = logging.getLogger(__name__)

READY, GO, DONE = "agentdyno_ready", "agentdyno_go", "agentdyno_done"
# From the message to t0: time for each worker to receive it and to make its files.
LEAD_NS = NS_PER_S // 2
# For all workers to be ready after the start of a run.
READY_TIMEOUT_S = 30.0
_CHECK_INTERVAL_S = 0.5


class Go(msgspec.Struct, frozen=True):
    """The coordinator's word to one worker. t0_ns holds on the machine, and the boot, that boot_id names."""

    worker: int
    plan: LoadPlan
    boot_id: str
    t0_ns: int


class Done(msgspec.Struct, frozen=True):
    """A worker's last word: its exit code, and a sentence when that is not zero."""

    exit_code: int
    message: str


def boot_id() -> str:
    """Equal on two processes if, and only if, they share a monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{os.uname().nodename}-{psutil.boot_time()}"


class Coordinator:
    """The master's (or the local run's) view of one run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.metrics = LoadMetrics()
        self.begun = False
        self.exit_code = int(ExitCode.VALID)
        self.message = ""
        self._reset()

    def _reset(self) -> None:
        self._plan: LoadPlan | None = None
        self._ready: list[str] = []
        self._done: set[str] = set()
        self._over = Event()
        self._begun_s = 0.0

    @property
    def over(self) -> bool:
        """Has the run come to its end, or to a failure that ends it?"""
        return bool(self._over.is_set())

    def begin(self, plan: LoadPlan) -> None:
        """A run starts: its workers have been asked for."""
        self._reset()
        self.exit_code, self.message = int(ExitCode.VALID), ""
        self._plan, self._begun_s, self.begun = plan, time.monotonic(), True
        self.metrics.begin(plan)

    def waits_for_workers(self) -> bool:
        """Is this a master that has not begun a run yet, for want of workers?"""
        return isinstance(self._runner, MasterRunner) and not self.begun and self._runner.state == STATE_INIT

    def end(self) -> None:
        """The run has stopped, by itself or not."""
        if self.begun and not self._over.is_set():
            self.fail(ExitCode.INTERRUPTED, "")
        self.begun = False

    def fail(self, exit_code: int, message: str) -> None:
        """End the run, or refuse to begin it, with an exit code other than zero. The first failure is told."""
        if self.begun and self._over.is_set():
            return
        if not self.begun or self.exit_code == ExitCode.VALID:
            self.exit_code, self.message = int(exit_code), message
        self._over.set()

    def on_ready(self, worker_id: str) -> None:
        """A worker is ready; when all are, tell each to go."""
        plan = self._plan
        if not self.begun or plan is None or worker_id in self._ready or len(self._ready) == plan.workers:
            return
        self._ready.append(worker_id)
        if len(self._ready) < plan.workers:
            return
        runner = self._runner
        if isinstance(runner, MasterRunner):
            self._ready.sort(key=runner.get_worker_index)
        t0_ns = time.monotonic_ns() + LEAD_NS
        for worker, one in enumerate(self._ready):
            runner.send_message(GO, msgspec.to_builtins(Go(worker, plan, boot_id(), t0_ns)), one)

    def on_done(self, worker_id: str, done: Done) -> None:
        """A worker has ended its share, well or not."""
        if not self.begun:
            return
        self._done.add(worker_id)
        if done.exit_code != ExitCode.VALID:
            self.fail(done.exit_code, done.message)
        elif self._plan is not None and len(self._done) == self._plan.workers:
            self._over.set()

    def wait(self) -> None:
        """Until the run is over: all workers are done, or one has failed, is lost, or never became ready."""
        while not self._over.wait(_CHECK_INTERVAL_S):
            plan = self._plan
            if plan is None:
                return
            lost = [worker for worker, one in enumerate(self._ready) if self._is_lost(one)]
            if lost:
                self.fail(ExitCode.INVALID_RUN, f"Load worker {lost[0]} died; the run is ended, its share is missing.")
            elif len(self._ready) < plan.workers and time.monotonic() - self._begun_s > READY_TIMEOUT_S:
                self.fail(
                    ExitCode.INVALID_RUN,
                    f"Only {len(self._ready)} of {plan.workers} load workers became ready in {READY_TIMEOUT_S:g} s.",
                )

    def _is_lost(self, worker_id: str) -> bool:
        runner = self._runner
        if worker_id in self._done or not isinstance(runner, MasterRunner):
            return False
        node = runner.clients.get(worker_id)
        return node is None or node.state == STATE_MISSING


class Session:
    """A worker process's part in the runs of its life, one at a time."""

    def __init__(self, environment: Environment, runner: Runner) -> None:
        self._environment = environment
        self._runner = runner
        self._go: AsyncResult = AsyncResult()
        self._follower: gevent.Greenlet | None = None
        self._counts: LiveCounts | None = None

    def report(self) -> WorkerCounts | None:
        """The totals of the run, for the metrics; None before the first."""
        return None if self._counts is None else self._counts.report()

    def on_go(self, go: Go) -> None:
        """The coordinator's word has come."""
        self._go.set((go, time.monotonic_ns()))

    @property
    def running(self) -> bool:
        """Does a greenlet of this process follow the schedule?"""
        return self._follower is not None and not self._follower.dead

    def run(self, on_record: OnRecord) -> None:
        """Report ready, wait for the word, follow this worker's share, report done. On a user's greenlet."""
        self._go = AsyncResult()
        self._follower = gevent.getcurrent()
        self._counts = None
        runner = self._runner
        done = Done(int(ExitCode.INTERRUPTED), "")
        try:
            freeze_heap()  # before the word, because it takes as long as some arrivals have
            runner.send_message(READY)
            go, came_ns = self._go.get()
            done = self._generate(go, came_ns, on_record)
        except Exception as error:
            logger.exception("The load generator failed")
            done = Done(int(ExitCode.INVALID_RUN), f"The load generator failed, which is a bug of its own: {error!r}.")
        finally:
            gc.unfreeze()
            self._follower = None
            if isinstance(runner, WorkerRunner):
                self._environment.process_exit_code = done.exit_code
            runner.send_message(DONE, msgspec.to_builtins(done))

    def stop(self) -> None:
        """End the run that is going on, if any, with all that it has recorded so far written."""
        if self._follower is not None and self._follower is not gevent.getcurrent():
            self._follower.kill()

    def _generate(self, go: Go, came_ns: int, on_record: OnRecord) -> Done:
        try:
            connections = Connections(Target.parse(str(self._environment.host), INVOKE_PATH))
            check_descriptors(go.plan.max_in_flight)
            key = key_from_environment(os.environ)
            folder = records_folder(options_of(self._environment))
            records = None if folder is None else Records(folder, go.worker)
        except (RecordsError, ValueError) as error:
            return _failed(error, ExitCode.USAGE)

        def record_and_count(record: RequestRecord) -> None:
            on_record(record)
            counts.add(record)

        generator = Generator(go.plan, go.worker, connections, key, records, record_and_count)
        counts = self._counts = LiveCounts(go.worker, generator.progress)
        generator.rehearse()
        try:
            lost = generator.run(start_ns(go, came_ns, boot_id()))
        except RecordsError as error:
            return _failed(error, ExitCode.INVALID_RUN)
        if lost:
            return Done(int(ExitCode.INVALID_RUN), f"{lost} requests never came to an end inside the load generator.")
        return Done(int(ExitCode.VALID), "")


def start_ns(go: Go, came_ns: int, own_boot_id: str) -> int:
    """t0 on this machine's monotonic clock: the coordinator's own when that is the same clock.

    Clocks of two machines are never compared: on another one, t0 counts from when the word came.
    """
    return go.t0_ns if go.boot_id == own_boot_id else came_ns + LEAD_NS


def _failed(error: Exception, exit_code: ExitCode) -> Done:
    disk_full = isinstance(error, RecordsError) and error.disk_full
    return Done(DISK_FULL_EXIT if disk_full else int(exit_code), str(error))
