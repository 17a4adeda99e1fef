"""`comparison.json`: what a campaign shows. Strict JSON; None (null), never 0, for what was not measured.

Every number that a report prints stands here, so that report, Markdown, CSV and audit have one source. It is a function
of the campaign's raw files alone: computed twice it is the same to the byte.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.run import SCHEMA_VERSION, Finding
from agentdyno.contract.summary import BackendFacts, Framework


class Difference(StrEnum):
    """What a ratio says; `unclear` where there are too few pairs for an interval, or it was not measured."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "no difference"
    UNCLEAR = "unclear"


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Paired by round: of each round both have, the one's figure over the other's.

    median: of those ratios. low, high: its 95 % interval, None with too few pairs. NONE when the interval covers 1.
    """

    pairs: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    difference: Difference = Difference.UNCLEAR


class Tax(msgspec.Struct, frozen=True, kw_only=True):
    """The framework's figure minus the control's, paired by round: median and 95 % interval, in the metric's unit."""

    pairs: int
    median: float | None = None
    low: float | None = None
    high: float | None = None


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """A percentile of all rounds' raw samples together, with its 95 % confidence band (order statistics).

    value: None with fewer samples than the percentile's floor.
    """

    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class FigureSet(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one entry under one load.

    per_round: by round from the first, None where that round's run is missing, invalid, or did not measure it.
    median, low, high: of the rounds, with the 95 % interval of the median. cv: standard deviation over mean of rounds.
    unstable: a sentence when the rounds differ too much to be quoted as one figure. pooled: for percentiles alone.
    """

    metric: str
    per_round: tuple[float | None, ...]
    median: float | None = None
    low: float | None = None
    high: float | None = None
    cv: float | None = None
    unstable: str | None = None
    pooled: Pooled | None = None
    ratio_to_control: Ratio | None = None
    tax: Tax | None = None


class CurvePoint(msgspec.Struct, frozen=True):
    """A point of a curve; what x and y are stands with the curve."""

    x: float
    y: float


class PhaseMean(msgspec.Struct, frozen=True, kw_only=True):
    """A phase's mean time per traced request, ms, over all rounds, and its share of the whole."""

    phase: str
    mean_ms: float
    share: float


class HeapRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a heap top ten: the place in the code, its package, and the value (bytes or objects)."""

    place: str
    package: str
    value: float


class LoadStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a rate-against-latency curve. met: whether the objective held there."""

    rate: float
    goodput_rps: float | None
    p50_ms: float | None
    p95_ms: float | None = None
    p99_ms: float | None
    met: bool | None = None


class SearchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a capacity search came to; see CapacityResult. objective: as it was asked for, such as p95<2s."""

    objective: tuple[str, ...]
    capacity_rps: float | None
    at_least_rps: float | None
    reason: str


class EntryUnderLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One entry under one load.

    latency_curve: x = share of answers that took longer (1, 0.1, 0.01 ...: for a log axis), y = ms from the intended
    start, all rounds pooled, down to what the samples carry. memory_curve: x = s since the schedule's origin, y = RSS
    of the host's processes in MB, of the median round. phases: None where nothing was traced.
    """

    label: str
    load: LoadName
    valid_runs: int
    invalid_runs: int
    arrivals: int
    outcomes: dict[str, int]
    overloaded_runs: int
    figures: tuple[FigureSet, ...]
    latency_curve: tuple[CurvePoint, ...] = ()
    memory_curve: tuple[CurvePoint, ...] = ()
    phases: tuple[PhaseMean, ...] | None = None


class EntryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one entry besides its loads. sentence: what stands out, in words.

    heap_bytes, heap_objects, heap_growth: top tens of a heap-profile run, which is never a timed one; None where there
    was none. capacity_rps: by the campaign's probe. search, steps: what a capacity search came to, and its curve.
    """

    label: str
    framework: Framework
    distributions: int | None
    environment_sha256: str
    sentence: str
    control: bool = False
    null: bool = False
    capacity_rps: float | None = None
    search: SearchOutcome | None = None
    steps: tuple[LoadStep, ...] = ()
    heap_bytes: tuple[HeapRow, ...] | None = None
    heap_objects: tuple[HeapRow, ...] | None = None
    heap_growth: tuple[HeapRow, ...] | None = None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run as it went. number: its place in the drawn order. files: SHA-256 by name of its raw files. repeat_of: the
    place of the run that the machine spoilt and that this one stands for.

    calibration_ms: a fixed loop on the host's core before and after; counted: whether its figures are compared.
    """

    number: int
    round: int
    load: LoadName
    label: str
    run_id: str | None
    started_utc: str | None
    counted: bool
    reasons: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    calibration_ms: tuple[float | None, float | None] = (None, None)
    files: dict[str, str] = {}
    repeat_of: int | None = None


class PairRow(msgspec.Struct, frozen=True, kw_only=True):
    """Two entries compared with each other on one metric under one load: `a`'s figure over `b`'s."""

    load: LoadName
    metric: str
    a: str
    b: str
    ratio: Ratio


class NullTest(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter against itself. found: metrics for which it differs beyond what so many metrics let expect by chance
    (Holm's correction); passed: None when there are too few rounds to tell.
    """

    a: str
    b: str
    passed: bool | None
    rows: tuple[PairRow, ...]
    found: tuple[str, ...]
    sentence: str


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """One check over the whole campaign (conservation, Little's law, order of percentiles, achieved rate, CPU)."""

    name: str
    passed: bool | None
    sentence: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign's result. machine, workload and versions as the runs' manifests have them. not_to_conclude: sentences.

    entries[0] is the control. ranking: labels by CPU per request under the steady load, the leanest first, those that
    have no valid figure left out; the null entry is never in it. backend: of the first run that counts; absent where it
    was the mock, whose comparisons are older than the field.
    """

    schema_version: int = SCHEMA_VERSION
    campaign_id: str
    agentdyno: str
    commit: str | None
    started_utc: str
    finished_utc: str | None
    complete: bool
    command: tuple[str, ...]
    control: str
    rounds: int
    seed: int
    workload: dict[str, Any]
    workload_hash: str
    admission: int | None
    loads: dict[LoadName, dict[str, Any]]
    machine: dict[str, Any]
    cores: dict[str, list[int] | None]
    entries: tuple[EntryFacts, ...]
    under_load: tuple[EntryUnderLoad, ...]
    pairs: tuple[PairRow, ...]
    null_test: NullTest | None
    checks: tuple[CheckRow, ...]
    runs: tuple[RunRow, ...]
    ranking: tuple[str, ...]
    not_to_conclude: tuple[str, ...]
    backend: BackendFacts | msgspec.UnsetType = msgspec.UNSET
