"""What a process tells Prometheus of itself: histograms that cost a request next to nothing, and their text."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

# 1 ms to 60 s, about 1.5 x apart, so that a percentile read from buckets is within a quarter of the truth.
LATENCY_BOUNDS_S = (
    *(0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
# The parts of a request start lower: a phase may take microseconds.
PHASE_BOUNDS_S = (2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, *LATENCY_BOUNDS_S)
_EOF = b"# EOF\n"


class Buckets:
    """Counts of durations by size, in flat arrays and without a lock: a GC callback may come at any moment, also when
    this very thread holds the lock of a metric.
    """

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds_s = tuple(bounds_s)
        self.counts = array("q", bytes(8 * (len(self.bounds_s) + 1)))
        self.total_s = 0.0

    def add(self, duration_ns: int) -> None:
        """Count one."""
        seconds = duration_ns / 1e9
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.total_s += seconds


class TracedBuckets(Buckets):
    """Buckets that also remember, of each size, the last trace that was as long: (trace id, seconds, Unix time)."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        super().__init__(bounds_s)
        self.exemplars: list[tuple[str, float, float] | None] = [None] * len(self.counts)

    def add_traced(self, duration_ns: int, trace_id: str, unix_s: float) -> None:
        """Count one that is a trace. unix_s: now, by the wall clock."""
        seconds = duration_ns / 1e9
        at = bisect_left(self.bounds_s, seconds)
        self.counts[at] += 1
        self.total_s += seconds
        self.exemplars[at] = (trace_id, seconds, unix_s)


class Histogram:
    """A histogram's series as text, made from buckets that others fill.

    prometheus-client takes 10 us a line, and a process that is measured stands still meanwhile: for a host's 450 lines
    that was 5 to 10 ms at every scrape. What a line begins with is made once here.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._head = f"# HELP {name} {text}\n# TYPE {name} histogram\n"
        self._series: list[tuple[Buckets, list[str], str, str]] = []

    def add(self, buckets: Buckets, **labels: str) -> None:
        """One more series; label values are plain words or names that the rig has checked."""
        bounds = [*(str(bound) for bound in buckets.bounds_s), "+Inf"]
        heads = [f"{self._name}_bucket{_braced({**labels, 'le': bound})} " for bound in bounds]
        shown = _braced(labels)
        self._series.append((buckets, heads, f"{self._name}_sum{shown} ", f"{self._name}_count{shown} "))

    def render(self, *, exemplars: bool) -> str:
        """The lines; exemplars: allowed in OpenMetrics alone."""
        lines = [self._head]
        for buckets, heads, sum_head, count_head in self._series:
            running = list(accumulate(buckets.counts))
            traces = buckets.exemplars if exemplars and isinstance(buckets, TracedBuckets) else None
            for at, head in enumerate(heads):
                trace = None if traces is None else traces[at]
                lines.append(f"{head}{running[at]}{'' if trace is None else _exemplar(*trace)}\n")
            lines.append(f"{sum_head}{buckets.total_s}\n{count_head}{running[-1]}\n")
        return "".join(lines)


def exposition(registry: CollectorRegistry, histograms: Iterable[Histogram], accept: str) -> tuple[bytes, str]:
    """The text of all metrics and its content type: OpenMetrics, with exemplars, for whoever asks for it."""
    encode, content_type = choose_encoder(accept)
    openmetrics = content_type.startswith("application/openmetrics-text")
    text = encode(registry)
    end = _EOF if openmetrics else b""
    ours = "".join(histogram.render(exemplars=openmetrics) for histogram in histograms)
    return text.removesuffix(end) + ours.encode() + end, content_type


def _exemplar(trace_id: str, seconds: float, unix_s: float) -> str:
    return f' # {{trace_id="{trace_id}"}} {seconds} {unix_s:.3f}'


def _braced(labels: Mapping[str, str]) -> str:
    shown = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
