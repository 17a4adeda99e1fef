"""What a locustfile of an open-loop run needs: the user, the shape that starts one on each worker, the hooks."""

from __future__ import annotations

import signal
import sys
from typing import Any, ClassVar

import gevent
import msgspec
from gevent.event import Event
from locust import LoadTestShape, User, task
from locust.env import Environment
from locust.event import Events
from locust.exception import StopUser
from locust.runners import MasterRunner, WorkerRunner

from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.run import ExitCode, RequestRecord
from agentdyno.load.connection import Target
from agentdyno.load.coordination import DONE, GO, READY, Coordinator, Done, Go, Session
from agentdyno.load.live import WorkerCounts, serve_if_asked
from agentdyno.load.options import OptionsError, add_arguments, listen, metrics_port, options_of, plan_of
from agentdyno.load.schedule import Schedule
from agentdyno.load.tally import NS_PER_MS

_COUNTS = "agentdyno"  # in the reports that Locust's workers send


class ArrivalFailed(Exception):
    """How Locust's statistics are told of an arrival that was not ok: outcome and reason."""


class ConstantArrivals(User):
    """The one user of a worker. Its task follows the worker's share of the schedule, and then the user stops.

    Not a FastHttpUser: that one's client makes an arrival wait for a free connection, see load/connection.py.
    """

    session: ClassVar[Session | None] = None

    @task
    def follow_schedule(self) -> None:
        """Take part in one run."""
        session = ConstantArrivals.session
        if session is None:
            raise RuntimeError("agentdyno.load.user.install(locust.events) has not been called in the locustfile")
        if session.running:
            # Locust gives a lost worker's user to another worker, whose own user runs already. The lost share must
            # not be sent from there: this one only waits to be stopped.
            Event().wait()
        session.run(self._tell_locust)
        raise StopUser

    def _tell_locust(self, record: RequestRecord) -> None:
        """Enter a record into Locust's own statistics; the time is from the intended start, by stage."""
        failed = record.reason is not None
        self.environment.events.request.fire(
            request_type="POST",
            name=f"{INVOKE_PATH} ({record.stage})",
            response_time=None if record.done_ns is None else (record.done_ns - record.intended_ns) / NS_PER_MS,
            response_length=record.response_bytes or 0,
            exception=ArrivalFailed(f"{record.outcome.value}: {record.reason}") if failed else None,
            context={},
        )


class OneUserPerWorker(LoadTestShape):
    """Starts one user on each worker, and ends the run when the coordinator says that it is over."""

    coordinator: ClassVar[Coordinator | None] = None

    def tick(self) -> tuple[int, float] | None:
        """Ask for the users; then wait for the end of the run, which None tells Locust."""
        coordinator = OneUserPerWorker.coordinator
        if coordinator is None or self.runner is None:
            raise RuntimeError("agentdyno.load.user.install(locust.events) has not been called in the locustfile")
        if coordinator.begun:
            coordinator.wait()
            return None
        environment = self.runner.environment
        try:
            plan = plan_of(options_of(environment))
            Schedule(plan)
            if not environment.host:
                raise OptionsError("There is no host to send the load to; give --host http://name:port.")
            Target.parse(environment.host, INVOKE_PATH)
        except ValueError as error:
            coordinator.fail(ExitCode.USAGE, str(error))
            return None
        connected = self.runner.worker_count if isinstance(self.runner, MasterRunner) else 1
        if connected < plan.workers:
            coordinator.fail(
                ExitCode.USAGE, f"The plan needs {plan.workers} load workers and {connected} are connected."
            )
            return None
        coordinator.begin(plan)
        return plan.workers, plan.workers


def install(events: Events) -> None:
    """Hook open-loop runs into Locust: arguments, messages, exit codes. Once, from the locustfile."""
    listen(events.init_command_line_parser, lambda parser, **_: add_arguments(parser))
    listen(events.init, _on_init)


def _on_init(environment: Environment, **_: object) -> None:
    runner = environment.runner
    if runner is None:
        raise RuntimeError("Locust has made no runner")
    gevent.signal_handler(signal.SIGINT, _interrupt_main)
    options = options_of(environment)
    if options.headless or options.autostart:
        # There, Locust itself takes care of SIGTERM only after a run with a shape has ended.
        gevent.signal_handler(signal.SIGTERM, _interrupt_main)
    if not isinstance(runner, MasterRunner):
        session = ConstantArrivals.session = Session(environment, runner)
        runner.register_message(GO, lambda msg, **_: session.on_go(msgspec.convert(msg.data, Go)))
        listen(environment.events.quitting, lambda **_: session.stop())
    if isinstance(runner, WorkerRunner):
        listen(environment.events.report_to_master, lambda data, **_: _put_counts(session, data))
        return
    coordinator = OneUserPerWorker.coordinator = Coordinator(runner)
    if isinstance(runner, MasterRunner):
        listen(environment.events.worker_report, lambda client_id, data: _take_counts(coordinator, client_id, data))
    else:
        coordinator.metrics.own = session.report
    serve_if_asked(coordinator.metrics, str(options.metrics_host), metrics_port(options))
    runner.register_message(READY, lambda msg, **_: coordinator.on_ready(msg.node_id))
    runner.register_message(DONE, lambda msg, **_: coordinator.on_done(msg.node_id, msgspec.convert(msg.data, Done)))

    def conclude(**_: object) -> None:
        coordinator.end()
        environment.process_exit_code = coordinator.exit_code
        if coordinator.message:
            sys.stderr.write(coordinator.message + "\n")
            coordinator.message = ""

    listen(environment.events.test_stop, conclude)
    listen(environment.events.quitting, conclude)


def _put_counts(session: Session, data: dict[str, Any]) -> None:
    counts = session.report()
    if counts is not None:
        data[_COUNTS] = msgspec.to_builtins(counts)


def _take_counts(coordinator: Coordinator, worker_id: str, data: dict[str, Any]) -> None:
    if _COUNTS in data:
        coordinator.metrics.on_report(worker_id, msgspec.convert(data[_COUNTS], WorkerCounts))


def _interrupt_main() -> None:
    """End the process in Locust's own way, as for Ctrl-C: KeyboardInterrupt in the main greenlet.

    Python's own handler would raise it into whatever runs at the moment, which may be an arrival.
    """
    coordinator = OneUserPerWorker.coordinator
    hub = gevent.get_hub()
    if coordinator is not None and coordinator.waits_for_workers():
        # Locust does not expect it there and would show a traceback.
        hub.handle_system_error(SystemExit, SystemExit(int(ExitCode.INTERRUPTED)))
    else:
        hub.handle_system_error(KeyboardInterrupt, KeyboardInterrupt())
