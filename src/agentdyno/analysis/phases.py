"""Phase times and the span ledger of one run, from spans.parquet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.percentiles import Samples, percentile
from agentdyno.analysis.run_data import RunData
from agentdyno.contract.phases import Phase, Stretch, tile
from agentdyno.contract.run import Outcome
from agentdyno.contract.summary import PhaseTime, SpanLedger

NS_PER_MS = 1e6
_TILED = ("chat", "tool", "planning")
_COUNTED = ("request", "chat", "tool")
_WITH_PARENT = (*_COUNTED, "served", "planning", "derived")


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Per request: how long each phase took, ms, and the whole. Rows in the order of trace_ids."""

    trace_ids: list[str]
    phases_ms: dict[Phase, Samples]
    total_ms: Samples


def phase_table(data: RunData) -> PhaseTable | None:
    """Of the measured stage's traced and verified requests; None when the run has no spans."""
    if data.spans is None or data.requests is None:
        return None
    wanted = measured_traces(data)
    rows = data.spans.filter(pc.is_in(data.spans["trace_id"], pa.array(wanted, pa.string())))
    stretches: dict[str, list[Stretch]] = defaultdict(list)
    for trace_id, phase, start_ns, end_ns in _columns(rows.filter(_kinds(rows, _TILED)), "phase"):
        stretches[trace_id].append(Stretch(Phase(phase), start_ns, end_ns))
    trace_ids: list[str] = []
    tiles: list[dict[Phase, int]] = []
    for trace_id, _, start_ns, end_ns in _columns(rows.filter(_kinds(rows, ("request",))), "phase"):
        trace_ids.append(trace_id)
        tiles.append(tile(start_ns, end_ns, stretches[trace_id]))
    by_phase = {p: np.array([t[p] for t in tiles], dtype=np.float64) / NS_PER_MS for p in Phase}
    return PhaseTable(trace_ids, by_phase, np.sum(list(by_phase.values()), axis=0))


def phase_times(table: PhaseTable | None) -> dict[str, PhaseTime | None]:
    """Percentiles, mean and share of each phase; all None without traces."""
    if table is None or not table.trace_ids:
        return {phase.value: None for phase in Phase}
    whole = float(table.total_ms.sum())
    return {phase.value: _time(table.phases_ms[phase], whole) for phase in Phase}


def _time(samples: Samples, whole_ms: float) -> PhaseTime:
    return PhaseTime(
        p50=percentile(samples, 0.50),
        p90=percentile(samples, 0.90),
        p95=percentile(samples, 0.95),
        p99=percentile(samples, 0.99),
        mean=float(samples.mean()),
        share=float(samples.sum()) / whole_ms if whole_ms > 0 else None,
    )


def measured_traces(data: RunData) -> list[str]:
    """Trace ids of the measured stage's traced and verified requests."""
    if data.requests is None:
        return []
    return data.requests.trace_ids(Outcome.OK)


def span_ledger(data: RunData) -> SpanLedger:
    """Expected spans, by the requests' own counts of calls, against those that are there.

    expected: for each traced and verified request of the measured stage its root, its LLM calls (failed ones too)
    and its tool calls; and with the mock, one served call for each good LLM call. received: those spans on record,
    each once. orphaned: spans of any stage whose parent is not on record. dropped: records that a sender threw away.
    """
    if data.spans is None or data.requests is None:
        return SpanLedger()
    spans = data.spans
    own = spans.filter(pc.is_in(spans["trace_id"], pa.array(measured_traces(data), pa.string())))
    counted = own.filter(_kinds(own, _COUNTED))
    received = int(pc.count_distinct(counted["span_id"]).as_py())
    served = data.backend is not None and data.backend.stats is not None
    if served:
        calls = counted.filter(_kinds(counted, ("chat",)))
        good = calls.filter(pc.is_null(calls["error"]))["span_id"]
        answers = own.filter(_kinds(own, ("served",)))
        answered = answers.filter(pc.is_in(answers["parent_span_id"], good.combine_chunks()))
        received += int(pc.count_distinct(answered["parent_span_id"]).as_py())
    return SpanLedger(
        expected=data.requests.expected_spans(Outcome.OK, served=served),
        received=received,
        orphaned=_orphans(spans),
        dropped=data.manifest.spans_dropped,
    )


def _orphans(spans: pa.Table) -> int:
    children = spans.filter(pc.and_(_kinds(spans, _WITH_PARENT), pc.is_valid(spans["parent_span_id"])))
    there: int = int(pc.sum(pc.is_in(children["parent_span_id"], spans["span_id"])).as_py() or 0)
    return int(children.num_rows) - there


def _kinds(spans: pa.Table, kinds: tuple[str, ...]) -> pa.ChunkedArray:
    return pc.is_in(spans["kind"], pa.array(kinds))


def _columns(rows: pa.Table, extra: str) -> Iterator[tuple[str, str, int, int]]:
    names = ("trace_id", extra, "start_monotonic_ns", "end_monotonic_ns")
    return zip(*(rows[name].to_pylist() for name in names), strict=True)
