"""The declared metrics: name, unit, direction and where in the summary each stands; tables and reports follow them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.summary import Summary


class Better(StrEnum):
    """Which direction is better; NEITHER for a figure that only describes."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. path: attribute names from the summary. definition: one sentence, for tables of definitions.

    headline: under which loads it stands in a comparison's first table and is compared between all entries, because
    it is meaningful there. cv_max: the spread over a campaign's rounds (standard deviation over mean) above which it
    is called unstable; None for an extreme, or a figure of the start, that is never steady. quantile: of a percentile.
    """

    name: str
    title: str
    unit: str
    better: Better
    path: str
    definition: str
    headline: tuple[LoadName, ...] = ()
    cv_max: float | None = None
    quantile: float | None = None

    def value(self, summary: Summary) -> float | None:
        """The figure of one run; None when it was not measured."""
        found = reduce(lambda at, name: None if at is None else getattr(at, name), self.path.split("."), summary)
        return None if found is None else float(found)  # type: ignore[arg-type]

    def text(self, summary: Summary) -> str:
        """Rounded for people, with the unit; a dash when it was not measured."""
        value = self.value(summary)
        return "-" if value is None else f"{rounded(value)} {self.unit}".rstrip()


_STEADY = (LoadName.STEADY,)
_STANDARD = (LoadName.STANDARD,)
_BOTH = (LoadName.STEADY, LoadName.STANDARD)
# By kind of metric: how much rounds differ on a machine that does nothing else. CPU per request repeats within 2 %,
# memory and counts within less; a median of latencies feels each pause of the machine, a tail lives of them; how many
# collections fall into a window is a matter of where it begins.
_CV_CPU, _CV_MEMORY, _CV_RATE, _CV_MIDDLE, _CV_TAIL, _CV_GC, _CV_WORK = 0.05, 0.05, 0.05, 0.10, 0.25, 0.25, 0.01


def _latency(name: str, title: str, path: str, definition: str, quantile: float, headline: bool = False) -> Metric:
    return Metric(
        *(name, title, "ms", Better.LOWER, path, definition),
        headline=_BOTH if headline else (),
        cv_max=_CV_MIDDLE if quantile <= 0.5 else _CV_TAIL,
        quantile=quantile,
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "goodput",
        "Goodput",
        "rps",
        Better.HIGHER,
        "goodput_rps",
        "Verified answers to the window's arrivals, per second of it.",
        headline=_STANDARD,
        cv_max=_CV_RATE,
    ),
    Metric(
        "cpu_per_request",
        "CPU per request",
        "ms",
        Better.LOWER,
        "cpu_ms_per_request",
        "CPU of the host's processes over the window, per verified answer finished in it.",
        headline=_STEADY,
        cv_max=_CV_CPU,
    ),
    Metric(
        "idle_cpu",
        "CPU while idle",
        "ms/s",
        Better.LOWER,
        "idle_cpu_ms_per_s",
        "CPU of the host's processes a second before the first arrival, probes and server included.",
    ),
    _latency("p50", "Latency p50", "latency_ms.intended.p50", "Half of the answers came within.", 0.5, headline=True),
    _latency("p90", "Latency p90", "latency_ms.intended.p90", "90 % of the answers came within.", 0.9),
    _latency("p95", "Latency p95", "latency_ms.intended.p95", "95 % of the answers came within.", 0.95, headline=True),
    _latency("p99", "Latency p99", "latency_ms.intended.p99", "99 % of the answers came within.", 0.99, headline=True),
    _latency("p999", "Latency p99.9", "latency_ms.intended.p999", "99.9 % of the answers came within.", 0.999),
    Metric("latency_max", "Latency max", "ms", Better.LOWER, "latency_ms.intended.max", "The slowest answer."),
    _latency("service_p50", "Service time p50", "latency_ms.service.p50", "As p50, from the actual send.", 0.5),
    _latency("service_p99", "Service time p99", "latency_ms.service.p99", "As p99, from the actual send.", 0.99),
    Metric(
        "rss_peak",
        "Memory peak (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_peak",
        "The kernel's high-water mark; of a host of several processes the largest sum at one moment, if that is more.",
        headline=_STANDARD,
        cv_max=_CV_MEMORY,
    ),
    Metric(
        "pss_peak",
        "Memory peak (PSS)",
        "MB",
        Better.LOWER,
        "memory_mb.pss_peak",
        "The largest sum over the host's processes at one moment, one look a second.",
        cv_max=_CV_MEMORY,
    ),
    Metric(
        "rss_idle",
        "Memory idle (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_idle",
        "Ready, one request answered.",
        cv_max=_CV_MEMORY,
    ),
    Metric(
        "rss_warm",
        "Memory warm (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_warm",
        "At the end of the warm-up.",
        cv_max=_CV_MEMORY,
    ),
    Metric(
        "rss_drained",
        "Memory drained (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_drained",
        "When the load has ended and all is answered.",
        cv_max=_CV_MEMORY,
    ),
    Metric(
        "rss_rested",
        "Memory rested (RSS)",
        "MB",
        Better.LOWER,
        "memory_mb.rss_rested",
        "After IDLE_WAIT= without a request: what is missing from the drained figure was given back.",
        cv_max=_CV_MEMORY,
    ),
    Metric(
        "gc_pause_total",
        "GC pauses, total",
        "ms",
        Better.LOWER,
        "gc.pause_total_ms",
        "Sum of the collector's pauses within the window.",
        headline=_STANDARD,
        cv_max=_CV_GC,
    ),
    Metric("gc_pause_max", "GC pause, longest", "ms", Better.LOWER, "gc.pause_max_ms", "The longest such pause."),
    Metric(
        "loop_lag_p99",
        "Event-loop lag p99",
        "ms",
        Better.LOWER,
        "loop_lag_ms.p99",
        "How late a timer ran.",
        cv_max=_CV_TAIL,
    ),
    Metric("cold_start", "Cold start", "ms", Better.LOWER, "cold_start_ms", "Spawn of the host to its first ready."),
    Metric(
        "llm_calls",
        "LLM calls per request",
        "",
        Better.NEITHER,
        "ledger.llm_calls",
        "At the host's border.",
        cv_max=_CV_WORK,
    ),
    Metric(
        "tool_calls",
        "Tool calls per request",
        "",
        Better.NEITHER,
        "ledger.tool_calls",
        "At the tool border.",
        cv_max=_CV_WORK,
    ),
    Metric(
        "prompt_tokens",
        "Prompt tokens per request",
        "",
        Better.NEITHER,
        "ledger.prompt_tokens",
        "As the backend counts them, summed over the request's calls.",
        cv_max=_CV_WORK,
    ),
    Metric(
        "tokens",
        "Tokens per request",
        "",
        Better.NEITHER,
        "ledger.tokens",
        "Prompt and completion, as the backend counts.",
        headline=_STEADY,
        cv_max=_CV_WORK,
    ),
    Metric(
        "prompt_bytes",
        "Prompt bytes per request",
        "",
        Better.NEITHER,
        "ledger.prompt_bytes",
        "Bodies sent to the LLM.",
        cv_max=_CV_WORK,
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
