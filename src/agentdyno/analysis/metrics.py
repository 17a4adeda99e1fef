"""The declared metrics: name, unit, direction and where in the summary each stands; tables and reports follow them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from agentdyno.contract.summary import Summary


class Better(StrEnum):
    """Which direction is better; NEITHER for a figure that only describes."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. path: attribute names from the summary. definition: one sentence, for tables of definitions."""

    name: str
    title: str
    unit: str
    better: Better
    path: str
    definition: str

    def value(self, summary: Summary) -> float | None:
        """The figure of one run; None when it was not measured."""
        found = reduce(lambda at, name: None if at is None else getattr(at, name), self.path.split("."), summary)
        return None if found is None else float(found)  # type: ignore[arg-type]

    def text(self, summary: Summary) -> str:
        """Rounded for people, with the unit; a dash when it was not measured."""
        value = self.value(summary)
        return "-" if value is None else f"{rounded(value)} {self.unit}".rstrip()


METRICS: tuple[Metric, ...] = (
    Metric(
        "goodput",
        "Goodput",
        "rps",
        Better.HIGHER,
        "goodput_rps",
        "Verified answers to the window's arrivals, per second of it.",
    ),
    Metric(
        "cpu_per_request",
        "CPU per request",
        "ms",
        Better.LOWER,
        "cpu_ms_per_request",
        "CPU of the host's processes over the window, per verified answer finished in it.",
    ),
    Metric("p50", "Latency p50", "ms", Better.LOWER, "latency_ms.intended.p50", "Half of the answers came within."),
    Metric("p95", "Latency p95", "ms", Better.LOWER, "latency_ms.intended.p95", "95 % of the answers came within."),
    Metric("p99", "Latency p99", "ms", Better.LOWER, "latency_ms.intended.p99", "99 % of the answers came within."),
    Metric("latency_max", "Latency max", "ms", Better.LOWER, "latency_ms.intended.max", "The slowest answer."),
    Metric(
        "service_p50", "Service time p50", "ms", Better.LOWER, "latency_ms.service.p50", "As p50, from the actual send."
    ),
    Metric(
        "service_p99", "Service time p99", "ms", Better.LOWER, "latency_ms.service.p99", "As p99, from the actual send."
    ),
    Metric(
        "rss_peak",
        "Memory peak (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_peak",
        "The kernel's high-water mark; of a host of several processes the largest sum at one moment, if that is more.",
    ),
    Metric(
        "pss_peak",
        "Memory peak (PSS)",
        "MB",
        Better.LOWER,
        "memory_mb.pss_peak",
        "The largest sum over the host's processes at one moment, one look a second.",
    ),
    Metric("rss_idle", "Memory idle (RSS)", "MB", Better.LOWER, "memory_mb.rss_idle", "Ready, one request answered."),
    Metric("rss_warm", "Memory warm (RSS)", "MB", Better.LOWER, "memory_mb.rss_warm", "At the end of the warm-up."),
    Metric(
        "rss_drained",
        "Memory drained (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_drained",
        "When the load has ended and all is answered.",
    ),
    Metric(
        "rss_rested",
        "Memory rested (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_rested",
        "After IDLE_WAIT= without a request: what is missing from the drained figure was given back.",
    ),
    Metric(
        "gc_pause_total",
        "GC pauses, total",
        "ms",
        Better.LOWER,
        "gc.pause_total_ms",
        "Sum of the collector's pauses within the window.",
    ),
    Metric("gc_pause_max", "GC pause, longest", "ms", Better.LOWER, "gc.pause_max_ms", "The longest such pause."),
    Metric("loop_lag_p99", "Event-loop lag p99", "ms", Better.LOWER, "loop_lag_ms.p99", "How late a timer ran."),
    Metric("cold_start", "Cold start", "ms", Better.LOWER, "cold_start_ms", "Spawn of the host to its first ready."),
    Metric("llm_calls", "LLM calls per request", "", Better.NEITHER, "ledger.llm_calls", "At the host's border."),
    Metric("tool_calls", "Tool calls per request", "", Better.NEITHER, "ledger.tool_calls", "At the tool border."),
    Metric(
        "prompt_tokens",
        "Prompt tokens per request",
        "",
        Better.NEITHER,
        "ledger.prompt_tokens",
        "As the backend counts them, summed over the request's calls.",
    ),
    Metric(
        "prompt_bytes", "Prompt bytes per request", "", Better.NEITHER, "ledger.prompt_bytes", "Bodies sent to the LLM."
    ),
    Metric(
        "connections",
        "Connections per request",
        "",
        Better.LOWER,
        "ledger.connections",
        "Opened to the LLM; 0 where they are kept and reused.",
    ),
)


def rounded(value: float) -> str:
    """Three significant digits below 100, whole numbers with thousands marks above: never more than is known."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    short = f"{value:.3g}"
    return short if "e" not in short else f"{float(short):.12f}".rstrip("0").rstrip(".")
