"""Phase times, time split, critical path and the span ledger of one run, from spans.parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.percentiles import Samples, percentile
from agentdyno.analysis.run_data import NS_PER_MS, RunData
from agentdyno.analysis.traces import Share, TracedRequest, critical_path, of_kinds, time_split, traced_requests
from agentdyno.contract.phases import Phase, Stretch, tile
from agentdyno.contract.run import Outcome
from agentdyno.contract.summary import CriticalPath, PhaseTime, SpanLedger
from agentdyno.contract.summary import Step as SummaryStep
from agentdyno.record.collections_paused import no_collections
from agentdyno.record.spans import SpanKind

_COUNTED = (SpanKind.REQUEST, SpanKind.CHAT, SpanKind.TOOL)
_WITH_PARENT = (*_COUNTED, SpanKind.SERVED, SpanKind.PLANNING, SpanKind.DERIVED)
_Part = TypeVar("_Part", bound=Hashable)


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Per traced and verified request of the measured stage: the phases, the time split, and the whole, in ms."""

    requests: list[TracedRequest]
    phases_ms: dict[Phase, Samples]
    split_ms: dict[Share, Samples]
    total_ms: Samples


def phase_table(data: RunData) -> PhaseTable | None:
    """None when not one request is traced."""
    with no_collections():
        return _table(traced_requests(data))


def _table(requests: list[TracedRequest]) -> PhaseTable | None:
    if not requests:
        return None
    tiles = [
        tile(r.start_ns, r.end_ns, [Stretch(e.phase, e.start_ns, e.end_ns) for e in r.events if e.phase is not None])
        for r in requests
    ]
    phases_ms = _samples(Phase, tiles)
    split_ms = _samples(Share, [time_split(request) for request in requests])
    return PhaseTable(requests, phases_ms, split_ms, np.sum(list(phases_ms.values()), axis=0))


def _samples(parts: type[_Part], each: Sequence[Mapping[_Part, int]]) -> dict[_Part, Samples]:
    return {part: np.array([one[part] for one in each], dtype=np.float64) / NS_PER_MS for part in parts}  # type: ignore[attr-defined]


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


def usual_path(table: PhaseTable | None) -> CriticalPath | None:
    """The critical path that most requests took, with the mean time of each of its steps."""
    if table is None:
        return None
    counts: Counter[tuple[str, ...]] = Counter()
    sums_ns: dict[tuple[str, ...], list[int]] = {}
    with no_collections():
        for request in table.requests:
            path = critical_path(request)
            names = tuple(step.name for step in path)
            counts[names] += 1
            so_far = sums_ns.setdefault(names, [0] * len(path))
            for number, step in enumerate(path):
                so_far[number] += step.took_ns
    usual, count = counts.most_common(1)[0]
    means = [total / count / NS_PER_MS for total in sums_ns[usual]]
    steps = tuple(SummaryStep(name, mean) for name, mean in zip(usual, means, strict=True))
    return CriticalPath(requests=count, of_requests=len(table.requests), steps=steps)


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
