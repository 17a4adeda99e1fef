"""The traced requests of a run and what happened in each, by columns: a long run has millions of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from agentdyno.analysis.run_data import RunData
from agentdyno.contract.phases import Phase
from agentdyno.contract.run import Outcome
from agentdyno.record.spans import SpanKind

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
PHASES = tuple(Phase)
NO_PHASE = len(PHASES)
KINDS = (SpanKind.CHAT, SpanKind.TOOL, SpanKind.PLANNING, SpanKind.SERVED)
_TIMES = ("start_monotonic_ns", "end_monotonic_ns")


class TracedRequest(NamedTuple):
    """One of them; ns on the run's clock."""

    trace_id: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Inner:
    """Spans within requests: chat, tool and planning, and those of the backend within chat. One entry a span.

    request: which of the requests it is in, ascending; within one as the run has recorded them. kind: its place in
    KINDS. phase: in PHASES, or NO_PHASE. name: in `Traces.names`. Times: ns on the run's clock.
    """

    request: Integers
    kind: Integers
    phase: Integers
    name: Integers
    start_ns: Integers
    end_ns: Integers

    def where(self, wanted: Flags) -> Inner:
        """Those of them."""
        return Inner(*(column[wanted] for column in self._columns()))

    def of(self, *kinds: SpanKind) -> Flags:
        """Which are of these kinds."""
        return np.isin(self.kind, [KINDS.index(kind) for kind in kinds])

    def _columns(self) -> tuple[Integers, ...]:
        return self.request, self.kind, self.phase, self.name, self.start_ns, self.end_ns


@dataclass(frozen=True, slots=True)
class Traces:
    """The measured stage's traced and verified requests whose own span is on record. Times: ns on the run's clock."""

    trace_ids: pa.Array
    start_ns: Integers
    end_ns: Integers
    inner: Inner
    names: list[str]

    def __len__(self) -> int:
        return len(self.start_ns)

    def slowest(self, count: int) -> list[TracedRequest]:
        """So many, the slowest first; of equals the one that is on record first."""
        order = np.argsort(self.start_ns - self.end_ns, kind="stable")[:count]
        return [
            TracedRequest(self.trace_ids[at].as_py(), int(self.start_ns[at]), int(self.end_ns[at]))
            for at in order.tolist()
        ]


def read_traces(data: RunData) -> Traces | None:
    """None when not one request is traced."""
    if data.spans is None or data.requests is None:
        return None
    spans, wanted = data.spans, pa.array(data.requests.trace_ids(Outcome.OK), pa.string())
    is_root = pc.equal(spans["kind"], SpanKind.REQUEST.value)
    roots = spans.select(["trace_id", *_TIMES]).filter(is_root)
    roots = roots.filter(pc.is_in(roots["trace_id"], wanted))
    if not roots.num_rows:
        return None
    ids = roots["trace_id"].combine_chunks()
    first = pc.equal(pc.index_in(ids, ids), pa.array(np.arange(len(ids), dtype=np.int32)))
    roots, ids = roots.filter(first), ids.filter(first)
    # No row is copied with its texts, which would be a second copy of a long run.
    request = pc.index_in(spans["trace_id"], ids).fill_null(-1).to_numpy()
    rows = np.flatnonzero((request >= 0) & of_kinds(spans, KINDS).to_numpy())
    order = rows[np.argsort(request[rows], kind="stable")]
    names, name = _coded(spans["name"])
    kind, phase = _places(spans["kind"], KINDS), _places(spans["phase"], PHASES)
    columns = (request, kind, phase, name, *(spans[time].to_numpy() for time in _TIMES))
    inner = Inner(*(column[order].astype(np.int64) for column in columns))
    start_ns, end_ns = (roots[time].to_numpy() for time in _TIMES)
    return Traces(ids, start_ns, end_ns, inner, names)


def of_kinds(spans: pa.Table, kinds: Sequence[SpanKind]) -> pa.ChunkedArray:
    """Which rows of the span table are of these kinds."""
    return pc.is_in(spans["kind"], pa.array([kind.value for kind in kinds]))


def _coded(column: pa.ChunkedArray) -> tuple[list[str], NDArray[Any]]:
    """A column of texts as numbers: the texts, and for each row its place among them; that of null is beyond them."""
    array = column.combine_chunks()
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    texts: list[str] = encoded.dictionary.to_pylist()
    return texts, encoded.indices.fill_null(len(texts)).to_numpy()


def _places(column: pa.ChunkedArray, among: Sequence[str]) -> NDArray[Any]:
    """For each row its place in `among`; null, and what is not there, is beyond them."""
    places = {text: place for place, text in enumerate(among)}
    texts, codes = _coded(column)
    own = np.array([*(places.get(text, len(among)) for text in texts), len(among)], dtype=np.int8)
    placed: NDArray[Any] = own[codes]
    return placed
