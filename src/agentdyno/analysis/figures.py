"""The figures of one run, each from raw records: load, latency, CPU, memory, GC, loop lag, ledger."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.percentiles import latency, percentile
from agentdyno.analysis.run_data import Marks, Numbers, Requests, RunData, Window
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome
from agentdyno.contract.summary import Gc, Latencies, Lateness, Ledger, Load, LoopLag, Memory, StageCounts

_MB = 1e6


def stage_counts(requests: Requests, stage: Stage) -> StageCounts:
    """What became of a stage's arrivals."""
    rows = requests.stage(stage)
    by = {outcome: int((rows & requests.outcome(outcome)).sum()) for outcome in Outcome}
    return StageCounts(
        arrivals=int(rows.sum()),
        sent=int((rows & ~np.isnan(requests.sent_ms)).sum()),
        ok=by[Outcome.OK],
        failed=by[Outcome.FAILED],
        timeout=by[Outcome.TIMEOUT],
        rejected=by[Outcome.REJECTED],
        dropped=by[Outcome.DROPPED],
    )


def load(requests: Requests, rate_rps: float) -> Load:
    """The measured stage's load."""
    counts = stage_counts(requests, Stage.MEASURE)
    rows = requests.stage(Stage.MEASURE)
    sent = np.sort(requests.sent_ms[rows & ~np.isnan(requests.sent_ms)])
    late = lateness_ms(requests, rows)
    reasons = Counter(str(r) for r in requests.texts("reason")[rows] if r is not None)
    achieved = (sent.size - 1) / (sent[-1] - sent[0]) * 1000 if sent.size > 1 and sent[-1] > sent[0] else None
    return Load(
        requested_rate=rate_rps,
        achieved_rate=None if achieved is None else float(achieved),
        arrivals=counts.arrivals,
        sent=counts.sent,
        ok=counts.ok,
        failed=counts.failed,
        timeout=counts.timeout,
        rejected=counts.rejected,
        dropped=counts.dropped,
        in_flight_max=in_flight_max(requests),
        lateness_ms=Lateness(
            p50=percentile(late, 0.50),
            p99=percentile(late, 0.99),
            max=float(late.max()) if late.size else None,
        ),
        excluded={stage.value: stage_counts(requests, stage) for stage in (Stage.WARMUP, Stage.COOLDOWN)},
        failure_reasons=dict(reasons.most_common()),
    )


def lateness_ms(requests: Requests, rows: Marks) -> Numbers:
    """Actual minus intended start of the arrivals that were sent; never negative, as nothing is sent early."""
    sent = rows & ~np.isnan(requests.sent_ms)
    return requests.sent_ms[sent] - requests.intended_ms[sent]


def in_flight_max(requests: Requests) -> int | None:
    """The most requests that were sent and not yet done at one time, over the whole run."""
    sent = ~np.isnan(requests.sent_ms) & ~np.isnan(requests.done_ms)
    if not sent.any():
        return None
    times = np.concatenate([requests.sent_ms[sent], requests.done_ms[sent]])
    steps = np.concatenate([np.ones(sent.sum()), -np.ones(sent.sum())])
    order = np.lexsort((steps, times))  # at equal times the departure first
    return int(steps[order].cumsum().max())


def mean_in_flight(requests: Requests, window: Window) -> float:
    """Time-average of the requests in flight over the window, from the records' own times."""
    sent = ~np.isnan(requests.sent_ms) & ~np.isnan(requests.done_ms)
    begin = np.maximum(requests.sent_ms[sent], window.start_ms)
    end = np.minimum(requests.done_ms[sent], window.end_ms)
    return float(np.clip(end - begin, 0, None).sum() / (window.end_ms - window.start_ms))


def latencies(requests: Requests) -> Latencies:
    """Of the measured stage's verified answers; failures and rejections are counted elsewhere, never timed here."""
    rows = requests.stage(Stage.MEASURE) & requests.outcome(Outcome.OK)
    done = requests.done_ms[rows]
    return Latencies(
        intended=latency(done - requests.intended_ms[rows]), service=latency(done - requests.sent_ms[rows])
    )


def finished_in_window(requests: Requests, window: Window) -> int:
    """Verified answers, of whichever stage, whose last byte fell into the window."""
    done = requests.done_ms
    inside = (done >= window.start_ms) & (done < window.end_ms)
    return int((inside & requests.outcome(Outcome.OK)).sum())


def cpu_seconds(resources: pa.Table, role: str, window_ns: tuple[int, int]) -> float | None:
    """CPU (user and system) of a role's processes over the window.

    Each process's running total is interpolated at the window's borders between the samples around them (a quarter
    of a second apart). None when the samples do not reach around the window.
    """
    rows = resources.filter(pc.equal(resources["role"], role))
    total, seen = 0.0, False
    for pid in pc.unique(rows["pid"]).to_pylist():
        own = rows.filter(pc.equal(rows["pid"], pid))
        times = own["monotonic_ns"].to_numpy().astype(float)
        cpu = pc.add(own["cpu_user_s"], own["cpu_system_s"]).to_numpy(zero_copy_only=False)
        known = ~np.isnan(cpu)
        times, cpu = times[known], cpu[known]
        if times.size < 2 or times[-1] < window_ns[0]:
            continue
        seen = True
        at = np.interp(np.array(window_ns, dtype=float), times, cpu)
        total += float(at[1] - at[0])
    return total if seen else None


def cpu_ms_per_request(data: RunData) -> float | None:
    """The host process tree's CPU over the window, per verified answer finished in it."""
    window_ns = data.window_ns()
    if data.requests is None or data.resources is None or window_ns is None:
        return None
    finished = finished_in_window(data.requests, data.window())
    used_s = cpu_seconds(data.resources, "host", window_ns)
    return used_s * 1000 / finished if used_s is not None and finished else None


def memory(data: RunData) -> Memory:
    """The host's memory over the whole run."""
    idle = data.manifest.rss_idle_bytes
    if data.resources is None:
        return Memory(rss_idle=_mb(idle))
    rows = data.resources.filter(pc.equal(data.resources["role"], "host"))
    high_water = _column_max(rows, "rss_peak_bytes")
    return Memory(
        rss_idle=_mb(idle),
        rss_peak=_mb(high_water if high_water is not None else _column_max(rows, "rss_bytes")),
        pss_peak=_mb(_column_max(rows, "pss_bytes")),
        private_dirty_peak=_mb(_column_max(rows, "private_dirty_bytes")),
    )


def _column_max(rows: pa.Table, column: str) -> int | None:
    highest: int | None = pc.max(rows[column]).as_py()
    return highest


def _mb(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / _MB


def gc(data: RunData) -> Gc:
    """Pauses that began within the window."""
    window_ns = data.window_ns()
    if data.gc is None or window_ns is None:
        return Gc()
    start = data.gc["start_monotonic_ns"].to_numpy()
    pauses = data.gc["pause_ns"].to_numpy()[(start >= window_ns[0]) & (start < window_ns[1])] / 1e6
    if pauses.size == 0:
        return Gc(pause_total_ms=0.0, pause_max_ms=None, collections=0)
    return Gc(pause_total_ms=float(pauses.sum()), pause_max_ms=float(pauses.max()), collections=int(pauses.size))


def loop_lag(data: RunData) -> LoopLag:
    """Lag of the probe's deadlines within the window."""
    window_ns = data.window_ns()
    if data.loop is None or window_ns is None:
        return LoopLag()
    due = data.loop["deadline_monotonic_ns"].to_numpy()
    lag = data.loop["lag_ns"].to_numpy()[(due >= window_ns[0]) & (due < window_ns[1])] / 1e6
    if lag.size == 0:
        return LoopLag()
    return LoopLag(p50=percentile(lag, 0.50), p99=percentile(lag, 0.99), max=float(lag.max()))


def ledger(requests: Requests) -> Ledger:
    """Means over the measured stage's verified answers."""
    rows = requests.stage(Stage.MEASURE) & requests.outcome(Outcome.OK)

    def mean(column: str) -> float | None:
        values = requests.numbers(column)[rows]
        values = values[~np.isnan(values)]
        return float(values.mean()) if values.size else None

    return Ledger(
        llm_calls=mean("llm_calls"),
        prompt_tokens=mean("prompt_tokens"),
        completion_tokens=mean("completion_tokens"),
        prompt_bytes=mean("prompt_bytes"),
        tool_calls=mean("tool_calls"),
        retries=mean("retries"),
    )
