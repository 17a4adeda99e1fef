"""What must hold in a run whatever its figures are: the plan's arithmetic, and in a valid run much more.

An invalid run may be short of arrivals or spans, and says so in its verdict; of such a run only what it was asked for
is checked here, and that its figures follow from what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.run_data import NS_PER_MS, Requests, RunData
from agentdyno.analysis.traces import of_kinds
from agentdyno.audit.fault import Fault
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.contract.summary import Load, StageCounts, Summary
from agentdyno.load.schedule import Schedule
from agentdyno.load.service_histogram import DIGITS, pooled
from agentdyno.record.spans import SpanKind

TILE_TOLERANCE = 0.01
SHARE_TOLERANCE = 1e-6
_US_IN_MS = 1e-3
MANIFEST, SUMMARY, REQUESTS, SPANS = "manifest.json", "summary.json", "requests.parquet", "spans.parquet"


def plan_faults(data: RunData) -> Iterator[Fault]:
    """Of what was asked for: the workload's hash, and the schedule that the arrivals on record must have followed."""
    manifest = data.manifest
    if manifest.workload.scenario not in SCENARIOS:
        text = f"there is no scenario {manifest.workload.scenario!r} in this version, so the hash cannot be computed."
        yield Fault(MANIFEST, "workload.scenario", text)
    elif (computed := manifest.workload.hash()) != manifest.workload_hash:
        text = f"it says {manifest.workload_hash!r}, but the workload beside it gives {computed!r}."
        yield Fault(MANIFEST, "workload_hash", text)
    for name in ("scenario", "seed"):
        planned, asked = getattr(manifest.plan, name), getattr(manifest.workload, name)
        if planned != asked:
            yield Fault(MANIFEST, f"plan.{name}", f"it says {planned!r}, but the workload has {asked!r}.")
    try:
        schedule = Schedule(manifest.plan)
    except ValueError as error:
        yield Fault(MANIFEST, "plan", str(error))
        return
    for stage in Stage:
        stated, due = manifest.scheduled.get(stage.value), schedule.count(stage)
        if stated != due:
            yield Fault(MANIFEST, f"scheduled.{stage.value}", f"it says {stated}, but the plan gives {due} arrivals.")
    if data.requests is not None and len(data.requests):
        yield from _schedule(data.requests, schedule, manifest.plan.workers)


def _schedule(requests: Requests, schedule: Schedule, workers: int) -> Iterator[Fault]:
    """Each arrival on record is the one that the plan has at its index."""
    index = requests.numbers("index")
    if not ((index >= 0) & (index < schedule.arrivals)).all():
        text = f"it has arrivals outside of the schedule's {schedule.arrivals}."
        yield Fault(REQUESTS, "index", text)
        return
    rows = index.astype(np.int64)
    due = np.fromiter(map(schedule.due_ns, map(int, rows)), np.int64, len(rows))
    yield from _each("intended_ns", rows, requests.intended_ns, due.astype(np.float64))
    yield from _each("worker", rows, requests.numbers("worker"), rows % workers)
    first = 0
    for stage in Stage:
        own = (rows >= first) & (rows < first + schedule.count(stage))
        if not np.array_equal(own, requests.stage(stage)):
            text = f"arrivals stand under {stage.value} that the plan has elsewhere, or the reverse."
            yield Fault(REQUESTS, "stage", text)
        yield from _each("stage_index", rows[own], requests.numbers("stage_index")[own], rows[own] - first)
        first += schedule.count(stage)
    yield from _one_trace_each(requests)


def _each(column: str, rows: np.ndarray, stated: np.ndarray, computed: np.ndarray) -> Iterator[Fault]:
    wrong = np.flatnonzero(stated != computed)
    if wrong.size:
        at = wrong[0]
        text = (
            f"arrival {rows[at]} has {stated[at]:.0f}, but the plan gives {computed[at]:.0f} "
            f"({wrong.size} arrivals are like that)."
        )
        yield Fault(REQUESTS, column, text)


def _one_trace_each(requests: Requests) -> Iterator[Fault]:
    ids = requests.texts("trace_id").drop_null()
    distinct = int(pc.count_distinct(ids).as_py())
    if distinct != len(ids):
        yield Fault(REQUESTS, "trace_id", f"{len(ids)} requests have only {distinct} trace ids: one must have its own.")


def result_faults(data: RunData, stated: Summary) -> Iterator[Fault]:
    """Of a run that is called valid: what its published figures must fulfil among themselves and with the spans."""
    if not stated.verdict.valid:
        return
    if stated.load is not None:
        yield from _conserved("load", stated.load)
        for stage, counts in stated.load.excluded.items():
            yield from _conserved(f"load.excluded.{stage}", counts)
    yield from percentile_faults(stated)
    yield from _ledger(stated)
    yield from _tiling(data, stated)
    yield from _pooled(data)


def _pooled(data: RunData) -> Iterator[Fault]:
    """The workers' own histograms, merged, say what their raw records say together."""
    workers = data.manifest.workers
    if data.requests is None or not workers or any(one.service_hdr is None for one in workers):
        return
    rows = data.requests.stage(Stage.MEASURE) & data.requests.outcome(Outcome.OK)
    raw_ms = np.sort((data.requests.done_ns - data.requests.sent_ns)[rows]) / NS_PER_MS
    try:
        merged = pooled(one.service_hdr for one in workers if one.service_hdr is not None)
    except ValueError as error:
        yield Fault(MANIFEST, "workers.service_hdr", str(error))
        return
    if merged.n != raw_ms.size:
        text = f"the workers counted {merged.n} answered requests, but {raw_ms.size} are on record."
        yield Fault(REQUESTS, "outcome", text)
        return
    for percent in (50.0, 90.0, 99.0) if raw_ms.size else ():
        exact = float(raw_ms[ceil(raw_ms.size * percent / 100) - 1])
        told = merged.percentile_ms(percent)
        if abs(told - exact) > exact * 10**-DIGITS + _US_IN_MS:
            text = f"p{percent:g} of the service times is {exact:.3f} ms on record, and {told:.3f} ms by the workers."
            yield Fault(REQUESTS, "done_ns", text)


def _conserved(where: str, counts: Load | StageCounts) -> Iterator[Fault]:
    total = counts.ok + counts.failed + counts.timeout + counts.rejected + counts.dropped
    if total != counts.arrivals:
        text = f"it says {counts.arrivals}, but ok, failed, timeout, rejected and dropped add up to {total}."
        yield Fault(SUMMARY, f"{where}.arrivals", text)
    if counts.sent != counts.arrivals - counts.dropped:
        text = f"it says {counts.sent}, but {counts.arrivals} arrivals less {counts.dropped} dropped are others."
        yield Fault(SUMMARY, f"{where}.sent", text)


def percentile_faults(stated: Summary) -> Iterator[Fault]:
    """Percentiles in ascending order, in every table that has them."""
    document = msgspec.to_builtins(stated)
    tables = {
        "latency_ms.intended": (document["latency_ms"] or {}).get("intended"),
        "latency_ms.service": (document["latency_ms"] or {}).get("service"),
        "load.lateness_ms": (document["load"] or {}).get("lateness_ms"),
        "loop_lag_ms": document["loop_lag_ms"],
        **{f"phases_ms.{name}": table for name, table in document["phases_ms"].items()},
        **{f"time_split_ms.{name}": table for name, table in document["time_split_ms"].items()},
    }
    for where, table in tables.items():
        named = [(name, (table or {}).get(name)) for name in ("p50", "p90", "p95", "p99", "p999", "max")]
        known = [(name, value) for name, value in named if value is not None]
        for (low, below), (high, above) in pairwise(known):
            if below > above:
                yield Fault(SUMMARY, f"{where}.{high}", f"it says {above}, below {low}, which is {below}.")


def _ledger(stated: Summary) -> Iterator[Fault]:
    spans = stated.spans
    if spans.expected is None or not any(phase is not None for phase in stated.phases_ms.values()):
        return
    if spans.received != spans.expected:
        yield Fault(SUMMARY, "spans.received", f"it says {spans.received}, but {spans.expected} were expected.")
    for name in ("orphaned", "dropped"):
        if value := getattr(spans, name):
            yield Fault(SUMMARY, f"spans.{name}", f"it says {value}, in a run that is called valid.")


def _tiling(data: RunData, stated: Summary) -> Iterator[Fault]:
    """The phases' means add up to the mean of the requests' own spans; each request has one such span."""
    phases = [phase for phase in stated.phases_ms.values() if phase is not None]
    if not phases or data.spans is None or data.requests is None:
        return
    shares = sum(phase.share or 0.0 for phase in phases)
    if abs(shares - 1) > SHARE_TOLERANCE:
        yield Fault(SUMMARY, "phases_ms", f"their shares add up to {shares:.6f}, not to 1.")
    wanted = pa.array(data.requests.trace_ids(Outcome.OK), pa.string())
    spans = data.spans.select(["trace_id", "kind", "start_monotonic_ns", "end_monotonic_ns"])
    roots = spans.filter(of_kinds(spans, (SpanKind.REQUEST,)))
    roots = roots.filter(pc.is_in(roots["trace_id"], wanted))
    traces = int(pc.count_distinct(roots["trace_id"]).as_py())
    if not roots.num_rows == traces == len(wanted):
        text = f"{len(wanted)} traced requests have {roots.num_rows} root spans in {traces} traces: each must have one."
        yield Fault(SPANS, "trace_id", text)
        return
    whole_ms = pc.mean(pc.subtract(roots["end_monotonic_ns"], roots["start_monotonic_ns"])).as_py() / NS_PER_MS
    parts_ms = sum(phase.mean for phase in phases if phase.mean is not None)
    if abs(parts_ms - whole_ms) > TILE_TOLERANCE * whole_ms:
        text = f"their means add up to {parts_ms:.3f} ms, but a request takes {whole_ms:.3f} ms."
        yield Fault(SUMMARY, "phases_ms", text)
