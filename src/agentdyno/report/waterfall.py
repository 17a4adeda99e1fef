"""The slowest traced requests of a run as waterfalls, each with the heap snapshot that shows the moment."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.run_data import RunData
from agentdyno.analysis.traces import of_kinds
from agentdyno.contract.run import Outcome
from agentdyno.record.heap_folder import HEAP_FOLDER, HeapIndex, covering, read_index
from agentdyno.record.span_table import spans_of
from agentdyno.record.spans import SpanKind
from agentdyno.report.trace import span_tree

_TIMES = ("start_monotonic_ns", "end_monotonic_ns")


@dataclass(frozen=True, slots=True)
class Piece:
    """One span: where its bar begins and how wide it is, in percent of the trace; depth in the tree."""

    name: str
    phase: str
    depth: int
    at_ms: float
    took_ms: float
    x: float
    width: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """One trace. heap: path of the flame graph next to its begin, from the run's folder; None without heap profiles."""

    trace_id: str
    took_ms: float
    pieces: tuple[Piece, ...]
    heap: str | None
    heap_words: str


def waterfalls(data: RunData, count: int) -> list[Waterfall]:
    """The `count` slowest of the measured stage's verified requests, by the host's own span, the slowest first.

    Raises HeapFolderError when heap/snapshots.json cannot be read.
    """
    if data.spans is None or data.requests is None:
        return []
    whole = data.spans.filter(of_kinds(data.spans, (SpanKind.REQUEST,))).select(["trace_id", *_TIMES])
    wanted = pa.array(data.requests.trace_ids(Outcome.OK), pa.string())
    whole = whole.filter(pc.is_in(whole["trace_id"], wanted))
    whole = whole.append_column("took_ns", pc.subtract(whole[_TIMES[1]], whole[_TIMES[0]]))
    slowest = whole.sort_by([("took_ns", "descending"), ("trace_id", "ascending")]).slice(0, count).to_pylist()
    index = read_index(data.path)
    return [_waterfall(data.spans, one["trace_id"], one["took_ns"], one[_TIMES[0]], index) for one in slowest]


def _waterfall(spans: pa.Table, trace_id: str, took_ns: int, begin_ns: int, index: HeapIndex | None) -> Waterfall:
    lines = span_tree(list(spans_of(spans.filter(pc.equal(spans["trace_id"], trace_id)))))
    start_ns = min(line.span.start_ns for line in lines)
    whole_ns = max(1, max(line.span.end_ns for line in lines) - start_ns)
    pieces = []
    for line in lines:
        span = line.span
        at_ns, span_ns = span.start_ns - start_ns, span.end_ns - span.start_ns
        phase = span.phase.value if span.phase else "none"
        pieces.append(
            Piece(
                name=span.name,
                phase=phase,
                depth=line.depth,
                at_ms=at_ns / 1e6,
                took_ms=span_ns / 1e6,
                x=round(100 * at_ns / whole_ns, 3),
                width=round(max(0.25, 100 * span_ns / whole_ns), 3),
                error=span.error,
            )
        )
    heap, words = _heap(index, begin_ns)
    return Waterfall(trace_id, took_ns / 1e6, tuple(pieces), heap, words)


def _heap(index: HeapIndex | None, start_ns: int) -> tuple[str | None, str]:
    found = None if index is None else covering(index, start_ns)
    if found is None:
        return None, "no heap snapshot in this run"
    before, after = (None if each is None else f"{each.seconds:g} s" for each in (found.before, found.after))
    words = f"before {after}" if before is None else f"after {before}" if after is None else f"{before} to {after}"
    return f"{HEAP_FOLDER}/{found.page}", f"the heap around it, snapshots {words}"
