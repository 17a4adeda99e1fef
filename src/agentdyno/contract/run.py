"""Run records: what the load side writes for each arrival, outcomes, reason codes, exit codes."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

SCHEMA_VERSION = 1


class ExitCode(IntEnum):
    """What `agentdyno` exits with."""

    VALID = 0
    GATE_FAILED = 1
    USAGE = 2
    INVALID_RUN = 3
    INTERRUPTED = 130


class Outcome(StrEnum):
    """What became of an arrival; every arrival has just one.

    ok: 200 with a verified answer. failed: a wrong or broken answer, an error status, or no connection.
    timeout: the client gave up, or the host answered 504. rejected: 429 from the admission limit.
    dropped: never sent, because the cap on in-flight requests was reached.
    """

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    DROPPED = "dropped"


class RequestRecord(msgspec.Struct, frozen=True):
    """One arrival, as a worker writes it: one JSON line.

    index counts from 0 over the whole run, stage_index within the stage. Times are nanoseconds on the
    load side's monotonic clock since t0, the schedule's origin: intended (t0 + index/rate), sent (handed to
    the HTTP client), done (last byte read, or given up); None where it never happened. reason says in a few
    stable words why an arrival is not ok. trace_id and span_id are of the generator's own span, which the host's is
    a child of; traced says whether it asked for spans. The rest is from the answer, None when there was none.
    """

    index: int
    stage: str
    stage_index: int
    worker: int
    intended_ns: int
    sent_ns: int | None
    done_ns: int | None
    outcome: Outcome
    status: int | None = None
    reason: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    traced: bool = False
    response_bytes: int | None = None
    llm_calls: int | None = None
    tool_calls: int | None = None
    prompt_bytes: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    retries: int | None = None
    connections: int | None = None


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the load side needs to know, but for the host's address and the proof key.

    The schedule is continuous over warm-up, measurement and cool-down. max_in_flight is per worker.
    trace_every: each so-manieth arrival is traced (1: all, 0: none).
    """

    rate: float
    warmup_s: float
    duration_s: float
    cooldown_s: float
    timeout_s: float
    max_in_flight: int
    seed: int
    scenario: str
    workers: int = 1
    trace_every: int = 1


class Second(msgspec.Struct, frozen=True):
    """A worker's live report, about one a second, for the progress display.

    Counts are since the start; p50_ms and p99_ms are of the service times finished since the report before,
    None when there were none. in_flight is now.
    """

    elapsed_s: float
    stage: str
    arrivals: int
    ok: int
    failed: int
    timeout: int
    rejected: int
    dropped: int
    in_flight: int
    p50_ms: float | None
    p99_ms: float | None


class WorkerEnd(msgspec.Struct, frozen=True):
    """What a worker knows only at its end.

    t0_monotonic_ns: the schedule's origin on the worker's machine's monotonic clock.
    in_flight_area_s: the integral of its in-flight count over the measurement window, kept live (for Little's
    law). measure_start_ns, measure_end_ns: that window on the record's clock. cpu_s: the worker process's own
    CPU over the window. finished: the whole schedule was followed. service_hdr: an HDR histogram of the service times
    of its measured, answered requests (load/service_histogram.py); None in records of a version that kept none.
    """

    worker: int
    finished: bool
    t0_monotonic_ns: int
    in_flight_area_s: float | None
    measure_start_ns: int
    measure_end_ns: int
    cpu_s: float | None
    service_hdr: str | None = None


class BackendStage(msgspec.Struct, frozen=True):
    """What the mock LLM served for one stage's orders; sums over calls.

    connections: those whose first call was one of these (None in records of a version that did not count them).
    """

    calls: int = 0
    errors: int = 0
    prompt_bytes: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tool_calls: int = 0
    connections: int | None = None


class BackendConnections(msgspec.Struct, frozen=True):
    """Connections that the mock LLM accepted, whoever opened them, and the requests of any kind that came on them.

    most_requests: on one connection.
    """

    accepted: int = 0
    requests: int = 0
    most_requests: int = 0


class BackendStats(msgspec.Struct, frozen=True):
    """The mock LLM's `/stats`. stages: by stage letter; "" for calls without an order id. connections: None in records
    of a version that did not count them.
    """

    stages: dict[str, BackendStage]
    in_flight: int
    in_flight_max: int
    cancelled: int
    connections: BackendConnections | None = None


class ServerCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What a vLLM server counted over the load, all stages; times are sums over its requests, s.

    requests: that came to their end (any finish reason), so not those that a client gave up.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    preemptions: int
    queue_s: float
    prefill_s: float
    decode_s: float
    first_token_s: float
    end_to_end_s: float


class Reason(StrEnum):
    """Why a run is invalid (or, as a note, what a reader must know). Stable; the message is for people."""

    NOT_CONSERVED = "not_conserved"
    GENERATOR_LATE = "generator_late"
    GENERATOR_CPU = "generator_cpu"
    GENERATOR_DIED = "generator_died"
    NO_SUCCESS = "no_success"
    SPANS_MISSING = "spans_missing"
    PERCENTILE_ORDER = "percentile_order"
    LITTLES_LAW = "littles_law"
    ENVIRONMENT_DIFFERS = "environment_differs"
    WORK_DIFFERS = "work_differs"
    HOST_FAILED = "host_failed"
    BACKEND_FAILED = "backend_failed"
    INTERRUPTED = "interrupted"
    DISK_FULL = "disk_full"
    RIG_FAILED = "rig_failed"
    OOM_KILLED = "oom_killed"
    POD_RESTARTED = "pod_restarted"
    POD_EVICTED = "pod_evicted"
    API_LOST = "api_lost"
    # notes
    OVERLOADED = "overloaded"
    FEW_SAMPLES = "few_samples"
    NOT_PINNED = "not_pinned"
    NOISY = "noisy"
    PROBES_LOST = "probes_lost"
    PROFILED = "profiled"
    NOT_READABLE = "not_readable"
    NATIVE_SPANS = "native_spans"
    PROTOCOL_ONLY = "protocol_only"
    THROTTLED = "throttled"


class Finding(msgspec.Struct, frozen=True):
    """A reason code with its sentence."""

    code: Reason
    message: str


class Verdict(msgspec.Struct, frozen=True):
    """valid is False when there is at least one reason. notes do not make a run invalid.

    comparable is False when the host carried what a timed one never does (a heap profiler, the framework's own
    instrumentation): such a run enters no comparison and no ranking, valid or not.
    """

    valid: bool
    reasons: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    comparable: bool = True
