"""The audit of a campaign: its plan, each of its runs, and whatever was made of them, made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from agentdyno.analysis.comparison import compare_campaign
from agentdyno.audit.compare import differences, strict_json
from agentdyno.audit.fault import Audited, Fault
from agentdyno.audit.run import audit_checksums, audit_run, compare_figures, try_step
from agentdyno.contract.campaign import Campaign, PlannedRun
from agentdyno.contract.comparison import Comparison
from agentdyno.contract.errors import UserError
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.contract.summary import Summary
from agentdyno.record.campaign_folder import CAMPAIGN_FILE, CampaignFolder
from agentdyno.record.checksums import CHECKSUMS_FILE
from agentdyno.record.manifest import Manifest
from agentdyno.report.comparison_csv import figures_csv
from agentdyno.report.comparison_html import comparison_page
from agentdyno.report.comparison_markdown import comparison_markdown
from agentdyno.rig.campaign.identity import sources_sha256
from agentdyno.rig.environments.building import say

COMPARISON = "comparison.json"
_REPORTS: dict[str, Callable[[Comparison], str]] = {
    "report.html": comparison_page,
    "report.md": comparison_markdown,
    "figures.csv": figures_csv,
}


def audit_campaign(path: Path) -> Audited:
    """Audit a campaign's folder with all of its runs. Never raises for what is in it."""
    found = Audited(path)
    audit_checksums(found)
    folder = CampaignFolder(path)
    try:
        campaign = folder.read()
    except UserError as error:
        found.faults.append(Fault(CAMPAIGN_FILE, None, str(error)))
        return found
    found.faults += plan_faults(campaign)
    found.faults += _folders(campaign, folder)
    for number, run_id in enumerate(counted := _measured(campaign), 1):
        say(f"audit: run {number} of {len(counted)}, {run_id}")
        _audit_one(folder, run_id, found)
    found.faults += _belonging(campaign, folder)
    if (path / COMPARISON).is_file():
        try_step(found, COMPARISON, lambda: _audit_comparison(folder, found))
    else:
        found.notes.append(f"There is no {COMPARISON}: the campaign was not compared yet.")
    return found


def _audit_comparison(folder: CampaignFolder, found: Audited) -> None:
    say("audit: the comparison")
    computed = compare_campaign(folder)
    stated = strict_json(folder.path / COMPARISON)
    compare_figures(found, COMPARISON, stated, computed)
    _audit_reports(folder, msgspec.convert(stated, Comparison), found)


def _audit_reports(folder: CampaignFolder, comparison: Comparison, found: Audited) -> None:
    """Whatever was published as text is what this version makes of the comparison, to the byte.

    Another version words and draws it otherwise. Where that is so and the file is as it was written, a note says which
    version can tell.
    """
    changed = {fault.file for fault in found.faults}
    for fault in _reports(folder.path, comparison):
        if fault.file in changed or CHECKSUMS_FILE in changed or _same_program(folder.read()):
            found.faults.append(fault)
        else:
            text = f"{fault.file} was made by another version of this program, at commit {comparison.commit}: its hash"
            found.notes.append(f"{text} holds, but whether it says what {COMPARISON} says only that version can tell.")


def _same_program(campaign: Campaign) -> bool:
    try:
        return sources_sha256([entry.label for entry in campaign.entries]) == campaign.sources_sha256
    except UserError:  # an adapter that is not here
        return False


def _reports(path: Path, comparison: Comparison) -> Iterator[Fault]:
    for name, make in _REPORTS.items():
        file = path / name
        if not file.is_file():
            continue
        stated, made = file.read_bytes().split(b"\n"), make(comparison).encode(errors="replace").split(b"\n")
        if stated != made:
            numbered = enumerate(zip_longest(stated, made), 1)
            line = next((number for number, (one, other) in numbered if one != other), 1)
            text = f"from line {line} on it is not what this version makes of {COMPARISON}."
            yield Fault(name, f"line {line}", text)


def plan_faults(campaign: Campaign) -> Iterator[Fault]:
    """Whether `campaign.json` fits together: the workload's hash, and one run for each entry, load and round."""
    workload = campaign.workload
    if workload.scenario in SCENARIOS and (computed := workload.hash()) != campaign.workload_hash:
        text = f"it says {campaign.workload_hash!r}, but the workload beside it gives {computed!r}."
        yield Fault(CAMPAIGN_FILE, "workload_hash", text)
    # What the machine spoilt is measured once more, and then stands there twice.
    first = [run for run in campaign.runs if run.repeat_of is None]
    places = Counter((run.round, run.load, run.label) for run in first)
    wanted = set(product(range(1, campaign.rounds + 1), campaign.plans, (entry.label for entry in campaign.entries)))
    for place in sorted(wanted ^ places.keys()):
        what = "is missing" if place in wanted else "belongs to no round, load or entry of it"
        yield Fault(CAMPAIGN_FILE, "runs", f"the run of {place[2]} in round {place[0]}, load {place[1]}, {what}.")
    for place, count in places.items():
        if count > 1:
            text = f"{place[2]} stands {count} times in round {place[0]}, load {place[1]}."
            yield Fault(CAMPAIGN_FILE, "runs", text)
    if [run.number for run in campaign.runs] != list(range(1, len(campaign.runs) + 1)):
        yield Fault(CAMPAIGN_FILE, "runs", "their numbers do not count from 1 in the order that was drawn.")
    for run_id, count in Counter(_measured(campaign)).items():
        if count > 1:
            yield Fault(CAMPAIGN_FILE, "runs", f"the run {run_id} stands in {count} places.")


def _measured(campaign: Campaign) -> list[str]:
    """All finished runs that the campaign names: probes, planned ones, those under the heap profiler, searches."""
    planned = [run.run_id for run in campaign.runs if run.run_id is not None]
    return [
        *(probe.run_id for probe in campaign.probes),
        *planned,
        *campaign.heap_runs.values(),
        *campaign.searches.values(),
    ]


def _folders(campaign: Campaign, folder: CampaignFolder) -> Iterator[Fault]:
    """Every run that is named is there, and none else: nothing was measured and then left out in silence."""
    there = {path.name for path in folder.runs.iterdir() if path.is_dir()} if folder.runs.is_dir() else set()
    attempts = {attempt for run in campaign.runs for attempt in run.attempts}
    named = {*_measured(campaign), *attempts}
    for run_id in sorted(named - there):
        yield Fault(f"runs/{run_id}", None, f"{CAMPAIGN_FILE} names this run, but its folder is not there.")
    for run_id in sorted(there - named):
        yield Fault(f"runs/{run_id}", None, f"the folder is there, but {CAMPAIGN_FILE} does not name the run.")


def _audit_one(folder: CampaignFolder, run_id: str, found: Audited) -> None:
    path = folder.run(run_id)
    if not path.is_dir():
        return  # said already
    one = audit_run(path)
    found.files += one.files
    found.figures += one.figures
    found.faults += [Fault(f"runs/{run_id}/{fault.file}", fault.field, fault.sentence) for fault in one.faults]
    found.notes += [note for note in one.notes if note not in found.notes]


def _belonging(campaign: Campaign, folder: CampaignFolder) -> Iterator[Fault]:
    """Each run was asked for what the campaign says, of the entry that it stands for."""
    for run in campaign.runs:
        if run.run_id is None or (manifest := _manifest(folder.run(run.run_id))) is None:
            continue
        where = f"runs/{run.run_id}/manifest.json"
        stated = msgspec.to_builtins(_facts(manifest))
        for one in differences(stated, msgspec.to_builtins(_expected(campaign, run))):
            yield Fault(where, one.field, one.sentence(f"{CAMPAIGN_FILE} and this run's place in it"))
    for probe in campaign.probes:
        file = folder.run(probe.run_id) / "summary.json"
        if not file.is_file():
            continue
        goodput = _goodput(file) or None
        if goodput != probe.capacity_rps:
            text = f"it says {probe.capacity_rps}, but {probe.run_id} has a goodput of {goodput}."
            yield Fault(CAMPAIGN_FILE, f"probes.{probe.label}.capacity_rps", text)


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "run_id": manifest.run_id,
        "framework": manifest.framework,
        "workload_hash": manifest.workload_hash,
        "plan": manifest.plan,
        "admission": manifest.admission,
        "environment.lock_sha256": manifest.environment.get("lock_sha256"),
        "rig_environment.lock_sha256": manifest.rig_environment.get("lock_sha256"),
        "schema_version": manifest.schema_version,
    }


def _expected(campaign: Campaign, run: PlannedRun) -> dict[str, Any]:
    entry = next((entry for entry in campaign.entries if entry.label == run.label), None)
    return {
        "run_id": run.run_id,
        "framework": None if entry is None else entry.framework,
        "workload_hash": campaign.workload_hash,
        "plan": campaign.plans.get(run.load),
        "admission": campaign.admission,
        "environment.lock_sha256": None if entry is None else entry.environment_sha256,
        "rig_environment.lock_sha256": campaign.rig_environment_sha256,
        "schema_version": campaign.schema_version,
    }


def _manifest(run: Path) -> Manifest | None:
    """None where it cannot be read, which the run's own audit says."""
    try:
        return msgspec.convert(strict_json(run / "manifest.json"), Manifest)
    except (UserError, msgspec.MsgspecError):
        return None


def _goodput(file: Path) -> float | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Summary).goodput_rps
    except msgspec.MsgspecError:
        return None
