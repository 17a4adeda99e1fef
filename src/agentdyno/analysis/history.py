"""A metric over versions: what campaigns and runs under one folder measured, as series of what is comparable."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from packaging.version import InvalidVersion, Version

from agentdyno.analysis.metrics import Metric
from agentdyno.analysis.sides import MeasuredRun, conditions, machine_of, read_measured, why_apart
from agentdyno.analysis.steps import Step, find_steps
from agentdyno.contract.campaign import NULL_MARK, LoadName
from agentdyno.contract.errors import UserError
from agentdyno.record.campaign_folder import CAMPAIGN_FILE, CampaignFolder

_SHOWN = 5  # of the notes, where nothing else is


class HistoryError(UserError):
    """A folder in which there is nothing to draw; the text says why."""


@dataclass(frozen=True, slots=True)
class Point:
    """One campaign's rounds of one framework, or one run outside of a campaign. value: their median.

    version: of the framework. commit: of the checkout that measured. where: the campaign's or the run's name.
    """

    version: str | None
    commit: str | None
    started_utc: str
    value: float
    rounds: int
    where: str


@dataclass(frozen=True, slots=True)
class History:
    """One series: points that may be compared with each other, in order.

    asked: what is the same in all of them (workload, load, machine and so on) by name. by_version: ordered by version,
    then date; otherwise by date alone, because not all have a version that can be ordered.
    """

    label: str
    load: LoadName | None
    metric: Metric
    asked: dict[str, Any]
    points: tuple[Point, ...]
    by_version: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """All series of a folder, and the sentences on what could not be used."""

    series: tuple[History, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Measured:
    """Runs that make one point."""

    label: str
    load: LoadName | None
    where: str
    runs: list[MeasuredRun]


def read_history(folder: Path, metric: Metric, frameworks: tuple[str, ...] = (), load: LoadName | None = None) -> Found:
    """Read every campaign and every run under `folder`. Raises HistoryError when none of them measured the metric.

    frameworks: only these; load: only runs of campaigns under that one.
    """
    if not folder.is_dir():
        raise HistoryError(f"There is no folder {folder}. Name one that holds campaigns or runs.")
    notes: list[str] = []
    groups: dict[str, list[tuple[_Measured, dict[str, Any]]]] = defaultdict(list)
    for one in _measured(folder, notes):
        if (frameworks and one.label not in frameworks) or (load is not None and one.load is not load):
            continue
        for part in _comparable(one):
            asked = _asked(part.runs[0])
            groups[json.dumps([part.label, part.load, asked], sort_keys=True)].append((part, asked))
    series = [_series(members, metric) for _, members in sorted(groups.items())]
    drawn = tuple(one for one in series if one.points)
    if not drawn:
        seen = f"{len(series)} series, none with {metric.name}" if series else "no valid run"
        raise HistoryError(" ".join([f"Under {folder} there is nothing to draw: {seen}.", *notes[:_SHOWN]]))
    return Found(drawn, tuple(notes))


def _measured(folder: Path, notes: list[str]) -> Iterator[_Measured]:
    """By campaign, then single runs. What cannot be read is noted, and so is what is left out."""
    campaigns = sorted(file.parent for file in folder.rglob(CAMPAIGN_FILE))
    for path in campaigns:
        yield from _of_campaign(path, notes)
    for file in sorted(folder.rglob("summary.json")):
        run = file.parent
        if any(run.is_relative_to(path) for path in campaigns):
            continue
        read = _usable(run, None, notes)
        if read is not None:
            yield _Measured(read.manifest.framework.name, None, run.name, [read])


def _of_campaign(path: Path, notes: list[str]) -> Iterator[_Measured]:
    folder = CampaignFolder(path)
    try:
        campaign = folder.read()
    except UserError as error:
        notes.append(f"Left out: {error}")
        return
    places: dict[tuple[str, LoadName], list[MeasuredRun]] = defaultdict(list)
    for planned in campaign.runs:
        if planned.run_id is not None and NULL_MARK not in planned.label:
            run = _usable(folder.run(planned.run_id), planned.round, notes)
            if run is not None:
                places[planned.label, planned.load].append(run)
    for (label, load), runs in places.items():
        yield _Measured(label, load, path.name, runs)


def _usable(run: Path, number: int | None, notes: list[str]) -> MeasuredRun | None:
    try:
        read = read_measured(run, number)
    except UserError as error:
        notes.append(f"Left out: {error}")
        return None
    if not read.summary.verdict.valid:
        notes.append(f"Left out: {run.name} is invalid.")
        return None
    if not read.summary.verdict.comparable:
        notes.append(f"Left out: {why_apart(read)}")
        return None
    return read


def _comparable(one: _Measured) -> list[_Measured]:
    """Runs of one campaign were asked for the same; where the files say otherwise each kind is a point by itself."""
    kinds: dict[str, list[MeasuredRun]] = defaultdict(list)
    for run in one.runs:
        kinds[json.dumps(_asked(run), sort_keys=True)].append(run)
    return [_Measured(one.label, one.load, one.where, runs) for runs in kinds.values()]


def _asked(run: MeasuredRun) -> dict[str, Any]:
    """What must be the same for two points to stand in one series."""
    manifest = run.manifest
    return conditions(manifest) | machine_of(manifest) | {"Python": manifest.machine.python}


def _series(members: list[tuple[_Measured, dict[str, Any]]], metric: Metric) -> History:
    first, asked = members[0]
    points = [point for one, _ in members if (point := _point(one, metric)) is not None]
    versions = [_parsed(point.version) for point in points]
    by_version = bool(points) and all(version is not None for version in versions)
    order = sorted(
        range(len(points)),
        key=lambda n: (versions[n] if by_version else 0, points[n].started_utc, points[n].where),
    )
    ordered = tuple(points[n] for n in order)
    steps = find_steps([point.value for point in ordered])
    return History(first.label, first.load, metric, asked, ordered, by_version, steps)


def _point(one: _Measured, metric: Metric) -> Point | None:
    values = [value for run in one.runs if (value := metric.value(run.summary)) is not None]
    if not values:
        return None
    manifest = one.runs[0].manifest
    made = (manifest.framework.version, manifest.commit, manifest.started_utc)
    return Point(*made, value=median(values), rounds=len(values), where=one.where)


def _parsed(version: str | None) -> Version | None:
    try:
        return None if version is None else Version(version)
    except InvalidVersion:
        return None
