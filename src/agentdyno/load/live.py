"""The load's Prometheus metrics, served by Locust's master: the sums over its workers.

A worker sends its totals with each of Locust's own reports, every three seconds, and the master keeps the last of
each: a report that is lost costs nothing but time, and no request is counted twice.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec
from gevent.pywsgi import WSGIServer
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentdyno.contract.proof import Stage
from agentdyno.contract.run import LoadPlan, Outcome, RequestRecord
from agentdyno.emit.exposition import LATENCY_BOUNDS_S, Histogram, TracedBuckets, exposition

_HISTOGRAMS = {
    "latency": "From when a verified answer's request was due to its last byte.",
    "service_time": "From when a verified answer's request was sent to its last byte.",
    "lateness": "How long after its time an arrival was sent.",
}


class Sizes(msgspec.Struct):
    """The counts of a histogram over LATENCY_BOUNDS_S, their sum, and the last trace of each size."""

    counts: list[int]
    total_s: float
    exemplars: list[tuple[str, float, float] | None]


class WorkerCounts(msgspec.Struct, kw_only=True):
    """What one worker has done so far. requests: by stage and outcome. cpu_s: of its process, since that began."""

    worker: int
    stage: str
    elapsed_s: float
    in_flight: dict[str, int]
    requests: dict[str, dict[str, int]]
    histograms: dict[str, Sizes]
    cpu_s: float


class LiveCounts:
    """A worker's totals of one run, kept as its arrivals come to their outcomes."""

    def __init__(self, worker: int, progress: Callable[[], tuple[Stage, float, dict[str, int]]]) -> None:
        """progress: the stage, the seconds since t0 and the requests in flight by stage, of now."""
        self._worker = worker
        self._progress = progress
        self._requests: Counter[tuple[str, str]] = Counter()
        self._latency, self._service, self._lateness = (TracedBuckets(LATENCY_BOUNDS_S) for _ in _HISTOGRAMS)

    def add(self, record: RequestRecord) -> None:
        """Count an arrival that has come to its outcome."""
        self._requests[record.stage, record.outcome.value] += 1
        if record.sent_ns is None:
            return
        self._lateness.add(record.sent_ns - record.intended_ns)
        if record.done_ns is None or record.outcome is not Outcome.OK:
            return
        for buckets, since_ns in ((self._latency, record.intended_ns), (self._service, record.sent_ns)):
            if record.traced and record.trace_id is not None:
                buckets.add_traced(record.done_ns - since_ns, record.trace_id, time.time())
            else:
                buckets.add(record.done_ns - since_ns)

    def report(self) -> WorkerCounts:
        """The totals as they are now."""
        stage, elapsed_s, in_flight = self._progress()
        requests: dict[str, dict[str, int]] = {}
        for (of_stage, outcome), count in self._requests.items():
            requests.setdefault(of_stage, {})[outcome] = count
        all_buckets = (self._latency, self._service, self._lateness)
        return WorkerCounts(
            worker=self._worker,
            stage=stage.value,
            elapsed_s=elapsed_s,
            in_flight=in_flight,
            requests=requests,
            histograms={
                name: Sizes(list(buckets.counts), buckets.total_s, list(buckets.exemplars))
                for name, buckets in zip(_HISTOGRAMS, all_buckets, strict=True)
            },
            cpu_s=time.process_time(),
        )


class LoadMetrics(Collector):
    """What the master shows: the plan, and the sums over the workers' last reports.

    own: the report of a run without workers, in this very process. Users in a closed loop have no plan.
    """

    def __init__(self) -> None:
        self.plan: LoadPlan | None = None
        self.own: Callable[[], WorkerCounts | None] = lambda: None
        self._start_s = time.time()
        self._reports: dict[str, WorkerCounts] = {}

    def begin(self, plan: LoadPlan) -> None:
        """A run starts: nothing has been counted."""
        self.plan = plan
        self._start_s = time.time()
        self._reports.clear()

    def on_report(self, worker_id: str, counts: WorkerCounts) -> None:
        """A worker's totals have come."""
        self._reports[worker_id] = counts

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition text and its content type."""
        registry = CollectorRegistry()
        registry.register(self)
        return exposition(registry, self._histograms(), accept)

    def collect(self) -> Iterator[Metric]:
        """Everything but the histograms."""
        workers = self._workers()
        if self.plan is not None:
            planned_s = self.plan.warmup_s + self.plan.duration_s + self.plan.cooldown_s
            yield _gauge("agentdyno_load_schedule_arrivals_per_second", "The rate asked for.", self.plan.rate)
            yield _gauge("agentdyno_load_planned_seconds", "The length of the schedule.", planned_s)
        yield _gauge("agentdyno_load_start_time_seconds", "Unix time since which it counts.", self._start_s)
        yield _gauge("agentdyno_load_workers", "Workers that have reported.", len(workers))
        if not workers:
            return
        yield _gauge("agentdyno_load_elapsed_seconds", "Since t0.", max(it.elapsed_s for it in workers))
        clocks = GaugeMetricFamily(
            "agentdyno_load_worker_elapsed_seconds", "From t0 to each worker's last report.", labels=("worker",)
        )
        for it in sorted(workers, key=lambda it: it.worker):
            clocks.add_metric((str(it.worker),), max(it.elapsed_s, 0.0))
        yield clocks
        in_flight = sum(sum(it.in_flight.values()) for it in workers)
        yield _gauge("agentdyno_load_requests_in_flight", "Sent and not yet come to an outcome.", in_flight)
        now = max(workers, key=lambda it: it.elapsed_s).stage
        stages = GaugeMetricFamily("agentdyno_load_stage", "1 for the stage that it is in.", labels=("stage",))
        for stage in Stage:
            stages.add_metric((stage.value,), float(stage.value == now))
        yield stages
        yield from self._requests(workers)
        cpu = CounterMetricFamily("agentdyno_load_worker_cpu_seconds", "Of each worker's process.", labels=("worker",))
        for it in sorted(workers, key=lambda it: it.worker):
            cpu.add_metric((str(it.worker),), it.cpu_s)
        yield cpu

    def _requests(self, workers: Iterable[WorkerCounts]) -> Iterator[Metric]:
        arrivals: Counter[str] = Counter()
        outcomes: Counter[tuple[str, str]] = Counter()
        for it in workers:
            arrivals.update(it.in_flight)
            for stage, counts in it.requests.items():
                arrivals[stage] += sum(counts.values())
                for outcome, count in counts.items():
                    outcomes[stage, outcome] += count
        due = CounterMetricFamily("agentdyno_load_arrivals", "Arrivals whose time has come.", labels=("stage",))
        ended = CounterMetricFamily("agentdyno_load_requests", "Arrivals by outcome.", labels=("stage", "outcome"))
        for stage in Stage:
            due.add_metric((stage.value,), arrivals[stage.value])
            for outcome in Outcome:
                ended.add_metric((stage.value, outcome.value), outcomes[stage.value, outcome.value])
        yield due
        yield ended

    def _histograms(self) -> Iterator[Histogram]:
        workers = self._workers()
        for name, text in _HISTOGRAMS.items():
            histogram = Histogram(f"agentdyno_load_{name}_seconds", text)
            histogram.add(_summed([it.histograms[name] for it in workers]))
            yield histogram

    def _workers(self) -> list[WorkerCounts]:
        own = self.own()
        return list(self._reports.values()) if own is None else [own]


def serve_if_asked(metrics: LoadMetrics, host: str, port: int | None) -> None:
    """Serve on that port, if there is one. A port that is taken costs the metrics and not the run."""
    if port is None:
        return
    try:
        serve(metrics, host, port)
    except OSError as error:
        sys.stderr.write(f"The load's /metrics cannot be served on port {port}: {error.strerror}.\n")


def serve(metrics: LoadMetrics, host: str, port: int) -> WSGIServer:
    """Serve GET /metrics on an address (port 0: any), from greenlets of this process. Raises OSError."""

    def answer(environ: dict[str, str], start_response: Callable[..., object]) -> list[bytes]:
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"There is only /metrics.\n"]
        text, content_type = metrics.render(environ.get("HTTP_ACCEPT", ""))
        start_response("200 OK", [("Content-Type", content_type)])
        return [text]

    server = WSGIServer((host, port), answer, log=None)
    server.start()
    return server


def _summed(parts: list[Sizes]) -> TracedBuckets:
    """The sum over workers; of each size the trace that came last."""
    whole = TracedBuckets(LATENCY_BOUNDS_S)
    for part in parts:
        whole.total_s += part.total_s
        for at, count in enumerate(part.counts):
            whole.counts[at] += count
    for at, found in enumerate(zip(*(part.exemplars for part in parts), strict=True)):
        known = [exemplar for exemplar in chain(found) if exemplar is not None]
        whole.exemplars[at] = max(known, key=lambda exemplar: exemplar[2], default=None)
    return whole


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
