"""One worker's part of the load: it follows its share of the schedule and records what became of each arrival."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil

import gevent
import msgspec
from gevent.event import Event

from agentdyno.contract.proof import Stage, order_id
from agentdyno.contract.run import LoadPlan, Outcome, RequestRecord, WorkerEnd
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.load.alarm import SleepAlarm, make_alarm
from agentdyno.load.connection import EXCHANGE_ERRORS, Answer, Connections, reason_of
from agentdyno.load.records import Records, RecordsError
from agentdyno.load.schedule import NS_PER_S, Arrival, Schedule, follow
from agentdyno.load.service_histogram import ServiceHistogram
from agentdyno.load.tally import InFlight, Tally
from agentdyno.load.verify import Judgement, judge

# What the drain waits for beyond the requests' own time-out before it counts a request as lost in the generator.
_DRAIN_MARGIN_S = 2.0

# Reasons that the generator itself gives; the others come from `judge` and `reason_of`.
CLIENT_TIMEOUT = "client_timeout"
IN_FLIGHT_CAP = "in_flight_cap"
INTERRUPTED = "interrupted"

OnRecord = Callable[[RequestRecord], None]


@dataclass(slots=True)
class Flight:
    """An arrival made ready for the wire, and when it was sent (in nanoseconds after t0)."""

    arrival: Arrival
    order: str
    trace_id: str
    span_id: str
    traced: bool
    request: bytes
    sent_ns: int | None = None

    @property
    def intended_ns(self) -> int:
        """When it is due, for the schedule's follower."""
        return self.arrival.intended_ns


def trace_ids(seed: int, stage: Stage, index: int) -> tuple[str, str]:
    """The trace id and the span id of an arrival's traceparent, the same for the same seed."""
    digest = blake2b(f"trace:{seed}:{stage.letter}:{index}".encode(), digest_size=24).hexdigest()
    return digest[:32], digest[32:]


def freeze_heap() -> None:
    """Take all that is alive now out of the garbage collector's sight, until gc.unfreeze.

    A full collection visits every object of Locust and its libraries and stops the generator for about 50 ms, ten
    arrivals at 200 a second. Frozen, it visits only what the run itself has made since: some microseconds.
    """
    gc.collect()
    gc.freeze()


class Generator:
    """Sends worker `worker`'s share of `plan` over `connections`. Use once: make it, `run` it."""

    def __init__(
        self,
        plan: LoadPlan,
        worker: int,
        connections: Connections,
        key: bytes,
        records: Records | None = None,
        on_record: OnRecord | None = None,
    ) -> None:
        """Raises ValueError with a sentence when the plan cannot be followed (see Schedule)."""
        self.schedule = Schedule(plan)
        self._plan = plan
        self._worker = worker
        self._key = key
        self._scenario = SCENARIOS[plan.scenario]
        self._timeout_ms = ceil(plan.timeout_s * 1000)
        self._connections = connections
        self._head = connections.target.head()
        self._records = records
        self._on_record = on_record
        self._t0_ns = 0
        self._flights: dict[int, Flight] = {}
        self._all_landed = Event()
        self._failure: RecordsError | None = None
        self._tally = Tally(InFlight(self.schedule.measure_start_ns, self.schedule.measure_end_ns))
        self._service = ServiceHistogram()
        self._cpu_s: float | None = None
        self._follower: gevent.Greenlet | None = None

    def rehearse(self) -> None:
        """Do once, before the schedule starts, what is slow when done for the first time."""
        flight = self._prepare(self.schedule.arrival(0))
        judge(200, b'{"session_id": ""}', flight.order, self._key, self._scenario)
        gevent.spawn(lambda: None).join()
        gevent.get_hub().threadpool.apply(int)

    def run(self, t0_ns: int) -> int:
        """Follow the schedule from `t0_ns` (of time.monotonic_ns), wait for the answers, write the end.

        Returns how many requests neither ended nor timed out, which only a fault of the generator's own can cause.

        Raises RecordsError when the records cannot be written. When killed it records all that is in flight as
        interrupted and says in the end file that the schedule was not finished.
        """
        self._t0_ns = t0_ns
        self._follower = gevent.getcurrent()
        sampler, reporter = gevent.spawn(self._sample_cpu), gevent.spawn(self._report)
        alarm = make_alarm()
        lost: int | None = None
        try:
            flights = map(self._prepare, self.schedule.share(self._worker))
            follow(flights, t0_ns, time.monotonic_ns, alarm.wait_until, self._fire)
            self._drain()
            sampler.join()
            lost = len(self._flights)
        finally:
            # Nothing here lets another greenlet run, so that a second kill cannot cut the ending short.
            alarm.close()
            sampler.kill(block=False)
            reporter.kill(block=False)
            self._end(finished=lost == 0)
        return lost

    def progress(self) -> tuple[Stage, float, dict[str, int]]:
        """The stage, the seconds since t0, and how many requests are in flight by their stage."""
        now_ns = self._now_ns() if self._t0_ns else 0
        in_flight = Counter(flight.arrival.stage.value for flight in self._flights.values())
        return self.schedule.stage_at(max(now_ns, 0)), now_ns / NS_PER_S, dict(in_flight)

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._t0_ns

    def _prepare(self, arrival: Arrival) -> Flight:
        """Everything that can be made before the arrival is due."""
        seed = self._plan.seed
        request = self._scenario.request(seed, arrival.stage, arrival.stage_index, self._timeout_ms)
        body = msgspec.json.encode(request)
        trace_id, span_id = trace_ids(seed, arrival.stage, arrival.stage_index)
        every = self._plan.trace_every
        traced = every > 0 and arrival.stage_index % every == 0
        parent = f"00-{trace_id}-{span_id}-{'01' if traced else '00'}"
        head = f"{self._head}traceparent: {parent}\r\nContent-Length: {len(body)}\r\n\r\n"
        order = order_id(seed, arrival.stage, arrival.stage_index)
        return Flight(arrival, order, trace_id, span_id, traced, head.encode("latin-1") + body)

    def _fire(self, flight: Flight) -> None:
        """Start one request at once, or count it as dropped when the cap is reached. Never waits."""
        self._tally.arrivals += 1
        if len(self._flights) >= self._plan.max_in_flight:
            self._record(flight, Judgement(Outcome.DROPPED, IN_FLIGHT_CAP), None)
            return
        self._flights[flight.arrival.index] = flight
        gevent.spawn(self._exchange, flight)

    def _exchange(self, flight: Flight) -> None:
        """Send one request, wait for its answer or its time-out, and record the outcome."""
        timeout = gevent.Timeout(self._plan.timeout_s)
        answer: Answer | None = None
        flight.sent_ns = self._now_ns()
        self._tally.in_flight.change(+1, flight.sent_ns)
        timeout.start()
        try:
            answer = self._connections.exchange(flight.request)
        except gevent.Timeout as raised:
            if raised is not timeout:
                raise
            judgement = Judgement(Outcome.TIMEOUT, CLIENT_TIMEOUT)
        except EXCHANGE_ERRORS as error:
            judgement = Judgement(Outcome.FAILED, reason_of(error))
        finally:
            timeout.close()
        done_ns = self._now_ns()
        if answer is not None:
            judgement = judge(answer.status, answer.body, flight.order, self._key, self._scenario)
        self._land(flight, judgement, done_ns, answer)

    def _land(self, flight: Flight, judgement: Judgement, done_ns: int, answer: Answer | None = None) -> None:
        """Record a flight's outcome, once: an answer that comes after the interruption changes nothing."""
        if self._flights.pop(flight.arrival.index, None) is None:
            return
        if flight.sent_ns is not None:
            self._tally.in_flight.change(-1, done_ns)
        self._record(flight, judgement, done_ns, answer)
        if not self._flights:
            self._all_landed.set()

    def _record(self, flight: Flight, judgement: Judgement, done_ns: int | None, answer: Answer | None = None) -> None:
        arrival, usage, sent_ns = flight.arrival, judgement.usage, flight.sent_ns
        service_ns = None if sent_ns is None or done_ns is None else done_ns - sent_ns
        self._tally.finished(judgement.outcome, service_ns)
        if service_ns is not None and judgement.outcome is Outcome.OK and arrival.stage is Stage.MEASURE:
            self._service.add(service_ns)
        record = RequestRecord(
            index=arrival.index,
            stage=arrival.stage.value,
            stage_index=arrival.stage_index,
            worker=self._worker,
            intended_ns=arrival.intended_ns,
            sent_ns=sent_ns,
            done_ns=done_ns,
            outcome=judgement.outcome,
            status=None if answer is None else answer.status,
            reason=judgement.reason,
            trace_id=flight.trace_id,
            span_id=flight.span_id,
            traced=flight.traced,
            response_bytes=None if answer is None else len(answer.body),
            llm_calls=None if usage is None else usage.llm_calls,
            tool_calls=None if usage is None else usage.tool_calls,
            prompt_bytes=None if usage is None else usage.prompt_bytes,
            prompt_tokens=None if usage is None else usage.prompt_tokens,
            completion_tokens=None if usage is None else usage.completion_tokens,
            retries=None if usage is None else usage.retries,
            connections=None if usage is None else usage.connections,
        )
        if self._records is not None:
            self._records.add(record)
        if self._on_record is not None:
            self._on_record(record)

    def _drain(self) -> None:
        """Wait for the last answers; each request's own time-out bounds that."""
        if self._flights:
            self._all_landed.clear()
            self._all_landed.wait(self._plan.timeout_s + _DRAIN_MARGIN_S)

    def _sample_cpu(self) -> None:
        """Measure this process's own CPU time over the measurement window."""
        alarm = SleepAlarm()
        alarm.wait_until(self._t0_ns + self.schedule.measure_start_ns)
        before_ns = time.process_time_ns()
        alarm.wait_until(self._t0_ns + self.schedule.measure_end_ns)
        self._cpu_s = (time.process_time_ns() - before_ns) / NS_PER_S

    def _report(self) -> None:
        """Once a second, report what is live and write what there is; stop the run when that fails."""
        while True:
            gevent.sleep(1.0)
            if self._records is None:
                continue
            now_ns = self._now_ns()
            if now_ns >= 0:
                self._records.add_second(self._tally.report(now_ns, self.schedule.stage_at(now_ns)))
            try:
                self._records.flush()
            except RecordsError as error:
                self._failure = error
                if self._follower is not None:
                    self._follower.kill(error, block=False)
                return

    def _end(self, *, finished: bool) -> None:
        """Record what is still in flight as interrupted, and write the last report and the end file."""
        now_ns = self._now_ns()
        for flight in list(self._flights.values()):
            self._land(flight, Judgement(Outcome.FAILED, INTERRUPTED), now_ns)
        self._connections.close()
        if self._records is None:
            return
        self._records.add_second(self._tally.report(now_ns, self.schedule.stage_at(now_ns)))
        self._records.close(
            WorkerEnd(
                worker=self._worker,
                finished=finished and self._failure is None,
                t0_monotonic_ns=self._t0_ns,
                in_flight_area_s=self._tally.in_flight.area_s(now_ns),
                measure_start_ns=self.schedule.measure_start_ns,
                measure_end_ns=self.schedule.measure_end_ns,
                cpu_s=self._cpu_s,
                service_hdr=self._service.encoded(),
            )
        )
        if self._failure is not None:
            raise self._failure
