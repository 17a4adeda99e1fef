"""From a campaign's raw files to its comparison: a pure function, the same to the byte each time it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from agentdyno.analysis.campaign_checks import campaign_checks
from agentdyno.analysis.campaign_runs import read_runs
from agentdyno.analysis.caveats import not_to_conclude
from agentdyno.analysis.entry_facts import entry_facts
from agentdyno.analysis.metrics import METRICS
from agentdyno.analysis.null_test import Twice, null_test
from agentdyno.analysis.paired import ratio
from agentdyno.analysis.standout import figure, standout
from agentdyno.analysis.under_load import Rounds, by_place, entry_under_load
from agentdyno.contract.campaign import NULL_MARK, Campaign, CampaignStatus, LoadName
from agentdyno.contract.comparison import Comparison, EntryUnderLoad, NullTest, PairRow
from agentdyno.record.campaign_folder import CampaignFolder

_Places = Mapping[LoadName, Mapping[str, Rounds]]
_Tables = Mapping[str, Mapping[LoadName, EntryUnderLoad]]


def compare_campaign(folder: CampaignFolder) -> Comparison:
    """Recompute every run from its raw files and compare those that are valid.

    A run that cannot be read is shown and not counted. Raises FolderError when `campaign.json` cannot be read, and
    DataError when a heap table or a capacity search cannot.
    """
    campaign = folder.read()
    runs = list(read_runs(folder, campaign))
    labels = [entry.label for entry in campaign.entries]
    loads = list(campaign.plans) or list(dict.fromkeys(run.load for run in campaign.runs))
    places = {load: {label: by_place(runs, label, load, campaign.rounds) for label in labels} for load in loads}
    tables = _tables(places, labels)
    under_load = tuple(tables[label][load] for load in loads for label in labels)
    control = labels[0]
    first = next((run.manifest for run in runs if run.counted and run.manifest is not None), None)
    twice = _null_test(campaign, places)
    return Comparison(
        campaign_id=campaign.campaign_id,
        agentdyno=campaign.agentdyno,
        commit=campaign.commit,
        started_utc=campaign.started_utc,
        finished_utc=campaign.finished_utc,
        complete=campaign.status is CampaignStatus.FINISHED and all(run.run_id for run in campaign.runs),
        command=tuple(campaign.command),
        control=control,
        rounds=campaign.rounds,
        seed=campaign.seed,
        workload=msgspec.to_builtins(campaign.workload),
        workload_hash=campaign.workload_hash,
        admission=campaign.admission,
        loads={load: msgspec.to_builtins(plan) for load, plan in campaign.plans.items()},
        machine={} if first is None else msgspec.to_builtins(first.machine),
        cores={} if first is None else first.cores,
        entries=tuple(
            entry_facts(folder, campaign, entry, _sentence(entry.label, tables, control, twice))
            for entry in campaign.entries
        ),
        under_load=under_load,
        pairs=tuple(_pairs(places, labels)),
        null_test=twice,
        checks=campaign_checks(runs, under_load),
        runs=tuple(run.row for run in runs),
        ranking=_ranking(tables),
        not_to_conclude=not_to_conclude(campaign, runs, under_load),
        backend=msgspec.UNSET if first is None or campaign.workload.served_by is None else first.backend,
    )


def _sentence(label: str, tables: _Tables, control: str, twice: NullTest | None) -> str:
    """What stands out; of the null test's double what that says, which has an alarm's chance of its own."""
    if twice is not None and label == twice.b:
        return twice.sentence
    return standout(tables[label], None if label == control else tables[control])


def _tables(places: _Places, labels: Sequence[str]) -> _Tables:
    return {
        label: {
            load: entry_under_load(rounds[label], None if label == labels[0] else rounds[labels[0]])
            for load, rounds in places.items()
        }
        for label in labels
    }


def _pairs(places: _Places, labels: Sequence[str]) -> Iterator[PairRow]:
    """Each two contestants on each headline metric; the control's ratios stand with the figures."""
    contestants = [label for label in labels[1:] if NULL_MARK not in label]
    for load, rounds in places.items():
        for metric in METRICS:
            if load not in metric.headline:
                continue
            for a, b in combinations(contestants, 2):
                found = ratio(rounds[a].per_round(metric), rounds[b].per_round(metric))
                yield PairRow(load=load, metric=metric.name, a=a, b=b, ratio=found)


def _null_test(campaign: Campaign, places: _Places) -> NullTest | None:
    if campaign.null_pair is None:
        return None
    one, other = campaign.null_pair
    figures = [
        Twice(load, metric, rounds[one].per_round(metric), rounds[other].per_round(metric))
        for load, rounds in places.items()
        for metric in METRICS
        if load in metric.headline
    ]
    return null_test(campaign.null_pair, figures)


def _ranking(tables: _Tables) -> tuple[str, ...]:
    """By CPU per request under the steady load, the leanest first."""
    found = []
    for label, loads in tables.items():
        cpu = figure(loads, LoadName.STEADY, "cpu_per_request")
        if cpu is not None and cpu.median is not None and NULL_MARK not in label:
            found.append((cpu.median, label))
    return tuple(label for _, label in sorted(found))
