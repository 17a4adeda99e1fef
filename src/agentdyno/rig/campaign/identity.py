"""What must be the same in all runs of a campaign, and in what a checkout differs from one that began it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from agentdyno.analysis.run_data import read_json
from agentdyno.contract.campaign import Campaign, Entry, PlannedRun, Probe
from agentdyno.contract.run import SCHEMA_VERSION
from agentdyno.contract.summary import BackendFacts, Framework
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.manifest import Manifest, machine_facts
from agentdyno.rig.campaign.plan import variant_of
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import ROOT, adapter_environment, facts, normalised, rig_environment
from agentdyno.rig.environments.frameworks import resolve

# What a cluster's runs say of their backend, and what decides how it answers.
_OF_THE_BACKEND = ("kind", "model", "weights", "revision", "settings")


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


def places_apart(folder: CampaignFolder, campaign: Campaign, cluster_backend: BackendFacts | None) -> list[str]:
    """In what the place that a campaign was begun for, or that its kept runs were measured at, differs from this one.

    cluster_backend: the cluster's; None: the runs to come are measured on this machine.
    Raises DataError when a run that is kept cannot be read.
    """
    tried: list[Probe | PlannedRun] = [*campaign.probes, *campaign.runs]
    kept = next((each.run_id for each in tried if each.run_id is not None), None)
    then = None if kept is None else read_json(folder.run(kept) / "manifest.json", Manifest)
    begun: BackendFacts = {"kind": campaign.backend, "model": campaign.model} if then is None else then.backend
    if cluster_backend is not None and (apart := _backends_apart(begun, cluster_backend)):
        return [apart]
    if then is None:
        return []
    if cluster_backend is None and then.cluster is not None:
        return ["Its runs were measured on a cluster."]
    if cluster_backend is not None and then.cluster is None:
        return ["Its runs were measured on one machine."]
    if cluster_backend is not None:
        return []  # which nodes its pods are on is the cluster's own affair, and in each run's manifest
    now = machine_facts().speed_facts()
    return [
        f"Its runs were measured with the {name} {value}; here it is {now[name]}."
        for name, value in then.machine.speed_facts().items()
        if now[name] != value
    ]


def _backends_apart(then: BackendFacts, now: BackendFacts) -> str | None:
    """What the manifest of a first run does not say, as that of a local one, is not compared."""
    names = [name for name in _OF_THE_BACKEND if name in then]
    if all(then[name] == now.get(name) for name in names):
        return None
    had, has = (" ".join(str(one[name]) for name in _OF_THE_BACKEND if name in one) for one in (then, now))
    return f"It was begun with the backend {had}; the release has {has}."


def _said(framework: Framework) -> str:
    return f"{framework.name} {framework.version or 'without a version'} ({framework.approach})"
