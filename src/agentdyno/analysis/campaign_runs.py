"""A campaign's runs, each recomputed from its raw files, and whether its figures count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path

import msgspec
import numpy as np

from agentdyno.analysis.curves import memory_curve
from agentdyno.analysis.figures import cpu_seconds, latency_samples_ms
from agentdyno.analysis.percentiles import Samples
from agentdyno.analysis.run_data import DataError, RunData, read_run
from agentdyno.analysis.summary import summarise
from agentdyno.analysis.verdict import in_flight_twice
from agentdyno.contract.campaign import Campaign, Entry, PlannedRun
from agentdyno.contract.comparison import CurvePoint, RunRow
from agentdyno.contract.run import Finding, Reason
from agentdyno.contract.summary import Summary
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.manifest import Manifest

# What is measured, in the order of the folder's documentation. summary.json is made of these.
RAW_FILES = (
    *("manifest.json", "requests.parquet", "spans.parquet", "resources.parquet", "gc.parquet", "loop.parquet"),
    "backend.json",
)


def _nothing() -> Samples:
    return np.empty(0)


@dataclass(frozen=True, slots=True)
class CampaignRun:
    """One place of the plan and what was measured there.

    row: what a report prints of it. manifest, summary: None when nothing was measured or it cannot be read.
    intended_ms, service_ms: its latencies one by one. in_flight: the mean counted live and by the recorded times.
    host_cpu_percent: of one core, over the window.
    """

    planned: PlannedRun
    row: RunRow
    manifest: Manifest | None = None
    summary: Summary | None = None
    intended_ms: Samples = field(default_factory=_nothing)
    service_ms: Samples = field(default_factory=_nothing)
    memory: tuple[CurvePoint, ...] = ()
    in_flight: tuple[float, float] | None = None
    host_cpu_percent: float | None = None

    @property
    def counted(self) -> bool:
        """Whether its figures are compared."""
        return self.row.counted


def read_runs(folder: CampaignFolder, campaign: Campaign) -> Iterator[CampaignRun]:
    """Every run of the plan in the drawn order, one at a time in memory. A run that cannot be read is not counted."""
    entries = {entry.label: entry for entry in campaign.entries}
    for planned in campaign.runs:
        yield _run(folder, campaign, planned, entries[planned.label])


def recomputed(folder: CampaignFolder, run_id: str) -> Summary | None:
    """The summary of a run outside of the rounds (a probe); None when it cannot be read."""
    try:
        return summarise(read_run(folder.run(run_id)))
    except DataError:
        return None


def file_hashes(run: Path) -> dict[str, str]:
    """SHA-256 by name of the raw files that are there. Raises OSError."""
    found = {}
    for name in RAW_FILES:
        if (run / name).exists():
            with (run / name).open("rb") as file:
                found[name] = file_digest(file, "sha256").hexdigest()
    return found


def _run(folder: CampaignFolder, campaign: Campaign, planned: PlannedRun, entry: Entry) -> CampaignRun:
    place = RunRow(
        number=planned.number,
        round=planned.round,
        load=planned.load,
        label=planned.label,
        run_id=planned.run_id,
        started_utc=None,
        counted=False,
        repeat_of=planned.repeat_of,
    )
    if planned.run_id is None:
        return CampaignRun(planned, place)
    try:
        data = read_run(folder.run(planned.run_id))
        return _measured(data, campaign, planned, entry, place)
    except (DataError, OSError) as error:
        reasons = (Finding(Reason.RIG_FAILED, f"The run cannot be read: {_named(error, folder)}"),)
        return CampaignRun(planned, msgspec.structs.replace(place, reasons=reasons))


def _named(error: Exception, folder: CampaignFolder) -> str:
    """The text without where the campaign happens to lie, so that it is the same wherever it is computed."""
    return str(error).replace(f"{folder.path}/", "")


def _measured(data: RunData, campaign: Campaign, planned: PlannedRun, entry: Entry, place: RunRow) -> CampaignRun:
    summary, manifest = summarise(data), data.manifest
    reasons = (*summary.verdict.reasons, *_strangers(manifest, campaign, planned, entry))
    calibration = [manifest.calibration.get(moment) for moment in ("before", "after")]
    before, after = (None if one is None else one.median_ms for one in calibration)
    row = msgspec.structs.replace(
        place,
        started_utc=manifest.started_utc,
        counted=not reasons,
        reasons=reasons,
        notes=summary.verdict.notes,
        calibration_ms=(before, after),
        files=file_hashes(data.path),
    )
    intended_ms, service_ms = (_nothing(), _nothing()) if data.requests is None else latency_samples_ms(data.requests)
    window_ns = data.window_ns()
    used_s = None if data.resources is None or window_ns is None else cpu_seconds(data.resources, "host", window_ns)
    return CampaignRun(
        planned=planned,
        row=row,
        manifest=manifest,
        summary=summary,
        intended_ms=intended_ms,
        service_ms=service_ms,
        memory=memory_curve(data),
        in_flight=None if data.requests is None else in_flight_twice(data, data.requests),
        host_cpu_percent=None if used_s is None else used_s / data.window().seconds * 100,
    )


def _strangers(manifest: Manifest, campaign: Campaign, planned: PlannedRun, entry: Entry) -> Iterator[Finding]:
    """Why a run, good in itself, does not belong where the campaign has it."""
    plan, own = campaign.plans.get(planned.load), manifest.plan
    for what, found, due, code in (
        ("workload", manifest.workload_hash, campaign.workload_hash, Reason.WORK_DIFFERS),
        ("rate", own.rate, plan.rate if plan else own.rate, Reason.WORK_DIFFERS),
        ("duration in s", own.duration_s, plan.duration_s if plan else own.duration_s, Reason.WORK_DIFFERS),
        ("admission limit", manifest.admission, campaign.admission, Reason.WORK_DIFFERS),
        ("framework", manifest.framework.name, entry.framework.name, Reason.ENVIRONMENT_DIFFERS),
        ("environment", _lock(manifest, entry), entry.environment_sha256, Reason.ENVIRONMENT_DIFFERS),
    ):
        if found != due:
            yield Finding(code, f"The run's {what} is {found}; the campaign's is {due}.")
    if manifest.heap_profile is not None:
        yield Finding(Reason.PROFILED, "The heap profiler was in the process; a timed run has none.")
    if manifest.native_spans is not None:
        yield Finding(
            Reason.NATIVE_SPANS, "The framework's own instrumentation was in the process; a timed run has none."
        )


def _lock(manifest: Manifest, entry: Entry) -> str:
    return str(manifest.environment.get("lock_sha256", entry.environment_sha256))
