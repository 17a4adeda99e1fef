"""The run folder: what is written while a run goes on, and how it becomes the parquet files that are kept.

While it runs everything is appended as JSON lines under `raw/`, so that a killed rig loses at most a second. At
the end the lines become parquet and `raw/` goes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from agentdyno.contract.errors import UserError
from agentdyno.contract.run import RequestRecord, WorkerEnd
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample

_COMPRESSION = "zstd"
_TAIL_BYTES = 65_536  # longer than any line, so that the last newline of a cut file is found in it
_RESERVE_BYTES = 256 * 1024
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._#-]+")


class FolderError(UserError):
    """A run folder that cannot be made or read; the text says which and why."""


class RunFolder:
    """One run's folder: `<utc>-<framework>-<id>`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, parent: Path, framework: str) -> RunFolder:
        """Make a new, empty one under `parent`. Raises FolderError.

        Characters of the framework's name that do not belong in a file's name (a slash above all) become `_`.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = parent / f"{stamp}-{_NOT_IN_A_NAME.sub('_', framework)}-{secrets.token_hex(3)}"
        try:
            for part in ("raw", "logs"):
                (path / part).mkdir(parents=True)
        except OSError as error:
            text = f"The run folder {path} cannot be made: {error.strerror}. Name another parent folder with OUT=."
            raise FolderError(text) from error
        return cls(path)

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def raw(self) -> Path:
        """Where JSON lines are appended during the run."""
        return self.path / "raw"

    def log(self, role: str) -> Path:
        """The log file of a child process."""
        return self.path / "logs" / f"{role}.log"

    def write_json(self, name: str, content: Any) -> None:
        """Write `name` whole or not at all: strict JSON, keys in the order given.

        Raises ValueError for NaN and the infinities, which JSON does not have, and OSError.
        """
        text = json.dumps(msgspec.to_builtins(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        # Half a surrogate pair, from a command line that is not UTF-8, has no encoding: it becomes a "?".
        encoded = text.encode("utf-8", errors="replace")
        self._replace(name, lambda partial: partial.write_bytes(encoded))

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write `name` whole or not at all. Raises OSError."""
        self._replace(name, lambda partial: partial.write_bytes(content))

    def requests(self) -> pa.Table:
        """All arrivals so far, in the order of the schedule: the fields of RequestRecord. Raises FolderError."""
        found = _read_lines(sorted(self.raw.glob("requests-*.jsonl")), _REQUEST_SCHEMA, _REQUEST_REQUIRED)
        return found.sort_by("index")

    def worker_ends(self) -> list[WorkerEnd]:
        """What the workers said at their end. Raises FolderError."""
        return [_worker_end(file) for file in sorted(self.raw.glob("end-*.json"))]

    def samples(self) -> pa.Table:
        """The resource samples so far: the fields of Sample, those of its Reading one by one. Raises FolderError."""
        found = _read_lines([self.raw / "resources.jsonl"], _SAMPLE_SCHEMA, _SAMPLE_REQUIRED)
        reading = pa.Table.from_struct_array(found["reading"]) if found.num_rows else _READING_SCHEMA.empty_table()
        for name in reversed(_SAMPLE_REQUIRED):
            reading = reading.add_column(0, name, found[name])
        return reading

    def write_requests(self, records: pa.Table) -> None:
        """`requests.parquet`: one row an arrival, as `requests` gives them."""
        self._write_parquet("requests.parquet", records)

    def write_resources(self, samples: pa.Table) -> None:
        """`resources.parquet`: one row a sample of a process, as `samples` gives them."""
        self._write_parquet("resources.parquet", samples)

    def write_gc(self, events: Sequence[tuple[int, int, int, int]]) -> None:
        """`gc.parquet`: one row a collection."""
        self._write_parquet("gc.parquet", _integers(GC_COLUMNS, events))

    def write_loop(self, events: Sequence[tuple[int, int]]) -> None:
        """`loop.parquet`: one row a tick of the event-loop probe."""
        self._write_parquet("loop.parquet", _integers(LOOP_COLUMNS, events))

    def write_spans(self, spans: Iterable[pa.Table], schema: pa.Schema) -> None:
        """`spans.parquet`: one row a span, as `span_table.SpanReader` gives them; never all in memory at once."""

        def write(partial: Path) -> None:
            # Identifiers are random: a dictionary of them is as large as they are.
            plain = ("span_id", "parent_span_id", "attributes", "start_monotonic_ns", "end_monotonic_ns")
            named = [name for name in schema.names if name not in plain]
            with pq.ParquetWriter(partial, schema, compression=_COMPRESSION, use_dictionary=named) as writer:
                for table in spans:
                    writer.write_table(table)

        self._replace("spans.parquet", write)

    def reserve(self) -> None:
        """Take some room, so that a run that fills the disk can still say so in its manifest and summary."""
        (self.raw / "reserve").write_bytes(bytes(_RESERVE_BYTES))

    def release_reserve(self) -> None:
        """Give that room back."""
        (self.raw / "reserve").unlink(missing_ok=True)

    def drop_raw(self) -> None:
        """The parquet files hold it all: remove the JSON lines."""
        shutil.rmtree(self.raw)

    def _write_parquet(self, name: str, table: pa.Table) -> None:
        self._replace(name, lambda partial: pq.write_table(table, partial, compression=_COMPRESSION))

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        """Put what `write` writes in the place of `name`; when it fails, nothing has changed and nothing is left."""
        partial = self.path / f"{name}.partial"
        try:
            write(partial)
            os.replace(partial, self.path / name)  # noqa: PTH105 - the one that is atomic by contract
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _read_lines(files: Iterable[Path], schema: pa.Schema, required: Sequence[str]) -> pa.Table:
    """The objects of JSON-lines files as columns; a last line that was cut off by a kill is left out.

    Arrow reads the lines itself: a million records as Python objects would take gigabytes.
    """
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    tables = [schema.empty_table()]
    for file in files:
        if not file.exists() or not (size := _whole_lines_bytes(file)):
            continue
        try:
            with pa.OSFile(str(file)) as source:
                table = pj.read_json(source.get_stream(0, size), parse_options=options)
        except pa.ArrowInvalid as error:
            raise FolderError(f"{file} holds a line that is no record of this version: {error}.") from error
        missing = [name for name in required if table[name].null_count]
        if missing:
            raise FolderError(f"{file} holds a record without {', '.join(missing)}.")
        tables.append(table.select(schema.names))
    return pa.concat_tables(tables)


def _whole_lines_bytes(file: Path) -> int:
    """The file's length up to and with its last newline; after that stands nothing, or a piece of a line."""
    with file.open("rb") as lines:
        size = lines.seek(0, os.SEEK_END)
        start = lines.seek(max(0, size - _TAIL_BYTES))
        return start + lines.read().rfind(b"\n") + 1


def _worker_end(file: Path) -> WorkerEnd:
    try:
        return msgspec.json.decode(file.read_bytes(), type=WorkerEnd)
    except msgspec.MsgspecError as error:
        raise FolderError(f"{file} is not what a load worker of this version writes: {error}.") from error


def _integers(columns: Sequence[str], rows: Sequence[Sequence[int]]) -> pa.Table:
    by_column = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pa.table({name: pa.array(c, pa.int64()) for name, c in zip(columns, by_column, strict=True)})


def _schema(struct: type[msgspec.Struct]) -> pa.Schema:
    """A struct's fields as columns; a struct within it is one column."""
    types = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string(), "Outcome": pa.string()}
    fields = []
    for field in msgspec.structs.fields(struct):
        name = getattr(field.type, "__name__", "")
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            fields.append((field.name, pa.struct(list(_schema(field.type)))))
            continue
        if name not in types:  # a union with None: the other member says what it is
            name = next(arg.__name__ for arg in field.type.__args__ if arg is not type(None))
        fields.append((field.name, types[name]))
    return pa.schema(fields)


def _required(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that every record has, and that are not null in any."""
    return tuple(f.name for f in msgspec.structs.fields(struct) if f.required and isinstance(f.type, type))


_REQUEST_SCHEMA = _schema(RequestRecord)
_REQUEST_REQUIRED = _required(RequestRecord)
_READING_SCHEMA = _schema(Reading)
_SAMPLE_SCHEMA = _schema(Sample)
_SAMPLE_REQUIRED = tuple(name for name in _required(Sample) if name != "reading")
REQUEST_COLUMNS = tuple(_REQUEST_SCHEMA.names)
RESOURCE_COLUMNS = (*_SAMPLE_REQUIRED, *_READING_SCHEMA.names)
GC_COLUMNS = ("start_monotonic_ns", "pause_ns", "generation", "collected")
LOOP_COLUMNS = ("deadline_monotonic_ns", "lag_ns")
