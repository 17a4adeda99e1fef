"""spans.parquet: every span of a run as one row, from what the recorder kept and from the requests' records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from agentdyno.contract.trace import Goodbye, Hello, Service
from agentdyno.record.spans import OTLP_FILE, RAW_FILE, Span, SpanKind, decode, expand, frames

SPAN_COLUMNS = (
    *("trace_id", "span_id", "parent_span_id", "service", "kind", "name", "phase"),
    *("start_monotonic_ns", "end_monotonic_ns", "error", "attributes"),
)
_INTEGERS = frozenset({"start_monotonic_ns", "end_monotonic_ns"})
_encode = msgspec.json.encode


class Senders(msgspec.Struct):
    """What the senders of a run said of themselves: records thrown away before they were sent, and the offset from
    the run's monotonic clock to Unix time (None when nobody said hello).
    """

    dropped: int = 0
    unix_offset_ns: int | None = None


def read_spans(raw: Path, framework: str, requests: pa.Table, t0_monotonic_ns: int | None) -> tuple[pa.Table, Senders]:
    """All spans of a run. raw: the folder of the recorder's files. requests: for the generator's own spans."""
    senders = Senders()
    columns: dict[str, list[Any]] = {name: [] for name in SPAN_COLUMNS}
    for span in _recorded(raw, framework, senders):
        _append(columns, span)
    for span in _native(raw, senders.unix_offset_ns):
        _append(columns, span)
    if t0_monotonic_ns is not None:
        _append_clients(columns, requests, t0_monotonic_ns)
    types = {name: pa.int64() if name in _INTEGERS else pa.string() for name in SPAN_COLUMNS}
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    return table, senders


def _recorded(raw: Path, framework: str, senders: Senders) -> Iterator[Span]:
    file = raw / RAW_FILE
    if not file.exists():
        return
    last: dict[Service, Goodbye] = {}
    for record in decode(frames(file.read_bytes())):
        if isinstance(record, Hello):
            senders.unix_offset_ns = record.unix_ns - record.monotonic_ns
        elif isinstance(record, Goodbye):
            last[record.service] = record
        else:
            yield from expand(record, framework)
    senders.dropped = sum(word.dropped for word in last.values())


def _append(columns: dict[str, list[Any]], span: Span) -> None:
    columns["trace_id"].append(span.trace_id)
    columns["span_id"].append(span.span_id)
    columns["parent_span_id"].append(span.parent_span_id)
    columns["service"].append(span.service.value)
    columns["kind"].append(span.kind.value)
    columns["name"].append(span.name)
    columns["phase"].append(None if span.phase is None else span.phase.value)
    columns["start_monotonic_ns"].append(span.start_ns)
    columns["end_monotonic_ns"].append(span.end_ns)
    columns["error"].append(span.error)
    columns["attributes"].append(_encode(span.attributes).decode())


def _append_clients(columns: dict[str, list[Any]], requests: pa.Table, t0_ns: int) -> None:
    """The generator's spans: from the send to the last byte of each traced arrival."""
    wanted = ("trace_id", "span_id", "sent_ns", "done_ns", "outcome", "reason", "traced")
    for row in requests.select(list(wanted)).to_pylist():
        if not row["traced"] or row["sent_ns"] is None or row["done_ns"] is None:
            continue
        span = Span(
            trace_id=row["trace_id"],
            span_id=row["span_id"],
            parent_span_id=None,
            service=Service.GENERATOR,
            kind=SpanKind.CLIENT,
            name="POST /agent/invoke",
            phase=None,
            start_ns=t0_ns + row["sent_ns"],
            end_ns=t0_ns + row["done_ns"],
            error=row["reason"],
            attributes={"agentdyno.outcome": row["outcome"]},
        )
        _append(columns, span)


def _native(raw: Path, unix_offset_ns: int | None) -> Iterable[Span]:
    """Spans that came by OTLP: of a framework's own instrumentation, or of a backend such as vLLM."""
    file = raw / OTLP_FILE
    if not file.exists() or unix_offset_ns is None or file.stat().st_size == 0:
        return
    from agentdyno.record.otlp import native_spans

    for body in frames(file.read_bytes()):
        yield from native_spans(body, unix_offset_ns)
