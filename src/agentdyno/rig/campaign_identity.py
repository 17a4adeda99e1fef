"""What must be the same in all runs of a campaign, and in what a checkout differs from one that began it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from agentdyno.analysis.run_data import read_json
from agentdyno.contract.campaign import Campaign, Entry, PlannedRun, Probe
from agentdyno.contract.run import SCHEMA_VERSION
from agentdyno.contract.summary import Framework
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.manifest import Manifest, machine_facts
from agentdyno.rig.building import ensure
from agentdyno.rig.campaign_plan import variant_of
from agentdyno.rig.environments import ROOT, adapter_environment, facts, normalised, rig_environment
from agentdyno.rig.frameworks import resolve


def entry(label: str) -> Entry:
    """One contestant as it is in this checkout; its environment is built when it is not there.

    Raises AdapterError or SetupError.
    """
    adapter, variant = resolve(variant_of(label))
    environment = adapter_environment(adapter.path)
    ensure(environment)
    built = facts(environment)
    version = built.distributions.get(normalised(variant.distribution)) if variant.distribution else None
    return Entry(
        label=label,
        variant=variant.name,
        framework=Framework(variant.name, version, variant.approach, variant.plans_with),
        environment_sha256=built.lock_sha256,
        distributions=built.distribution_count,
    )


def rig_sha256() -> str:
    """The hash of the lock that the rig's environment was built from. Raises SetupError."""
    return facts(rig_environment()).lock_sha256


def sources_sha256(labels: Sequence[str], root: Path = ROOT) -> str:
    """One hash over this program's files and those of the contestants' adapters, names and contents."""
    folders = [root / "src" / "agentdyno", *sorted({resolve(variant_of(label))[0].path for label in labels})]
    found = sha256()
    for folder in folders:
        for file in _sources(folder):
            found.update(f"{folder.name}/{file.relative_to(folder).as_posix()}\0".encode())
            found.update(sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts and not file.name.endswith(".pyc"):
            yield file


def differences(campaign: Campaign) -> list[str]:
    """In what this checkout differs from the one that began it, a sentence for each; empty when in nothing."""
    found = []
    if campaign.schema_version != SCHEMA_VERSION:
        found.append(f"It is of schema {campaign.schema_version}, this version writes {SCHEMA_VERSION}.")
    if campaign.workload.hash() != campaign.workload_hash:
        found.append(f"Its workload {campaign.workload_hash} is {campaign.workload.hash()} here.")
    if campaign.rig_environment_sha256 != rig_sha256():
        found.append("The rig's environment was built from another lock.")
    for then in campaign.entries:
        now = entry(then.label)
        if now.environment_sha256 != then.environment_sha256:
            found.append(f"The environment of {then.label} was built from another lock.")
        elif now.framework != then.framework:
            found.append(f"{then.label} was {_said(then.framework)} and is {_said(now.framework)}.")
    if campaign.sources_sha256 != sources_sha256([each.label for each in campaign.entries]):
        begun = campaign.commit or "an unknown commit"
        found.append(f"The program or an adapter has changed since; the campaign was begun at {begun}.")
    return found


def first_kept(folder: CampaignFolder, campaign: Campaign) -> Manifest | None:
    """The manifest of the first run that was measured; None before there is one. Raises DataError."""
    tried: list[Probe | PlannedRun] = [*campaign.probes, *campaign.runs]
    kept = next((each.run_id for each in tried if each.run_id is not None), None)
    return None if kept is None else read_json(folder.run(kept) / "manifest.json", Manifest)


def places_apart(folder: CampaignFolder, campaign: Campaign, *, on_cluster: bool) -> list[str]:
    """In what the place of the runs that are kept differs from that of those to come; empty before the first one.

    Raises DataError when a run that is kept cannot be read.
    """
    then = first_kept(folder, campaign)
    if then is None:
        return []
    if (then.cluster is not None) is not on_cluster:
        return ["Its runs were measured on one machine." if on_cluster else "Its runs were measured on a cluster."]
    if on_cluster:
        return []  # which nodes its pods are on is the cluster's own affair, and in each run's manifest
    now = machine_facts().speed_facts()
    return [
        f"Its runs were measured with the {name} {value}; here it is {now[name]}."
        for name, value in then.machine.speed_facts().items()
        if now[name] != value
    ]


def _said(framework: Framework) -> str:
    return f"{framework.name} {framework.version or 'without a version'} ({framework.approach})"
