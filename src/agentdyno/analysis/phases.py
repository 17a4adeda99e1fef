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
    with no_collections():
        paths = [critical_path(request) for request in table.requests]
    names = [tuple(step.name for step in path) for path in paths]
    usual, count = Counter(names).most_common(1)[0]
    of_these = [path for path, its_names in zip(paths, names, strict=True) if its_names == usual]
    means = np.array([[step.took_ns for step in path] for path in of_these], dtype=np.float64).mean(axis=0) / NS_PER_MS
    steps = tuple(SummaryStep(name, float(mean)) for name, mean in zip(usual, means, strict=True))
    return CriticalPath(requests=count, of_requests=len(paths), steps=steps)


def span_ledger(data: RunData) -> SpanLedger:
    """Expected spans, by the requests' own counts of calls, against those that are there.

    expected: for each traced and verified request of the measured stage its root, its LLM calls (failed ones too)
    and its tool calls; and with the mock, one served call for each good LLM call. received: those spans on record,
    each once. orphaned: spans of any stage whose parent is not on record. dropped: records that a sender threw away.
    """
    if data.spans is None or data.requests is None:
        return SpanLedger()
    spans = data.spans.select(["trace_id", "span_id", "parent_span_id", "kind", "error"])
    wanted = pa.array(data.requests.trace_ids(Outcome.OK), pa.string())
    own = spans.filter(pc.is_in(spans["trace_id"], wanted))
    counted = own.filter(of_kinds(own, _COUNTED))
    received = int(pc.count_distinct(counted["span_id"]).as_py())
    served = data.backend is not None and data.backend.stats is not None
    if served:
        calls = counted.filter(of_kinds(counted, (SpanKind.CHAT,)))
        good = calls.filter(pc.is_null(calls["error"]))["span_id"]
        answers = own.filter(of_kinds(own, (SpanKind.SERVED,)))
        answered = answers.filter(pc.is_in(answers["parent_span_id"], good.combine_chunks()))
        received += int(pc.count_distinct(answered["parent_span_id"]).as_py())
    return SpanLedger(
        expected=data.requests.expected_spans(Outcome.OK, served=served),
        received=received,
        orphaned=_orphans(spans),
        dropped=data.manifest.spans_dropped,
    )


def _orphans(spans: pa.Table) -> int:
    children = spans.filter(pc.and_(of_kinds(spans, _WITH_PARENT), pc.is_valid(spans["parent_span_id"])))
    there: int = int(pc.sum(pc.is_in(children["parent_span_id"], spans["span_id"])).as_py() or 0)
    return int(children.num_rows) - there
