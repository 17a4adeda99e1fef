"""`summary.json`: the figures of one run. Strict JSON; None (null), never 0, for what was not measured."""

from __future__ import annotations

import msgspec

from agentdyno.contract.run import SCHEMA_VERSION, Verdict


class Framework(msgspec.Struct, frozen=True):
    """What was measured. version: of the framework's own distribution, None when it has none."""

    name: str
    version: str | None
    approach: str
    plans_with: str


class Lateness(msgspec.Struct, frozen=True):
    """How long after their intended start arrivals were really sent, ms."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class StageCounts(msgspec.Struct, frozen=True):
    """What became of the arrivals of one stage; arrivals = ok + failed + timeout + rejected + dropped."""

    arrivals: int
    sent: int
    ok: int
    failed: int
    timeout: int
    rejected: int
    dropped: int


class Load(msgspec.Struct, frozen=True):
    """The measured stage's arrivals. excluded: warm-up and cool-down, whose
    arrivals are in no other count and no latency.

    achieved_rate: (sent - 1) / (last send - first send). in_flight_max: sent and not yet done, at most, at one moment
    of the measurement window.
    """

    requested_rate: float
    achieved_rate: float | None
    arrivals: int
    sent: int
    ok: int
    failed: int
    timeout: int
    rejected: int
    dropped: int
    in_flight_max: int | None
    lateness_ms: Lateness
    excluded: dict[str, StageCounts]
    failure_reasons: dict[str, int]


class Latency(msgspec.Struct, frozen=True):
    """Latency of verified answers, ms. A percentile with too few samples is None."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    max: float | None = None


class Latencies(msgspec.Struct, frozen=True):
    """intended: from the scheduled arrival (what a user feels). service: from the actual send."""

    intended: Latency
    service: Latency


class Memory(msgspec.Struct, frozen=True):
    """The memory of the host's process and its descendants, MB (10^6 bytes).

    pss_peak and private_dirty_peak: the largest sum over them at one moment, one look a second. rss_peak: the larger
    of the kernel's high-water mark of one process (which is it for a host of one process) and the largest such sum,
    four looks a second. rss_idle: of the host's own process, ready, with one request answered. The others are sums over
    the processes: rss_warm at the end of the warm-up, rss_drained when the load has ended and all is answered,
    rss_rested after the idle wait, where one was asked for.
    """

    rss_idle: float | None = None
    rss_warm: float | None = None
    rss_drained: float | None = None
    rss_rested: float | None = None
    rss_peak: float | None = None
    pss_peak: float | None = None
    private_dirty_peak: float | None = None


class Gc(msgspec.Struct, frozen=True):
    """Pauses by the cyclic garbage collector within the measurement window."""

    pause_total_ms: float | None = None
    pause_max_ms: float | None = None
    collections: int | None = None


class LoopLag(msgspec.Struct, frozen=True):
    """How late the host's event loop ran a timer, every 50 ms, within the measurement window."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class PhaseTime(msgspec.Struct, frozen=True):
    """One phase over the traced requests; share: of the summed duration of all of them."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    mean: float | None = None
    share: float | None = None


class Step(msgspec.Struct, frozen=True):
    """A step of the critical path: an event's name, or the phase between two; its mean time, ms."""

    name: str
    mean: float


class CriticalPath(msgspec.Struct, frozen=True):
    """The sequence of steps that most traced requests waited for. requests: how many took it, of so many."""

    requests: int
    of_requests: int
    steps: tuple[Step, ...]


class Ledger(msgspec.Struct, frozen=True):
    """The same-work ledger: means per verified request, counted at the host's borders.

    connections: opened to the LLM for the request; 0 where one is kept and reused.
    """

    llm_calls: float | None = None
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_bytes: float | None = None
    tool_calls: float | None = None
    retries: float | None = None
    connections: float | None = None

    @property
    def tokens(self) -> float | None:
        """Prompt and completion tokens together; None when one of them was not counted."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


class SpanLedger(msgspec.Struct, frozen=True):
    """Spans of the measured stage; all None when the run was not traced."""

    expected: int | None = None
    received: int | None = None
    orphaned: int | None = None
    dropped: int | None = None


class Generator(msgspec.Struct, frozen=True):
    """The load side itself. cpu_percent: of one core, the busiest worker, over the measurement window."""

    cpu_percent: float | None = None
    lateness_ok: bool | None = None
    workers: int = 1


BackendFact = str | bool | int | float | None
BackendFacts = dict[str, BackendFact | dict[str, BackendFact]]
"""Of the backend: kind, model, url; of one that is not the mock: served_by, and its settings by who says so. settings:
what this program or the chart started it with. stated: its user's words, which nobody has checked. told: the server's
own answers. One of which nothing is known has no such key.
"""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run. cpu_ms_per_request: the host process tree's CPU over the measurement window, divided by the
    verified answers finished in it. idle_cpu_ms_per_s: what the same processes use while nothing is asked of them.
    goodput_rps: verified answers to the window's arrivals, per second of it. cold_start_ms: from the spawn of the host
    to its first ready answer. time_split_ms: what the requests' time went into: llm_wait (the backend served),
    llm_client (in a call, but not in the backend), tool, framework. backend_ms: means of a call within vLLM, by
    its own spans: queue, prefill, first_token, decode, end_to_end; else empty.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    framework: Framework
    scenario: str
    workload_hash: str
    backend: BackendFacts
    load: Load | None
    latency_ms: Latencies | None
    goodput_rps: float | None
    cpu_ms_per_request: float | None
    idle_cpu_ms_per_s: float | None = None
    cold_start_ms: float | None
    memory_mb: Memory
    gc: Gc
    loop_lag_ms: LoopLag
    phases_ms: dict[str, PhaseTime | None]
    time_split_ms: dict[str, PhaseTime | None] = {}
    critical_path: CriticalPath | None = None
    backend_ms: dict[str, float | None] = {}
    ledger: Ledger
    spans: SpanLedger
    generator: Generator
    overloaded: bool | None
    verdict: Verdict
