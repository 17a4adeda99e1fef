"""The raw records of one run as arrays: what every figure is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from agentdyno.contract.errors import UserError
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome
from agentdyno.record.folder import GC_COLUMNS, LOOP_COLUMNS, REQUEST_COLUMNS, RESOURCE_COLUMNS
from agentdyno.record.manifest import Backend, Manifest
from agentdyno.record.span_table import SPAN_COLUMNS

# Of a span's row figures need all but its attributes, which are half of the memory; of these texts there are few.
SPAN_COLUMNS_READ = tuple(name for name in SPAN_COLUMNS if name != "attributes")
_REPEATED = ("service", "kind", "name", "phase", "error")
T = TypeVar("T")
Numbers = NDArray[np.float64]
Marks = NDArray[np.bool_]
NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class DataError(UserError):
    """A run folder whose raw files are missing or broken; the text names the file."""


class Requests:
    """requests.parquet by column. Numbers are float64 (exact for times up to a hundred days), NaN for null."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def numbers(self, column: str) -> Numbers:
        """A numeric column; NaN for null."""
        values: Numbers = self._table[column].cast(pa.float64()).to_numpy()
        return values

    def texts(self, column: str) -> pa.ChunkedArray:
        """A column of texts as it is."""
        return self._table[column]

    @cached_property
    def intended_ns(self) -> Numbers:
        """Scheduled start, ns since t0."""
        return self.numbers("intended_ns")

    @cached_property
    def sent_ns(self) -> Numbers:
        """Actual start, ns since t0."""
        return self.numbers("sent_ns")

    @cached_property
    def done_ns(self) -> Numbers:
        """End, ns since t0."""
        return self.numbers("done_ns")

    @cached_property
    def was_sent(self) -> Marks:
        """Which arrivals were sent."""
        marks: Marks = ~np.isnan(self.sent_ns)
        return marks

    @cached_property
    def has_ended(self) -> Marks:
        """Which arrivals were sent and came to an end."""
        marks: Marks = self.was_sent & ~np.isnan(self.done_ns)
        return marks

    def stage(self, stage: Stage) -> Marks:
        """Which rows belong to the stage."""
        return self._equals("stage", stage.value)

    def outcome(self, outcome: Outcome) -> Marks:
        """Which rows came to that."""
        return self._equals("outcome", outcome.value)

    def counts(self, column: str, rows: Marks) -> dict[str, int]:
        """How often each text of a column stands in those rows, the most frequent first; null is left out."""
        found = pc.value_counts(self._table[column].filter(pa.array(rows)).drop_null()).to_pylist()
        return {pair["values"]: pair["counts"] for pair in sorted(found, key=lambda pair: -pair["counts"])}

    def trace_ids(self, outcome: Outcome) -> list[str]:
        """Trace ids of the measured stage's traced arrivals with that outcome."""
        ids: list[str] = self._table["trace_id"].filter(pa.array(self._traced(outcome))).to_pylist()
        return ids

    def expected_spans(self, outcome: Outcome, *, served: bool) -> int:
        """How many spans the host must have recorded for them, by their own counts; served: and the backend, one
        for each call that came to a good end.
        """
        rows = self._traced(outcome)
        good, failed, tools = (np.nansum(self.numbers(name)[rows]) for name in ("llm_calls", "retries", "tool_calls"))
        return int(rows.sum() + good + failed + tools + (good if served else 0))

    def _traced(self, outcome: Outcome) -> Marks:
        traced: Marks = self._table["traced"].to_numpy(zero_copy_only=False).astype(bool)
        return traced & self.stage(Stage.MEASURE) & self.outcome(outcome)

    def indices_once(self) -> bool:
        """Whether no arrival is on record twice."""
        return bool(pc.count_distinct(self._table["index"]).as_py() == len(self))

    def _equals(self, column: str, value: str) -> Marks:
        marks: Marks = pc.equal(self._table[column], value).to_numpy()
        return marks


@dataclass(frozen=True, slots=True)
class Window:
    """The measurement window: [start, end) of the measured stage's schedule, ns since t0."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / NS_PER_S


@dataclass(frozen=True, slots=True)
class RunData:
    """One run's raw data. resources, gc, loop and spans are None when the run kept none; spans without attributes."""

    path: Path
    manifest: Manifest
    requests: Requests | None
    resources: pa.Table | None
    gc: pa.Table | None
    loop: pa.Table | None
    spans: pa.Table | None
    backend: Backend | None

    def window(self) -> Window:
        """As the load workers kept it, or from the plan when none lived to say."""
        workers, plan = self.manifest.workers, self.manifest.plan
        if workers:
            return Window(workers[0].measure_start_ns, workers[0].measure_end_ns)
        return Window(round(plan.warmup_s * NS_PER_S), round((plan.warmup_s + plan.duration_s) * NS_PER_S))

    def window_ns(self) -> tuple[int, int] | None:
        """The window on the machine's monotonic clock; None when the schedule never began."""
        t0 = self.manifest.t0_monotonic_ns
        if t0 is None:
            return None
        window = self.window()
        return t0 + window.start_ns, t0 + window.end_ns


def read_run(path: Path, manifest: Manifest | None = None) -> RunData:
    """Read a run folder. manifest: in place of its manifest.json, which a full disk may have kept from being written.

    Raises DataError when the manifest is missing or a file is broken.
    """
    requests = _table(path / "requests.parquet", REQUEST_COLUMNS)
    return RunData(
        path=path,
        manifest=manifest or read_json(path / "manifest.json", Manifest),
        requests=None if requests is None else Requests(requests),
        resources=_table(path / "resources.parquet", RESOURCE_COLUMNS),
        gc=_table(path / "gc.parquet", GC_COLUMNS),
        loop=_table(path / "loop.parquet", LOOP_COLUMNS),
        spans=_table(path / "spans.parquet", SPAN_COLUMNS, SPAN_COLUMNS_READ, _REPEATED),
        backend=read_json(path / "backend.json", Backend) if (path / "backend.json").exists() else None,
    )


def _table(
    file: Path, columns: Sequence[str], read: Sequence[str] | None = None, repeated: Sequence[str] = ()
) -> pa.Table | None:
    """A file that must have `columns`; of them those to read, and those whose few texts are held once."""
    if not file.exists():
        return None
    try:
        there = pq.read_schema(file).names
        missing = [name for name in columns if name not in there]
        if missing:
            raise DataError(f"{file} is not what this version writes: it has no column {', '.join(missing)}.")
        return pq.read_table(file, columns=None if read is None else list(read), read_dictionary=list(repeated))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error


def read_json(file: Path, kind: type[T]) -> T:
    """One of a folder's JSON files. Raises DataError when it cannot be read, or is of another version."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise DataError(f"{file} is not what this version writes: {error}.") from error
