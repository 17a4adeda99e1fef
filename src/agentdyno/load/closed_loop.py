"""Stock Locust pacing on the same requests, only to be compared with: what a closed loop hides.

`constant_throughput` makes each user wait for its answer before it sends again. When the target stalls, the users
stand still with it, and the requests that real people would have sent meanwhile are never sent and never counted.
"""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import msgspec
from locust import FastHttpUser, LoadTestShape, constant_throughput, task
from locust.env import Environment
from locust.event import Events

from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.proof import Stage, key_from_environment, order_id
from agentdyno.contract.run import LoadPlan, Outcome, RequestRecord, WorkerEnd
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.load.options import add_arguments, listen, options_of, plan_of, records_folder
from agentdyno.load.records import Records
from agentdyno.load.verify import judge

# Enough for the rate as long as answers take less than 100 ms; each user paces itself to ten requests a second.
USERS_PER_RPS = 0.1


_HEADERS = {"Content-Type": "application/json"}


class _Run:
    """What the users of one process share."""

    def __init__(self, plan: LoadPlan, records: Records | None) -> None:
        self.plan = plan
        self.users = users_for(plan)
        self.key = key_from_environment(os.environ)
        self.records = records
        self.t0_ns = time.monotonic_ns()
        self.sent = 0


def users_for(plan: LoadPlan) -> int:
    """How many users the plan's rate takes."""
    return max(1, round(plan.rate * USERS_PER_RPS))


class StockConstantThroughput(FastHttpUser):
    """One of the users that share the rate, each waiting for its own answers."""

    run_state: ClassVar[_Run]

    def wait_time(self) -> float:
        """Locust's own pacing for this user's part of the rate."""
        state = StockConstantThroughput.run_state
        pace: Any = constant_throughput(state.plan.rate / state.users)
        return float(pace(self))

    @task
    def invoke(self) -> None:
        """Send one request, wait for its answer, verify and record it."""
        state = StockConstantThroughput.run_state
        plan, index = state.plan, state.sent
        state.sent += 1
        scenario = SCENARIOS[plan.scenario]
        request = scenario.request(plan.seed, Stage.MEASURE, index, round(plan.timeout_s * 1000))
        order = order_id(plan.seed, Stage.MEASURE, index)
        sent_ns = time.monotonic_ns() - state.t0_ns
        with self.client.post(
            INVOKE_PATH, data=msgspec.json.encode(request).decode(), headers=_HEADERS, catch_response=True
        ) as response:
            done_ns = time.monotonic_ns() - state.t0_ns
            judgement = judge(response.status_code, response.content or b"", order, state.key, scenario)
            if judgement.outcome is Outcome.OK:
                response.success()
            else:
                response.failure(f"{judgement.outcome.value}: {judgement.reason}")
        if state.records is not None:
            # A closed loop knows no intended start: it intends to send when it sends. That is its fault.
            state.records.add(
                RequestRecord(
                    index=index,
                    stage=Stage.MEASURE.value,
                    stage_index=index,
                    worker=0,
                    intended_ns=sent_ns,
                    sent_ns=sent_ns,
                    done_ns=done_ns,
                    outcome=judgement.outcome,
                    status=response.status_code,
                    reason=judgement.reason,
                )
            )


class ForTheWholePlan(LoadTestShape):
    """All users at once, for as long as the open-loop run with the same arguments takes."""

    def tick(self) -> tuple[int, float] | None:
        """The number of users, or None at the end."""
        if self.runner is None:
            raise RuntimeError("Locust has made no runner")
        plan = plan_of(options_of(self.runner.environment))
        elapsed_s: float = time.perf_counter() - self.start_time
        if elapsed_s >= plan.warmup_s + plan.duration_s + plan.cooldown_s:
            return None
        return users_for(plan), 100.0


def install(events: Events) -> None:
    """Hook the comparison into Locust. One process only. Once, from the locustfile."""
    listen(events.init_command_line_parser, lambda parser, **_: add_arguments(parser))
    listen(events.test_start, _on_start)
    listen(events.test_stop, _on_stop)


def _on_start(environment: Environment, **_: object) -> None:
    options = options_of(environment)
    folder = records_folder(options)
    StockConstantThroughput.run_state = _Run(plan_of(options), None if folder is None else Records(folder, 0))


def _on_stop(environment: Environment, **_: object) -> None:
    state = StockConstantThroughput.run_state
    environment.process_exit_code = 0
    if state.records is not None:
        now_ns = time.monotonic_ns() - state.t0_ns
        state.records.close(
            WorkerEnd(
                worker=0,
                finished=True,
                t0_monotonic_ns=state.t0_ns,
                in_flight_area_s=None,
                measure_start_ns=0,
                measure_end_ns=now_ns,
                cpu_s=None,
            )
        )
