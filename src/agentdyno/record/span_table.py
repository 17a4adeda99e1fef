"""spans.parquet: every span of a run as one row, from what the recorder kept and from the requests' records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.contract.phases import Phase
from agentdyno.contract.trace import Goodbye, Hello, Record, Service
from agentdyno.record.clocks import Clocks, nested_shift_ns
from agentdyno.record.spans import OTLP_FILE, RAW_FILE, Span, SpanKind, decode, expand, frames, shifted

SPAN_COLUMNS = (
    *("trace_id", "span_id", "parent_span_id", "service", "kind", "name", "phase"),
    *("start_monotonic_ns", "end_monotonic_ns", "error", "attributes"),
)
CLIENT_NAME = "POST /agent/invoke"
_INTEGERS = frozenset({"start_monotonic_ns", "end_monotonic_ns"})
SPAN_SCHEMA = pa.schema([(name, pa.int64() if name in _INTEGERS else pa.string()) for name in SPAN_COLUMNS])
_CHUNK_ROWS = 20_000
_CLOCKS_APART_NS = 1_000_000_000  # of two machines, at most; runs are further apart
_HELLO_BYTES = 512  # no frame with a hello is longer
_encode = msgspec.json.encode


class Senders(msgspec.Struct):
    """What the senders of a run said of themselves.

    dropped: records thrown away before they were sent. unix_offset_ns: from the run's monotonic clock to Unix time,
    as the host had it at its first word (None when nobody said hello). unreadable: frames that are none of this
    version's. repeated: frames that came twice, and are left out once.
    """

    dropped: int = 0
    unix_offset_ns: int | None = None
    unreadable: int = 0
    repeated: int = 0


class SpanReader:
    """Reads what the recorder of one run kept. raw: the folder of its files.

    `senders` is complete when all tables were taken.
    """

    def __init__(self, raw: Path, framework: str) -> None:
        self.senders = Senders()
        self._raw = raw
        self._framework = framework
        self._first_ns: int | None = None

    def tables(self, requests: pa.Table, t0_monotonic_ns: int | None) -> Iterator[pa.Table]:
        """All spans of the run, some thousands at a time. requests: for the generator's own spans."""
        yield from map(_table, _chunks(self.recorded()))
        yield from map(_table, _chunks(self._native()))
        if t0_monotonic_ns is not None:
            yield client_table(requests, t0_monotonic_ns)

    def recorded(self) -> Iterator[Span]:
        """The spans of the raw records, of what there is by now."""
        file = self._raw / RAW_FILE
        content = file.read_bytes() if file.exists() else b""
        clocks = _clocks(content)
        nested_ns = nested_shift_ns(_records(content)) if clocks.several else None
        self.senders.unix_offset_ns = clocks.unix_offset_ns
        last: dict[Service, Goodbye] = {}
        seen: set[bytes] = set()
        for body in frames(content):
            digest = blake2b(body, digest_size=16).digest()
            if digest in seen:
                self.senders.repeated += 1
                continue
            seen.add(digest)
            try:
                records = decode(body)
            except msgspec.MsgspecError:
                self.senders.unreadable += 1
                continue
            spans = expand(records, self._framework)
            shift_ns = 0
            if records and isinstance(end := records[-1], Goodbye):
                last[end.service] = end
                shift_ns = clocks.shift_ns(end.service)
                if nested_ns is not None and end.service is Service.BACKEND:
                    shift_ns = nested_ns
            for span in spans if not shift_ns else (shifted(span, shift_ns) for span in spans):
                if self._first_ns is None or span.start_ns < self._first_ns:
                    self._first_ns = span.start_ns
                yield span
        self.senders.dropped = sum(goodbye.dropped for goodbye in last.values())

    def _native(self) -> Iterator[Span]:
        """Spans that came by OTLP: of a framework's own instrumentation, or of a backend such as vLLM.

        A server that outlives runs sends the last spans of one to the recorder of the next: these are left out.
        """
        file, offset_ns = self._raw / OTLP_FILE, self.senders.unix_offset_ns
        if offset_ns is None or not file.exists() or file.stat().st_size == 0:
            return
        from agentdyno.record.otlp import native_spans

        begun_ns = None if self._first_ns is None else self._first_ns - _CLOCKS_APART_NS
        for body in frames(file.read_bytes()):
            for span in native_spans(body, offset_ns):
                if begun_ns is None or span.start_ns >= begun_ns or span.service is not Service.BACKEND:
                    yield span


def _clocks(content: bytes) -> Clocks:
    clocks = Clocks()
    for body in frames(content):
        if len(body) > _HELLO_BYTES:
            continue
        with suppress(msgspec.MsgspecError):  # counted where all frames are read
            for record in decode(body):
                if isinstance(record, Hello):
                    clocks.meet(record)
    return clocks


def _records(content: bytes) -> Iterator[Record]:
    for body in frames(content):
        with suppress(msgspec.MsgspecError):  # counted where all frames are read
            yield from decode(body)


def _chunks(spans: Iterator[Span]) -> Iterator[list[Span]]:
    while chunk := list(islice(spans, _CHUNK_ROWS)):
        yield chunk


def _table(rows: list[Span]) -> pa.Table:
    *columns, attributes = zip(*rows, strict=True)
    # As text: from bytes Arrow would check the encoding again, which takes ten times as long.
    return pa.table([*columns, [_encode(one).decode() for one in attributes]], schema=SPAN_SCHEMA)


def client_table(requests: pa.Table, t0_ns: int) -> pa.Table:
    """The generator's spans: from the send to the last byte of each traced arrival."""
    known = pc.and_(pc.is_valid(requests["sent_ns"]), pc.is_valid(requests["done_ns"]))
    rows = requests.filter(pc.and_(requests["traced"], known))
    columns = {
        "trace_id": rows["trace_id"],
        "span_id": rows["span_id"],
        "parent_span_id": pa.nulls(rows.num_rows, pa.string()),
        "service": pa.repeat(Service.GENERATOR.value, rows.num_rows),
        "kind": pa.repeat(SpanKind.CLIENT.value, rows.num_rows),
        "name": pa.repeat(CLIENT_NAME, rows.num_rows),
        "phase": pa.nulls(rows.num_rows, pa.string()),
        "start_monotonic_ns": pc.add(rows["sent_ns"], t0_ns),
        "end_monotonic_ns": pc.add(rows["done_ns"], t0_ns),
        "error": rows["reason"],
        "attributes": pc.binary_join_element_wise('{"agentdyno.outcome":"', rows["outcome"], '"}', ""),
    }
    return pa.table(columns, schema=SPAN_SCHEMA)


def spans_of(table: pa.Table) -> Iterator[Span]:
    """The rows of such a table as spans again; attributes as a dict, empty where they were not read."""
    columns = [table[name].to_pylist() for name in SPAN_COLUMNS if name in table.column_names]
    if "attributes" not in table.column_names:
        columns.append(["{}"] * table.num_rows)
    for *facts, attributes in zip(*columns, strict=True):
        trace_id, span_id, parent, service, kind, name, phase, start_ns, end_ns, error = facts
        typed = (Service(service), SpanKind(kind), name, None if phase is None else Phase(phase))
        yield Span(trace_id, span_id, parent, *typed, start_ns, end_ns, error, msgspec.json.decode(attributes))
