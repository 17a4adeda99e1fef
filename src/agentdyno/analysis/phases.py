"""Phase times, time split and the span ledger of one run, from spans.parquet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.percentiles import Samples, percentile
from agentdyno.analysis.run_data import NS_PER_MS, RunData
from agentdyno.analysis.tiling import Share, phases_ns, shares_ns
from agentdyno.analysis.traces import Traces, of_kinds, read_traces
from agentdyno.contract.phases import Phase
from agentdyno.contract.run import Outcome
from agentdyno.contract.summary import PhaseTime, SpanLedger
from agentdyno.record.spans import SpanKind

_COUNTED = (SpanKind.REQUEST, SpanKind.CHAT, SpanKind.TOOL)
_WITH_PARENT = (*_COUNTED, SpanKind.SERVED, SpanKind.PLANNING, SpanKind.DERIVED)


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Per traced and verified request of the measured stage: the phases, the time split, and the whole, in ms."""

    traces: Traces
    phases_ms: dict[Phase, Samples]
    split_ms: dict[Share, Samples]
    total_ms: Samples


def phase_table(data: RunData) -> PhaseTable | None:
    """None when not one request is traced."""
    traces = read_traces(data)
    if traces is None:
        return None
    phases_ms = {phase: took_ns / NS_PER_MS for phase, took_ns in phases_ns(traces).items()}
    split_ms = {share: took_ns / NS_PER_MS for share, took_ns in shares_ns(traces).items()}
    return PhaseTable(traces, phases_ms, split_ms, np.sum(list(phases_ms.values()), axis=0))


def phase_times(table: PhaseTable | None) -> dict[str, PhaseTime | None]:
    """Percentiles, mean and share of each phase; all None without traces."""
    if table is None:
        return {phase.value: None for phase in Phase}
    return {phase.value: time_of(table.phases_ms[phase], table) for phase in Phase}


def split_times(table: PhaseTable | None) -> dict[str, PhaseTime | None]:
    """The same of what the time went into."""
    if table is None:
        return {share.value: None for share in Share}
    return {share.value: time_of(table.split_ms[share], table) for share in Share}


def time_of(samples: Samples, table: PhaseTable) -> PhaseTime:
    """Of one part of the requests' time, or of the whole."""
    whole_ms = float(table.total_ms.sum())
    return PhaseTime(
        p50=percentile(samples, 0.50),
        p90=percentile(samples, 0.90),
        p95=percentile(samples, 0.95),
        p99=percentile(samples, 0.99),
        mean=float(samples.mean()),
        share=float(samples.sum()) / whole_ms if whole_ms > 0 else None,
    )


def span_ledger(data: RunData) -> SpanLedger:
    """Expected spans, by the requests' own counts of calls, against those that are there.

    expected: for each traced and verified request of the measured stage its root, its LLM calls (failed ones too)
    and its tool calls; and with the mock, one served call for each good LLM call. received: those spans on record,
    each once. orphaned: spans of any stage whose parent is not on record. dropped: records that a sender threw away.
    """
    if data.spans is None or data.requests is None:
        return SpanLedger()
    spans = data.spans
    # One column at a time: a table of those rows would be a second copy of most of a long run.
    own = pc.is_in(spans["trace_id"], pa.array(data.requests.trace_ids(Outcome.OK), pa.string()))
    counted = pc.and_(own, of_kinds(spans, _COUNTED))
    received = _distinct(spans["span_id"].filter(counted))
    served = data.backend is not None and data.backend.stats is not None
    if served:
        good = pc.and_(pc.and_(own, of_kinds(spans, (SpanKind.CHAT,))), pc.is_null(spans["error"]))
        asked = spans["span_id"].filter(good).combine_chunks()
        answered = spans["parent_span_id"].filter(pc.and_(own, of_kinds(spans, (SpanKind.SERVED,))))
        received += _distinct(answered.filter(pc.is_in(answered, asked)))
    return SpanLedger(
        expected=data.requests.expected_spans(Outcome.OK, served=served),
        received=received,
        orphaned=_orphans(spans),
        dropped=data.manifest.spans_dropped,
    )


def _distinct(ids: pa.ChunkedArray) -> int:
    return int(pc.count_distinct(ids).as_py())


def _orphans(spans: pa.Table) -> int:
    parents = spans["parent_span_id"].filter(of_kinds(spans, _WITH_PARENT)).drop_null()
    there = int(pc.sum(pc.is_in(parents, spans["span_id"])).as_py() or 0)
    return len(parents) - there
