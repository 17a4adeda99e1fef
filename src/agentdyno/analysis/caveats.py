"""What may not be concluded from a campaign: sentences, each for a fact of this one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentdyno.analysis.campaign_runs import CampaignRun
from agentdyno.analysis.intervals import LEAST_ROUNDS
from agentdyno.analysis.metrics import rounded
from agentdyno.contract.campaign import Campaign, LoadName
from agentdyno.contract.comparison import EntryUnderLoad
from agentdyno.contract.run import Reason


def not_to_conclude(
    campaign: Campaign, runs: Sequence[CampaignRun], under_load: Sequence[EntryUnderLoad]
) -> tuple[str, ...]:
    """The general ones that hold for every campaign come last."""
    return (*_of_this_one(campaign, runs, under_load), *_ALWAYS)


_IDLE_SHARE = 0.1  # of CPU per request, from where on a reader must know

_ALWAYS = (
    "Not across machines, nor across campaigns: the figures are of this machine and these hours.",
    "Not quality: the answers of the LLM are not judged, only whether the work was done.",
    "Not what a tuned build could do: each framework is built as its own documentation says.",
    "Each interval holds for itself: of twenty differences that are none, one is expected to look like one.",
)


def _of_this_one(
    campaign: Campaign, runs: Sequence[CampaignRun], under_load: Sequence[EntryUnderLoad]
) -> Iterator[str]:
    measured = [run for run in runs if run.counted and run.summary is not None and run.manifest is not None]
    if any(run.manifest is not None and run.manifest.backend.get("kind") == "mock" for run in measured):
        yield (
            "Not the latency of an application: the LLM is a mock that takes no more time than the workload says, so "
            "that what is left is the framework's."
        )
    if campaign.settings is not None:
        yield (
            f"Not that the backend was started as stated ({campaign.settings}): that is its user's word, and no run "
            "checks it."
        )
    few = sorted({entry.label for entry in under_load if entry.valid_runs < LEAST_ROUNDS})
    if few:
        who = ", ".join(few)
        yield f"Not that {who} differs, or does not: with fewer than {LEAST_ROUNDS} valid rounds there is no interval."
    overloaded = [entry.label for entry in under_load if entry.load is LoadName.STANDARD and entry.overloaded_runs]
    if overloaded:
        yield (
            f"Not from the latency of {', '.join(overloaded)} under the standard load alone: it is of the answers that "
            "were let in. Read goodput and rejections beside it, or the steady load."
        )
    yield from _idle_share(under_load)
    yield from _unequal_work(campaign, measured)
    noisy = sum(any(note.code is Reason.NOISY for note in run.row.notes) for run in measured)
    if noisy:
        yield f"Not small differences of latency: in {noisy} of {len(measured)} counted runs the machine was noisy."
    if any(note.code is Reason.NOT_PINNED for run in measured for note in run.row.notes):
        yield "Not CPU or latency to the per cent: the host had no core of its own."


def _idle_share(under_load: Sequence[EntryUnderLoad]) -> Iterator[str]:
    """Where much of a lean entry's CPU per request is spent between requests."""
    for entry in under_load:
        figures = {figure.metric: figure.median for figure in entry.figures}
        cpu, idle, rate = figures.get("cpu_per_request"), figures.get("idle_cpu"), figures.get("goodput")
        if entry.load is LoadName.STEADY and cpu and idle and rate and idle / rate > _IDLE_SHARE * cpu:
            yield (
                f"Not from the ratio of CPU under the steady load alone: {entry.label} spends {rounded(idle / rate)} "
                f"of its {rounded(cpu)} ms a request between requests, which draws ratios towards 1. The tax is free "
                "of it."
            )
            return


def _unequal_work(campaign: Campaign, measured: Sequence[CampaignRun]) -> Iterator[str]:
    """Entries whose LLM calls per request are not the control's."""
    calls: dict[str, float] = {}
    for run in measured:
        if run.summary is not None and run.summary.ledger.llm_calls is not None:
            calls.setdefault(run.planned.label, run.summary.ledger.llm_calls)
    of_control = calls.get(campaign.entries[0].label)
    others = [
        f"{label} ({count:g})" for label, count in calls.items() if of_control is not None and count != of_control
    ]
    if others:
        yield (
            f"Not the same work for the LLM: {', '.join(sorted(others))} against {of_control:g} LLM calls per request "
            "of the control. With a real LLM each call takes seconds."
        )
