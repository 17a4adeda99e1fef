"""What is known of an entry besides its loads: capacity, heap top tens, and the sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentdyno.analysis.campaign_runs import recomputed
from agentdyno.analysis.capacity import read_result
from agentdyno.analysis.heap import HeapTop, Site
from agentdyno.analysis.run_data import read_json
from agentdyno.contract.campaign import NULL_MARK, Campaign, Entry
from agentdyno.contract.capacity import load_steps, search_outcome
from agentdyno.contract.comparison import EntryFacts, HeapRow
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.heap_folder import HEAP_FOLDER

HEAP_TABLE = "top10.json"


def entry_facts(folder: CampaignFolder, campaign: Campaign, entry: Entry, sentence: str) -> EntryFacts:
    """Raises DataError when a heap table or a capacity search is there and cannot be read."""
    top = _heap_top(folder, campaign.heap_runs.get(entry.label))
    searched = campaign.searches.get(entry.label)
    found = None if searched is None else read_result(folder.run(searched))
    return EntryFacts(
        label=entry.label,
        framework=entry.framework,
        distributions=entry.distributions,
        environment_sha256=entry.environment_sha256,
        sentence=sentence,
        control=entry.label == campaign.entries[0].label,
        null=NULL_MARK in entry.label,
        capacity_rps=_capacity_rps(folder, campaign, entry),
        search=None if found is None else search_outcome(found),
        steps=() if found is None else load_steps(found),
        heap_bytes=None if top is None else _rows(top.by_inuse_bytes, lambda site: site.inuse_bytes),
        heap_objects=None if top is None else _rows(top.by_alloc_objects, lambda site: site.alloc_objects),
        heap_growth=None if top is None else _rows(top.by_growth_bytes, lambda site: site.growth_bytes),
    )


def _capacity_rps(folder: CampaignFolder, campaign: Campaign, entry: Entry) -> float | None:
    """The most that the entry answered in a probe, from its records; as noted where they are not kept."""
    held = []
    for probe in campaign.probes:
        if probe.label == entry.label:
            summary = recomputed(folder, probe.run_id)
            held.append(probe.capacity_rps if summary is None else summary.goodput_rps)
    return max((rps for rps in held if rps), default=None)


def _heap_top(folder: CampaignFolder, run_id: str | None) -> HeapTop | None:
    if run_id is None:
        return None
    file = folder.run(run_id) / HEAP_FOLDER / HEAP_TABLE
    if not file.exists():
        return None  # the host gave no profile, or the run was stopped before
    return read_json(file, HeapTop)


def _rows(sites: Sequence[Site], value: Callable[[Site], int]) -> tuple[HeapRow, ...]:
    return tuple(
        HeapRow(place=f"{site.function} ({site.file}:{site.line})", package=site.caused_by, value=float(value(site)))
        for site in sites
    )
