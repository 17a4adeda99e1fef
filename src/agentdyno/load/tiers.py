"""Users in a closed loop on purpose: so many at once, each with its own session, each waiting for its answer.

Not an arrival process, and compared with none: see contract/sweep.py for what it measures.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import gevent
import msgspec
from gevent.event import Event
from locust import LoadTestShape, User, task
from locust.env import Environment
from locust.event import Events
from locust.exception import StopUser

from agentdyno.contract.invoke import INVOKE_PATH, Problem
from agentdyno.contract.proof import Stage, key_from_environment, order_id
from agentdyno.contract.run import ExitCode, Outcome, RequestRecord
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.contract.sweep import TierRecord
from agentdyno.load.connection import EXCHANGE_ERRORS, Answer, Connections, Target, reason_of
from agentdyno.load.generator import CLIENT_TIMEOUT
from agentdyno.load.live import LiveCounts, LoadMetrics, WorkerCounts, serve_if_asked
from agentdyno.load.options import add_metrics_arguments, listen, metrics_port, options_of
from agentdyno.load.verify import NOT_CONTRACT, Judgement, judge

_FIRST_TEXT = re.compile(rb'event: token\ndata: \{"text":"(?!")')
_encode = msgspec.json.encode


class _Tier:
    """What the users of one process share."""

    def __init__(self, options: argparse.Namespace, host: str) -> None:
        self.users = int(options.tier_users)
        self.each = int(options.requests_each)
        self.seed = int(options.seed)
        self.timeout_s = float(options.request_timeout)
        self.scenario = SCENARIOS[options.scenario]
        self.stream = bool(options.stream)
        self.key = key_from_environment(os.environ)
        self.connections = Connections(Target.parse(host, INVOKE_PATH))
        self.records: BinaryIO = (Path(options.records) / "requests-0.jsonl").open("ab")
        self.t0_ns = time.monotonic_ns()
        self.begun = self.ended = self.in_flight = 0
        self.over = Event()
        self.counts = LiveCounts(0, self._progress)

    def user_ended(self) -> None:
        """One of them has made all its requests."""
        self.ended += 1
        if self.ended == self.users:
            self.over.set()

    def count(self, record: TierRecord) -> None:
        """Enter it into the metrics. A request in a closed loop is due when it is sent."""
        self.counts.add(
            RequestRecord(
                index=record.index,
                stage=Stage.MEASURE.value,
                stage_index=record.index,
                worker=0,
                intended_ns=record.sent_ns,
                sent_ns=record.sent_ns,
                done_ns=record.done_ns,
                outcome=record.outcome,
            )
        )

    def _progress(self) -> tuple[Stage, float, dict[str, int]]:
        elapsed_s = (time.monotonic_ns() - self.t0_ns) / 1e9
        return Stage.MEASURE, elapsed_s, {Stage.MEASURE.value: self.in_flight}


class WaitingUser(User):
    """Asks, waits for the whole answer, asks again; then it is done."""

    tier: ClassVar[_Tier | None] = None

    @task
    def ask_in_turn(self) -> None:
        """All its requests."""
        tier = WaitingUser.tier
        if tier is None:
            raise RuntimeError("agentdyno.load.tiers.AllAtOnce has not been imported into the locustfile")
        user, tier.begun = tier.begun, tier.begun + 1
        try:
            for turn in range(tier.each):
                tier.in_flight += 1
                try:
                    record = _ask(tier, user, user * tier.each + turn)
                finally:
                    tier.in_flight -= 1
                tier.count(record)
                tier.records.write(_encode(record) + b"\n")
            tier.records.flush()
        finally:
            tier.user_ended()
        raise StopUser


class AllAtOnce(LoadTestShape):
    """Every user at the start; the end when the last one is done."""

    def tick(self) -> tuple[int, float] | None:
        """The users; then, when all are done, None."""
        if self.runner is None:
            raise RuntimeError("Locust has made no runner")
        if WaitingUser.tier is not None:
            WaitingUser.tier.over.wait()
            return None
        environment = self.runner.environment
        WaitingUser.tier = tier = _Tier(options_of(environment), str(environment.host))
        return tier.users, float(tier.users)


class _Watch:
    """Notes when the head of an answer and its first text are there."""

    def __init__(self, tier: _Tier) -> None:
        self._tier = tier
        self.head_ns: int | None = None
        self.first_token_ns: int | None = None

    def __call__(self, response: Any) -> None:
        if self.head_ns is None and response.headers_complete and response.get_code() >= 200:
            self.head_ns = time.monotonic_ns() - self._tier.t0_ns
        if self.first_token_ns is None and self._tier.stream and _FIRST_TEXT.search(response._body_buffer):
            self.first_token_ns = time.monotonic_ns() - self._tier.t0_ns


def _ask(tier: _Tier, user: int, index: int) -> TierRecord:
    timeout_ms = round(tier.timeout_s * 1000)
    request = tier.scenario.request(tier.seed, Stage.MEASURE, index, timeout_ms, stream=tier.stream)
    order = order_id(tier.seed, Stage.MEASURE, index)
    body = _encode(request)
    head = f"{tier.connections.target.head()}Content-Length: {len(body)}\r\n\r\n"
    watch = _Watch(tier)
    answer: Answer | None = None
    sent_ns = time.monotonic_ns() - tier.t0_ns
    timeout = gevent.Timeout(tier.timeout_s)
    timeout.start()
    try:
        answer = tier.connections.exchange(head.encode("latin-1") + body, watch)
    except gevent.Timeout as raised:
        if raised is not timeout:
            raise
        judged = Judgement(Outcome.TIMEOUT, CLIENT_TIMEOUT)
    except EXCHANGE_ERRORS as error:
        judged = Judgement(Outcome.FAILED, reason_of(error))
    finally:
        timeout.close()
    done_ns = time.monotonic_ns() - tier.t0_ns
    status = None
    if answer is not None:
        status, last = (answer.status, answer.body) if not tier.stream else last_event(answer)
        judged = judge(status, last, order, tier.key, tier.scenario)
    return TierRecord(
        user=user,
        index=index,
        session_id=request.session_id,
        sent_ns=sent_ns,
        head_ns=watch.head_ns,
        first_token_ns=watch.first_token_ns,
        done_ns=done_ns,
        outcome=judged.outcome,
        status=status,
        reason=judged.reason,
    )


def last_event(answer: Answer) -> tuple[int, bytes]:
    """Status and body of a streamed answer: of its `final` event, or the problem that its `error` event tells.

    An answer that broke off without either is a 200 with a body that no contract knows.
    """
    if answer.status != 200:
        return answer.status, answer.body
    for kind, data in _events(answer.body):
        if kind == b"final":
            return 200, data
        if kind == b"error":
            try:
                return msgspec.json.decode(data, type=Problem).status, data
            except msgspec.MsgspecError:
                break
    return 200, NOT_CONTRACT.encode()


def _events(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    for block in body.split(b"\n\n"):
        kind, _, data = block.partition(b"\n")
        yield kind.removeprefix(b"event: "), data.removeprefix(b"data: ")


def install(events: Events) -> None:
    """Hook a tier into Locust. One process only. Once, from the locustfile."""
    listen(events.init_command_line_parser, lambda parser, **_: _add_arguments(parser))
    listen(events.init, _on_init)
    listen(events.test_stop, _on_stop)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tier-users", default="10", help="users at once")
    add("--requests-each", default="10", help="how often each of them asks")
    add("--request-timeout", default="10", help="seconds after which a request is given up")
    add("--seed", default="1", help="orders and sessions follow from it")
    add("--scenario", default="chain", choices=sorted(SCENARIOS), help="what each request asks for")
    add("--stream", action="store_true", help="ask for server-sent events")
    add("--records", default=".", metavar="DIR", help="the folder for requests-0.jsonl")
    add_metrics_arguments(parser)
    parser.set_defaults(only_summary=True, loglevel="WARNING")


def _on_init(environment: Environment, **_: object) -> None:
    options, metrics = options_of(environment), LoadMetrics()
    metrics.own = _report
    serve_if_asked(metrics, str(options.metrics_host), metrics_port(options))


def _report() -> WorkerCounts | None:
    tier = WaitingUser.tier
    return None if tier is None else tier.counts.report()


def _on_stop(environment: Environment, **_: object) -> None:
    tier = WaitingUser.tier
    if tier is None:
        return
    tier.records.close()
    tier.connections.close()
    environment.process_exit_code = int(ExitCode.VALID if tier.ended == tier.users else ExitCode.INTERRUPTED)
