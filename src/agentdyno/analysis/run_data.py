"""The raw records of one run as arrays: what every figure is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from agentdyno.contract.errors import UserError
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome
from agentdyno.record.manifest import Backend, Manifest

Numbers = NDArray[np.float64]
Marks = NDArray[np.bool_]


class DataError(UserError):
    """A run folder whose raw files are missing or broken; the text names the file."""


class Requests:
    """requests.parquet by column. Numbers are float64, NaN where the record has null."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def numbers(self, column: str) -> Numbers:
        """A numeric column; NaN for null."""
        values: Numbers = self._table[column].cast(pa.float64()).to_numpy(zero_copy_only=False)
        return values

    def texts(self, column: str) -> NDArray[Any]:
        """A text column; None for null."""
        values: NDArray[Any] = self._table[column].to_numpy(zero_copy_only=False)
        return values

    @cached_property
    def intended_ms(self) -> Numbers:
        """Scheduled start, ms since t0."""
        return self.numbers("intended_ns") / 1e6

    @cached_property
    def sent_ms(self) -> Numbers:
        """Actual start, ms since t0."""
        return self.numbers("sent_ns") / 1e6

    @cached_property
    def done_ms(self) -> Numbers:
        """End, ms since t0."""
        return self.numbers("done_ns") / 1e6

    def stage(self, stage: Stage) -> Marks:
        """Which rows belong to the stage."""
        marks: Marks = self.texts("stage") == stage.value
        return marks

    def outcome(self, outcome: Outcome) -> Marks:
        """Which rows came to that."""
        marks: Marks = self.texts("outcome") == outcome.value
        return marks


@dataclass(frozen=True, slots=True)
class Window:
    """The measurement window: [start, end) of the measured stage's schedule, ms since t0."""

    start_ms: float
    end_ms: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ms - self.start_ms) / 1000


@dataclass(frozen=True, slots=True)
class RunData:
    """One run's raw data. resources, gc and loop are None when the run kept none."""

    path: Path
    manifest: Manifest
    requests: Requests | None
    resources: pa.Table | None
    gc: pa.Table | None
    loop: pa.Table | None
    backend: Backend | None

    def window(self) -> Window:
        """As the load workers kept it, or from the plan when none lived to say."""
        workers, plan = self.manifest.workers, self.manifest.plan
        if workers:
            return Window(workers[0].measure_start_ns / 1e6, workers[0].measure_end_ns / 1e6)
        return Window(plan.warmup_s * 1000, (plan.warmup_s + plan.duration_s) * 1000)

    def window_ns(self) -> tuple[int, int] | None:
        """The window on the machine's monotonic clock; None when the schedule never began."""
        t0 = self.manifest.t0_monotonic_ns
        if t0 is None:
            return None
        window = self.window()
        return t0 + int(window.start_ms * 1e6), t0 + int(window.end_ms * 1e6)


def read_run(path: Path, manifest: Manifest | None = None) -> RunData:
    """Read a run folder. manifest: in place of its manifest.json, which a full disk may have kept from being written.

    Raises DataError when the manifest is missing or a file is broken.
    """
    return RunData(
        path=path,
        manifest=manifest or _read_json(path / "manifest.json", Manifest),
        requests=_requests(path),
        resources=_table(path / "resources.parquet"),
        gc=_table(path / "gc.parquet"),
        loop=_table(path / "loop.parquet"),
        backend=_read_json(path / "backend.json", Backend) if (path / "backend.json").exists() else None,
    )


def _requests(path: Path) -> Requests | None:
    table = _table(path / "requests.parquet")
    return None if table is None else Requests(table)


def _table(file: Path) -> pa.Table | None:
    if not file.exists():
        return None
    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error


def _read_json(file: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise DataError(f"{file} is not what this version writes: {error}.") from error
