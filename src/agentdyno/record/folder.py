"""The run folder: what is written while a run goes on, and how it becomes the parquet files that are kept.

While it runs everything is appended as JSON lines under `raw/`, so that a killed rig loses at most a second. At
the end the lines become parquet and `raw/` goes.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from agentdyno.contract.errors import UserError
from agentdyno.contract.run import RequestRecord, Second, WorkerEnd
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample

_COMPRESSION = "zstd"


class FolderError(UserError):
    """A run folder that cannot be made or read; the text says which and why."""


class RunFolder:
    """One run's folder: `<utc>-<framework>-<id>`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, parent: Path, framework: str) -> RunFolder:
        """Make a new, empty one under `parent`. Raises FolderError."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = parent / f"{stamp}-{framework}-{secrets.token_hex(3)}"
        try:
            for part in ("raw", "logs"):
                (path / part).mkdir(parents=True)
        except OSError as error:
            raise FolderError(f"The run folder {path} cannot be made: {error.strerror}.") from error
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
        """Write `name` whole or not at all: strict JSON, keys in the order given."""
        text = json.dumps(msgspec.to_builtins(content), indent=2, allow_nan=False, ensure_ascii=False)
        target = self.path / name
        partial = target.with_suffix(".partial")
        partial.write_text(text + "\n", encoding="utf-8")
        os.replace(partial, target)  # noqa: PTH105 - the one that is atomic by contract

    def requests(self) -> list[RequestRecord]:
        """All arrivals so far, in the order of the schedule."""
        found = list(_lines(self.raw.glob("requests-*.jsonl"), RequestRecord))
        return sorted(found, key=lambda record: record.index)

    def seconds(self) -> list[Second]:
        """The workers' live reports so far."""
        return list(_lines(sorted(self.raw.glob("seconds-*.jsonl")), Second))

    def worker_ends(self) -> list[WorkerEnd]:
        """What the workers said at their end."""
        return [msgspec.json.decode(file.read_bytes(), type=WorkerEnd) for file in sorted(self.raw.glob("end-*.json"))]

    def samples(self) -> list[Sample]:
        """The resource samples so far."""
        return list(_lines([self.raw / "resources.jsonl"], Sample))

    def write_requests(self, records: list[RequestRecord]) -> None:
        """`requests.parquet`: one row an arrival, the fields of RequestRecord."""
        self._write_parquet("requests.parquet", [msgspec.to_builtins(r) for r in records], _REQUEST_SCHEMA)

    def write_resources(self, samples: list[Sample]) -> None:
        """`resources.parquet`: one row a sample of a process, the fields of Reading."""
        rows = [
            {"monotonic_ns": s.monotonic_ns, "role": s.role, "pid": s.pid, **msgspec.to_builtins(s.reading)}
            for s in samples
        ]
        self._write_parquet("resources.parquet", rows, _RESOURCE_SCHEMA)

    def write_gc(self, events: list[tuple[int, int, int, int]]) -> None:
        """`gc.parquet`: one row a collection."""
        self._write_parquet("gc.parquet", [dict(zip(_GC_SCHEMA.names, e, strict=True)) for e in events], _GC_SCHEMA)

    def write_loop(self, events: list[tuple[int, int]]) -> None:
        """`loop.parquet`: one row a tick of the event-loop probe."""
        rows = [dict(zip(_LOOP_SCHEMA.names, e, strict=True)) for e in events]
        self._write_parquet("loop.parquet", rows, _LOOP_SCHEMA)

    def drop_raw(self) -> None:
        """The parquet files hold it all: remove the JSON lines."""
        shutil.rmtree(self.raw)

    def _write_parquet(self, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
        partial = self.path / f"{name}.partial"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), partial, compression=_COMPRESSION)
        os.replace(partial, self.path / name)  # noqa: PTH105


def _lines(files: Iterable[Path], kind: type[Any]) -> Iterable[Any]:
    """The objects of JSON-lines files; a last line that was cut off by a kill is left out."""
    decoder = msgspec.json.Decoder(kind)
    for file in files:
        if not file.exists():
            continue
        lines = file.read_bytes().split(b"\n")
        # After the last newline stands nothing, or a piece of a line.
        for line in lines[:-1]:
            yield decoder.decode(line)


def _schema(struct: type[msgspec.Struct], extra: list[tuple[str, pa.DataType]]) -> pa.Schema:
    types = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "Outcome": pa.string()}
    fields = list(extra)
    for field in msgspec.structs.fields(struct):
        name = getattr(field.type, "__name__", "")
        if name not in types:  # a union with None: the other member says what it is
            name = next(arg.__name__ for arg in field.type.__args__ if arg is not type(None))
        fields.append((field.name, types[name]))
    return pa.schema(fields)


_REQUEST_SCHEMA = _schema(RequestRecord, [])
_RESOURCE_SCHEMA = _schema(Reading, [("monotonic_ns", pa.int64()), ("role", pa.string()), ("pid", pa.int64())])
_GC_SCHEMA = pa.schema([(n, pa.int64()) for n in ("start_monotonic_ns", "pause_ns", "generation", "collected")])
_LOOP_SCHEMA = pa.schema([(n, pa.int64()) for n in ("deadline_monotonic_ns", "lag_ns")])
