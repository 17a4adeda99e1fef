"""One side of a gate: a campaign, a folder of runs, or one run, as series of runs that were measured alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agentdyno.analysis.not_comparable import NOT_COMPARABLE
from agentdyno.contract.campaign import NULL_MARK, LoadName
from agentdyno.contract.errors import UserError
from agentdyno.contract.summary import Summary
from agentdyno.record.campaign_folder import CAMPAIGN_FILE, CampaignFolder
from agentdyno.record.folder import FolderError
from agentdyno.record.manifest import Manifest


class SideError(UserError):
    """A folder that cannot be compared, or runs in it that cannot be joined; the text says why."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run as it is on disk. round: its place among the rounds of a campaign, None outside of one."""

    manifest: Manifest
    summary: Summary
    round: int | None = None


@dataclass(slots=True)
class Series:
    """Runs of one framework under one load, measured alike. load: None outside of a campaign.

    control: in a campaign the control's valid run of each round. invalid: how many runs were left out for that.
    """

    label: str
    load: LoadName | None
    runs: list[MeasuredRun] = field(default_factory=list)
    control: dict[int, MeasuredRun] = field(default_factory=dict)
    invalid: int = 0

    @property
    def manifest(self) -> Manifest:
        """Of the first run; the others were asked for the same."""
        return self.runs[0].manifest


@dataclass(frozen=True, slots=True)
class Side:
    """What one path holds, by label and load. control: the label that is never gated unless it is asked for. apart:
    runs that are for no comparison, and so in no series.
    """

    path: Path
    series: tuple[Series, ...]
    control: str | None
    apart: tuple[MeasuredRun, ...] = ()


def read_side(path: Path) -> Side:
    """Read a campaign's folder, a folder that holds run folders, or a run folder. Raises SideError or FolderError."""
    if (path / CAMPAIGN_FILE).is_file():
        return _campaign(path)
    if (path / "manifest.json").is_file():
        runs = [read_measured(path)]
    elif path.is_dir():
        runs = [read_measured(file.parent) for file in sorted(path.glob("*/summary.json"))]
    else:
        raise SideError(f"There is no folder {path}. Name a campaign, a folder of runs, or a run.")
    by_name: dict[str, Series] = {}
    apart = []
    for run in runs:
        if not run.summary.verdict.comparable:
            apart.append(run)
        else:
            name = run.manifest.framework.name
            _add(by_name.setdefault(name, Series(name, None)), run)
    if runs and not by_name:
        raise SideError(f"{path} holds nothing that may be compared. {why_apart(runs[0])}")
    return Side(path, _alike(path, by_name.values()), None, tuple(apart))


def _campaign(path: Path) -> Side:
    folder = CampaignFolder(path)
    campaign = folder.read()
    by_place: dict[tuple[str, LoadName], Series] = {}
    for planned in campaign.runs:
        if planned.run_id is None or NULL_MARK in planned.label:
            continue
        run = read_measured(folder.run(planned.run_id), planned.round)
        _add(by_place.setdefault((planned.label, planned.load), Series(planned.label, planned.load)), run)
    control = campaign.entries[0].label if campaign.entries else None
    series = _alike(path, by_place.values())
    for one in series:
        own = by_place.get((control or "", one.load)) if one.load is not None else None
        one.control = {run.round: run for run in own.runs if run.round is not None} if own is not None else {}
    return Side(path, series, control)


def read_measured(run: Path, number: int | None = None) -> MeasuredRun:
    """Manifest and summary of a run folder. Raises FolderError."""
    return MeasuredRun(_read(run / "manifest.json", Manifest), _read(run / "summary.json", Summary), number)


def why_apart(run: MeasuredRun) -> str:
    """A sentence on a run that enters no comparison."""
    return f"{run.manifest.run_id} is for no comparison ({_codes(run)}): its figures are not a framework's own."


def left_out(side: Side, where: str, frameworks: Sequence[str] = ()) -> Iterator[str]:
    """A sentence for each kind of runs that enter no comparison. frameworks: only of these; empty: of all."""
    kinds = Counter((run.manifest.framework.name, _codes(run)) for run in side.apart)
    for (label, codes), count in kinds.items():
        if not frameworks or label in frameworks:
            yield f"Runs of {label} left out of the {where}, for no comparison is made with them ({codes}): {count}."


def _codes(run: MeasuredRun) -> str:
    return ", ".join(note.code for note in run.summary.verdict.notes if note.code in NOT_COMPARABLE)


def _read(file: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise FolderError(f"{file} is not what this version writes: {error}.") from error


def _add(series: Series, run: MeasuredRun) -> None:
    if run.summary.verdict.valid:
        series.runs.append(run)
    else:
        series.invalid += 1


def _alike(path: Path, series: Sequence[Series] | Any) -> tuple[Series, ...]:
    """All of them, when the runs of each were asked for the same. Raises SideError."""
    found = tuple(series)
    for one in found:
        for run in one.runs[1:]:
            if differing := list(differing_conditions(one.manifest, run.manifest)):
                text = f"The runs of {one.label} in {path} cannot be joined, for they differ: {'; '.join(differing)}."
                raise SideError(text)
    if not found:
        raise SideError(f"{path} holds no run with a summary.json. Name a campaign, a folder of runs, or a run.")
    return found


# What decides how a language model answers, beside its name: as it was started, or as its user states it.
_SERVER = ("settings", "stated", "weights", "revision")


def conditions(manifest: Manifest) -> dict[str, Any]:
    """What must be equal for two runs to be compared, by the names that a person reads."""
    plan = msgspec.to_builtins(manifest.plan)
    return {
        "schema": manifest.schema_version,
        "workload": manifest.workload_hash,
        "backend": manifest.backend.get("kind"),
        "model": manifest.backend.get("model"),
        **{f"backend's {name}": manifest.backend[name] for name in _SERVER if name in manifest.backend},
        "approach": manifest.framework.approach,
        "admission": manifest.admission,
        **{f"load's {name}": value for name, value in plan.items()},
    }


def differing_conditions(one: Manifest, other: Manifest) -> Iterator[str]:
    """Each condition in which two runs differ, with both values."""
    ours, theirs = conditions(one), conditions(other)
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            yield f"{name} {ours.get(name)} and {theirs.get(name)}"


def machine_of(manifest: Manifest) -> dict[str, Any]:
    """See Machine.speed_facts."""
    return manifest.machine.speed_facts()


def server_of(manifest: Manifest) -> dict[str, Any]:
    """What the backend told of its own settings; some differ at each start of the same server."""
    told = manifest.backend.get("told")
    return told if isinstance(told, dict) else {}


def rig_of(manifest: Manifest) -> dict[str, Any]:
    """What measured: the same adapter costs another amount under another rig."""
    return {
        "agentdyno": manifest.agentdyno,
        "commit": manifest.commit,
        "rig's lock": manifest.rig_environment.get("lock_sha256"),
        "Python": manifest.machine.python,
    }
