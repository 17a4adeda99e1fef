"""The host's Prometheus metrics. Labels are bounded: framework, outcome, phase; never an id.

Which run a series is of, Prometheus adds itself, from what the rig announces (`rig/observation.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from agentdyno.contract.phases import Phase
from agentdyno.emit.exposition import (
    LATENCY_BOUNDS_S,
    PHASE_BOUNDS_S,
    Buckets,
    Histogram,
    TracedBuckets,
    exposition,
)
from agentdyno.emit.sender import Sender
from agentdyno.host.probes import Probes
from agentdyno.host.trace import RequestTrace

_ADMITTED = ("ok", "error", "timeout", "client_gone")


class HostMetrics:
    """Counters of one host process; children are resolved once, so that a request costs microseconds.

    detailed: whether phases, tool calls and tokens are counted too, from each request's trace; only the self-check,
    which measures what that costs, switches it off.
    """

    def __init__(self, framework: str) -> None:
        self.detailed = True
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        requests = Counter(
            "agentdyno_requests", "Requests to /agent/invoke.", ("framework", "outcome"), registry=self.registry
        )
        outcomes = (*_ADMITTED, "rejected", "bad_request")
        self._requests = {outcome: requests.labels(framework, outcome) for outcome in outcomes}
        self._durations = {outcome: TracedBuckets(LATENCY_BOUNDS_S) for outcome in _ADMITTED}
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
        durations_text = Histogram(
            "agentdyno_request_duration_seconds",
            "From the request's head to the last byte of its answer; admitted requests only.",
        )
        for outcome, buckets in self._durations.items():
            durations_text.add(buckets, framework=framework, outcome=outcome)
        self._work = _Work(framework)
        self.registry.register(self._work)
        self.histograms = [durations_text, self._work.histogram]

    def count(self, outcome: str, duration_ns: int | None = None, trace_id: int | None = None) -> None:
        """One finished request; duration only for admitted ones; trace_id only for those that are traced."""
        self._requests[outcome].inc()
        if duration_ns is None:
            return
        if trace_id is None:
            self._durations[outcome].add(duration_ns)
        else:
            self._durations[outcome].add_traced(duration_ns, f"{trace_id:032x}", time.time())

    def count_work(self, trace: RequestTrace) -> None:
        """What an admitted request's time and work went into."""
        if self.detailed:
            self._work.add(trace)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition text and its content type: OpenMetrics, with exemplars, for whoever accepts that."""
        return exposition(self.registry, self.histograms, accept)


class _Work(Collector):
    """Sums over requests of what their traces hold. Plain numbers: all of it happens on the loop's own thread."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._phases = [Buckets(PHASE_BOUNDS_S) for _ in Phase]
        self._tools = {"ok": 0, "failed": 0}
        self._tokens = {"prompt": 0, "completion": 0}
        self.histogram = Histogram(
            "agentdyno_phase_duration_seconds", "What each phase took of an admitted request; the six add up to it."
        )
        for phase, buckets in zip(Phase, self._phases, strict=True):
            self.histogram.add(buckets, framework=framework, phase=phase.value)

    def add(self, trace: RequestTrace) -> None:
        """Count one finished request."""
        for buckets, took_ns in zip(self._phases, trace.phases_ns(), strict=True):
            buckets.add(took_ns)
        for run in trace.tools:
            self._tools["ok" if run.error is None else "failed"] += 1
        for call in trace.llm_calls:
            self._tokens["prompt"] += call.prompt_tokens or 0
            self._tokens["completion"] += call.completion_tokens or 0

    def collect(self) -> Iterator[Metric]:
        """Tool calls and tokens."""
        for name, text, label, counts in (
            ("agentdyno_tool_calls", "Tool calls at the host's border, by result.", "result", self._tools),
            ("agentdyno_llm_tokens", "Tokens by the usage in the LLM's answers.", "kind", self._tokens),
        ):
            counter = CounterMetricFamily(name, text, labels=("framework", label))
            for value, count in counts.items():
                counter.add_metric((self._framework, value), count)
            yield counter


class ProbeCollector(Collector):
    """What the probes saw, read when the metrics are: nothing is added to the moments that they watch.

    spans: the sender whose ledger is shown; None when the host is not traced.
    """

    def __init__(self, probes: Probes, framework: str, spans: Sender | None = None) -> None:
        self._probes = probes
        self._framework = framework
        self._spans = spans

    def histograms(self) -> Iterator[Histogram]:
        """GC pauses by generation, and event-loop lag."""
        pauses = Histogram("agentdyno_gc_pause_seconds", "Pauses by the cyclic garbage collector.")
        for generation, buckets in enumerate(self._probes.gc_pauses):
            pauses.add(buckets, framework=self._framework, generation=str(generation))
        yield pauses
        lags = Histogram("agentdyno_loop_lag_seconds", "How late the event loop ran a timer that was due every 50 ms.")
        lags.add(self._probes.loop_lags, framework=self._framework)
        yield lags

    def collect(self) -> Iterator[Metric]:
        """Tasks, and the ledger of trace records."""
        count = self._probes.tasks()
        if count is not None:
            tasks = GaugeMetricFamily("agentdyno_tasks", "asyncio's tasks that are not done.", labels=("framework",))
            tasks.add_metric((self._framework,), count)
            yield tasks
        if self._spans is not None:
            for name, text, count in self._spans.counters():
                counter = CounterMetricFamily(name, text, labels=("framework",))
                counter.add_metric((self._framework,), count)
                yield counter
