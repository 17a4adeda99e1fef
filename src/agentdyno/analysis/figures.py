"""The figures of one run, each from raw records: load, latency, CPU, memory, GC, loop lag, ledger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.percentiles import latency, percentile
from agentdyno.analysis.run_data import NS_PER_MS, NS_PER_S, Marks, Numbers, Requests, RunData, Window
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome
from agentdyno.contract.summary import Gc, Latencies, Lateness, Ledger, Load, LoopLag, Memory, StageCounts
from agentdyno.record.manifest import Backend

_MB = 1e6
IDLE_LEAST_S = 0.5  # two of the sampler's looks


def stage_counts(requests: Requests, stage: Stage) -> StageCounts:
    """What became of a stage's arrivals."""
    rows = requests.stage(stage)
    by = {outcome: int((rows & requests.outcome(outcome)).sum()) for outcome in Outcome}
    return StageCounts(
        arrivals=int(rows.sum()),
        sent=int((rows & requests.was_sent).sum()),
        ok=by[Outcome.OK],
        failed=by[Outcome.FAILED],
        timeout=by[Outcome.TIMEOUT],
        rejected=by[Outcome.REJECTED],
        dropped=by[Outcome.DROPPED],
    )


def load(requests: Requests, rate_rps: float, window: Window) -> Load:
    """The measured stage's load."""
    counts = stage_counts(requests, Stage.MEASURE)
    rows = requests.stage(Stage.MEASURE)
    late = lateness_ms(requests, rows)
    return Load(
        requested_rate=rate_rps,
        achieved_rate=_achieved_rate(requests.sent_ns[rows & requests.was_sent]),
        arrivals=counts.arrivals,
        sent=counts.sent,
        ok=counts.ok,
        failed=counts.failed,
        timeout=counts.timeout,
        rejected=counts.rejected,
        dropped=counts.dropped,
        in_flight_max=in_flight_max(requests, window),
        lateness_ms=Lateness(
            p50=percentile(late, 0.50),
            p99=percentile(late, 0.99),
            max=float(late.max()) if late.size else None,
        ),
        excluded={stage.value: stage_counts(requests, stage) for stage in (Stage.WARMUP, Stage.COOLDOWN)},
        failure_reasons=requests.counts("reason", rows),
    )


def _achieved_rate(sent_ns: Numbers) -> float | None:
    span_ns = float(sent_ns.max() - sent_ns.min()) if sent_ns.size else 0.0
    return (sent_ns.size - 1) * NS_PER_S / span_ns if span_ns else None


def lateness_ms(requests: Requests, rows: Marks) -> Numbers:
    """Actual minus intended start of the arrivals that were sent; never negative, as nothing is sent early."""
    sent = rows & requests.was_sent
    late: Numbers = (requests.sent_ns[sent] - requests.intended_ns[sent]) / NS_PER_MS
    return late


def in_flight_max(requests: Requests, window: Window) -> int | None:
    """The most requests, of whichever stage, that were sent and not yet done at one moment of the window."""
    begin, end = _flights(requests, window)
    if not begin.size:
        return None
    times = np.concatenate([begin, end])
    steps = np.concatenate([np.ones(begin.size), -np.ones(end.size)])
    order = np.lexsort((steps, times))  # at equal times the departure first
    return int(steps[order].cumsum().max())


def mean_in_flight(requests: Requests, window: Window) -> float:
    """Time-average of the requests in flight over the window, from the records' own times."""
    begin, end = _flights(requests, window)
    return float((end - begin).sum()) / (window.end_ns - window.start_ns)


def _flights(requests: Requests, window: Window) -> tuple[Numbers, Numbers]:
    """From when to when each request was in flight within the window, those that were not left out."""
    ended = requests.has_ended
    begin = np.maximum(requests.sent_ns[ended], window.start_ns)
    end = np.minimum(requests.done_ns[ended], window.end_ns)
    inside = begin < end
    return begin[inside], end[inside]


def latencies(requests: Requests) -> Latencies:
    """Of the measured stage's verified answers; failures and rejections are counted elsewhere, never timed here."""
    intended_ms, service_ms = latency_samples_ms(requests)
    return Latencies(intended=latency(intended_ms), service=latency(service_ms))


def latency_samples_ms(requests: Requests) -> tuple[Numbers, Numbers]:
    """Those latencies one by one: from the intended start, and from the actual send."""
    rows = requests.stage(Stage.MEASURE) & requests.outcome(Outcome.OK) & requests.has_ended
    done = requests.done_ns[rows]
    return (done - requests.intended_ns[rows]) / NS_PER_MS, (done - requests.sent_ns[rows]) / NS_PER_MS


def finished_in_window(requests: Requests, window: Window) -> int:
    """Verified answers, of whichever stage, whose last byte fell into the window."""
    done = requests.done_ns
    inside = (done >= window.start_ns) & (done < window.end_ns)
    return int((inside & requests.outcome(Outcome.OK)).sum())


def cpu_seconds(resources: pa.Table, role: str, window_ns: tuple[int, int]) -> float | None:
    """CPU (user and system) of a role's processes over the window; see `_over_window`.

    To the nanosecond by the kernel's clock of each process; in ticks of 10 ms of a process for which that was not to
    be had at every look, as the two counts must not be mixed.
    """
    return _over_window(resources, role, (("cpu_s",), ("cpu_user_s", "cpu_system_s")), window_ns)


def run_queue_wait_seconds(resources: pa.Table, role: str, window_ns: tuple[int, int]) -> float | None:
    """How long a role's main threads were ready to run and had to wait for a core; see `_over_window`.

    The host has its core to itself, so what it waited there was taken by something outside the run.
    """
    return _over_window(resources, role, (("run_queue_wait_s",),), window_ns)


def run_queue_waits_ms(data: RunData) -> dict[str, float | None]:
    """That wait of each role over the window, ms; None where it could not be read."""
    window_ns = data.window_ns()
    if data.resources is None or window_ns is None:
        return {}
    resources = data.resources
    waits = {
        str(role): run_queue_wait_seconds(resources, str(role), window_ns) for role in pc.unique(resources["role"])
    }
    return {role: None if wait is None else wait * 1000 for role, wait in waits.items()}


def _over_window(
    resources: pa.Table, role: str, sources: Sequence[tuple[str, ...]], window_ns: tuple[int, int]
) -> float | None:
    """By how much a role's running totals grew over the window, summed over its processes and a source's columns.

    Of the sources each process takes the first that was read at every look, or else the last.

    Each process's running total is interpolated at the window's borders between the samples around them (a quarter
    of a second apart). A process that is first seen within the window began there, with a total of 0; one that is
    last seen there counts up to then. None when the role's samples do not reach around the window, or when a
    process's totals could not be read: a part of the sum is not the sum.
    """
    rows = resources.filter(pc.equal(resources["role"], role))
    if not rows.num_rows:
        return None
    reach = pc.min_max(rows["monotonic_ns"])
    if reach["min"].as_py() > window_ns[0] or reach["max"].as_py() < window_ns[1]:
        return None
    used = [_of_one(rows.filter(pc.equal(rows["pid"], pid)), sources, window_ns) for pid in pc.unique(rows["pid"])]
    known = [seconds for seconds in used if seconds is not None]
    return sum(known) if len(known) == len(used) else None


def _of_one(samples: pa.Table, sources: Sequence[tuple[str, ...]], window_ns: tuple[int, int]) -> float | None:
    whole = (names for names in sources if not any(samples[name].null_count for name in names))
    columns = next(whole, sources[-1])
    total_s = np.sum([samples[name].to_numpy() for name in columns], axis=0)
    known = ~np.isnan(total_s)
    if not known.any():
        return None
    times_ns = samples["monotonic_ns"].to_numpy()[known].astype(float)
    at_start, at_end = np.interp(np.array(window_ns, dtype=float), times_ns, total_s[known])
    return float(at_end - (at_start if times_ns[0] <= window_ns[0] else 0.0))


def cpu_ms_per_request(data: RunData) -> float | None:
    """The host process tree's CPU over the window, per verified answer finished in it."""
    window_ns = data.window_ns()
    if data.requests is None or data.resources is None or window_ns is None:
        return None
    finished = finished_in_window(data.requests, data.window())
    used_s = cpu_seconds(data.resources, "host", window_ns)
    return used_s * 1000 / finished if used_s is not None and finished else None


def idle_cpu_ms_per_s(data: RunData) -> float | None:
    """The host process tree's CPU a second while nothing is asked of it: from the sampler's first look, when the host
    has answered once, to the first arrival. None where that is less than IDLE_LEAST_S.
    """
    t0_ns = data.manifest.t0_monotonic_ns
    if data.resources is None or t0_ns is None:
        return None
    looks = data.resources.filter(pc.equal(data.resources["role"], "host"))["monotonic_ns"]
    first_ns = pc.min(looks).as_py()
    if first_ns is None or t0_ns - first_ns < IDLE_LEAST_S * NS_PER_S:
        return None
    used_s = cpu_seconds(data.resources, "host", (first_ns, t0_ns))
    return None if used_s is None else used_s * 1000 / ((t0_ns - first_ns) / NS_PER_S)


def memory(data: RunData) -> Memory:
    """The host's memory over the whole run.

    The host is a tree of processes as soon as a framework forks or starts one, so PSS and private dirty are summed
    over the tree at each look of the sampler, and the largest sum is the peak. RSS likewise, but a look can miss a
    short peak and the kernel's high-water mark of one process cannot: the peak is the larger of the two, which for
    a host of one process is that mark. (A page that several processes share counts in each one's RSS, and in PSS
    once.) A look at which one process could not be read is left out.
    """
    idle = data.manifest.rss_idle_bytes
    if data.resources is None:
        return Memory(rss_idle=_mb(idle))
    rows = data.resources.filter(pc.equal(data.resources["role"], "host"))
    peaks = [pc.max(rows["rss_peak_bytes"]).as_py(), _tree_peak(rows, "rss_bytes")]
    moments, window_ns = data.manifest.moments_monotonic_ns, data.window_ns()
    return Memory(
        rss_idle=_mb(idle),
        rss_warm=_mb(_tree_rss_at(rows, window_ns[0] if window_ns is not None else None)),
        rss_drained=_mb(_tree_rss_at(rows, moments.get("drained"))),
        rss_rested=_mb(_tree_rss_at(rows, moments.get("rested"))),
        rss_peak=_mb(max((peak for peak in peaks if peak is not None), default=None)),
        pss_peak=_mb(_tree_peak(rows, "pss_bytes")),
        private_dirty_peak=_mb(_tree_peak(rows, "private_dirty_bytes")),
    )


def _tree_peak(rows: pa.Table, column: str) -> int | None:
    """The largest sum over the processes of one look."""
    peak: int | None = pc.max(whole_looks(rows, column)[f"{column}_sum"]).as_py()
    return peak


def _tree_rss_at(rows: pa.Table, moment_ns: int | None) -> int | None:
    """The sum over the processes of the first look at or after a moment; None when there was none any more."""
    if moment_ns is None:
        return None
    looks = whole_looks(rows, "rss_bytes")
    looks = looks.filter(pc.greater_equal(looks["monotonic_ns_min"], moment_ns)).sort_by("look")
    rss: int | None = looks["rss_bytes_sum"][0].as_py() if looks.num_rows else None
    return rss


def whole_looks(rows: pa.Table, column: str) -> pa.Table:
    """One row for each look in which every process could be read: the sum of the column, and when it was."""
    aggregates = [(column, "sum"), (column, "count"), ("pid", "count"), ("monotonic_ns", "min")]
    looks = rows.group_by("look").aggregate(aggregates)
    return looks.filter(pc.equal(looks[f"{column}_count"], looks["pid_count"]))


def _mb(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / _MB


def gc(data: RunData) -> Gc:
    """Pauses that began within the window."""
    window_ns = data.window_ns()
    if data.gc is None or window_ns is None:
        return Gc()
    start = data.gc["start_monotonic_ns"].to_numpy()
    pauses = data.gc["pause_ns"].to_numpy()[(start >= window_ns[0]) & (start < window_ns[1])] / NS_PER_MS
    if pauses.size == 0:
        return Gc(pause_total_ms=0.0, pause_max_ms=None, collections=0)
    return Gc(pause_total_ms=float(pauses.sum()), pause_max_ms=float(pauses.max()), collections=int(pauses.size))


def loop_lag(data: RunData) -> LoopLag:
    """Lag of the probe's deadlines within the window."""
    window_ns = data.window_ns()
    if data.loop is None or window_ns is None:
        return LoopLag()
    due = data.loop["deadline_monotonic_ns"].to_numpy()
    lag = data.loop["lag_ns"].to_numpy()[(due >= window_ns[0]) & (due < window_ns[1])] / NS_PER_MS
    if lag.size == 0:
        return LoopLag()
    return LoopLag(p50=percentile(lag, 0.50), p99=percentile(lag, 0.99), max=float(lag.max()))


def ledger(requests: Requests, backend: Backend | None) -> Ledger:
    """Means over the measured stage's verified answers.

    A framework that streams without asking for usage leaves the host without token counts; where every arrival was
    verified the mock's own count of the same calls stands in, which is then per request exactly.
    """
    rows = requests.stage(Stage.MEASURE) & requests.outcome(Outcome.OK)
    stats = backend.stats if backend is not None else None
    served = None if stats is None or not rows.sum() else stats.stages.get(Stage.MEASURE.letter)
    all_verified = bool(rows.sum() == requests.stage(Stage.MEASURE).sum())

    def mean(column: str) -> float | None:
        values = requests.numbers(column)[rows]
        values = values[~np.isnan(values)]
        return float(values.mean()) if values.size else None

    def tokens(column: str, total: int | None) -> float | None:
        own = mean(column)
        return total / int(rows.sum()) if own is None and total is not None and all_verified else own

    return Ledger(
        llm_calls=mean("llm_calls"),
        prompt_tokens=tokens("prompt_tokens", None if served is None else served.prompt_tokens),
        completion_tokens=tokens("completion_tokens", None if served is None else served.completion_tokens),
        prompt_bytes=mean("prompt_bytes"),
        tool_calls=mean("tool_calls"),
        retries=mean("retries"),
        connections=mean("connections"),
    )
