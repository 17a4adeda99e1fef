"""The host's Prometheus metrics. Labels are bounded: outcomes only, never an id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from agentdyno.host.probes import Buckets, Probes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# 1 ms to 60 s, about 1.5 x apart, so that a percentile read from buckets is within a quarter of the truth.
_BUCKETS_S = (
    *(0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)


class HostMetrics:
    """Counters of one host process; children are resolved once, so that a request costs microseconds."""

    def __init__(self, framework: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        requests = Counter(
            "agentdyno_requests", "Requests to /agent/invoke.", ("framework", "outcome"), registry=self.registry
        )
        durations = Histogram(
            "agentdyno_request_duration_seconds",
            "From the request's head to the last byte of its answer; admitted requests only.",
            ("framework", "outcome"),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        outcomes = ("ok", "error", "timeout", "rejected", "client_gone", "bad_request")
        self._requests = {outcome: requests.labels(framework, outcome) for outcome in outcomes}
        self._durations = {
            outcome: durations.labels(framework, outcome) for outcome in ("ok", "error", "timeout", "client_gone")
        }
        self.in_flight = Gauge(
            "agentdyno_requests_in_flight", "Admitted and not yet answered.", ("framework",), registry=self.registry
        ).labels(framework)
        self.stray_calls = Counter(
            "agentdyno_stray_tool_calls",
            "Tool calls outside any request's context.",
            ("framework",),
            registry=self.registry,
        ).labels(framework)
        calls = Counter(
            "agentdyno_llm_calls",
            "LLM calls at the host's border, by result.",
            ("framework", "result"),
            registry=self.registry,
        )
        self.llm_ok = calls.labels(framework, "ok")
        self.llm_failed = calls.labels(framework, "failed")

    def count(self, outcome: str, duration_s: float | None = None) -> None:
        """One finished request; duration only for admitted ones."""
        self._requests[outcome].inc()
        if duration_s is not None:
            self._durations[outcome].observe(duration_s)

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)


class ProbeCollector(Collector):
    """What the probes saw, read when the metrics are: nothing is added to the moments that they watch."""

    def __init__(self, probes: Probes, framework: str) -> None:
        self._probes = probes
        self._framework = framework

    def collect(self) -> Iterator[Metric]:
        """GC pauses by generation, event-loop lag, and tasks."""
        pauses = HistogramMetricFamily(
            "agentdyno_gc_pause_seconds",
            "Pauses by the cyclic garbage collector.",
            labels=("framework", "generation"),
        )
        for generation, buckets in enumerate(self._probes.gc_pauses):
            _add(pauses, (self._framework, str(generation)), buckets)
        yield pauses
        lags = HistogramMetricFamily(
            "agentdyno_loop_lag_seconds",
            "How late the event loop ran a timer that was due every 50 ms.",
            labels=("framework",),
        )
        _add(lags, (self._framework,), self._probes.loop_lags)
        yield lags
        count = self._probes.tasks()
        if count is not None:
            tasks = GaugeMetricFamily("agentdyno_tasks", "asyncio's tasks that are not done.", labels=("framework",))
            tasks.add_metric((self._framework,), count)
            yield tasks


def _add(family: HistogramMetricFamily, labels: Sequence[str], buckets: Buckets) -> None:
    bounds = [*(str(bound) for bound in buckets.bounds_s), "+Inf"]
    family.add_metric(labels, list(zip(bounds, accumulate(buckets.counts), strict=True)), buckets.total_s)
