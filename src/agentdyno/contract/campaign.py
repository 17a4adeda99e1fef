"""`campaign.json`: what a campaign was asked for, the order it drew, and how far it has come.

A campaign is a folder `<utc>-<id>` with `campaign.json`, the run folders under `runs/`, and what is made of them:
`comparison.json`, `report.html`, `report.md`, `figures.csv`. Only `campaign.json` and `runs/` are measured; all else is
recomputed from them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from agentdyno.contract.run import SCHEMA_VERSION, LoadPlan
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import Framework

CONTROL = "bare"
NULL_MARK = "#"
PROBE = "probe"  # what the manifest of a Probe's run has for its profile, where a round's run has its LoadName


class LoadName(StrEnum):
    """The two loads of a round.

    steady: one rate that every framework holds, where latency, phases and CPU per request compare like with like.
    standard: the constant rate of the published comparison, where goodput, rejections, memory and GC under pressure
    show.
    """

    STEADY = "steady"
    STANDARD = "standard"


class CampaignStatus(StrEnum):
    """`running` in a folder that nobody writes means that the campaign was killed; it can be resumed."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One contestant. label: the variant's name, with `#2` behind it where the same one runs twice (the null test).

    environment_sha256: of the lock its environment was built from; with equal ones equal code was measured.
    """

    label: str
    variant: str
    framework: Framework
    environment_sha256: str
    distributions: int | None = None


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The short overload that finds out what one entry holds. capacity_rps: its goodput; None: nothing was answered."""

    label: str
    run_id: str
    rate: float
    capacity_rps: float | None


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the plan. number: its place in the order of measuring, from 1. run_id: None until it was measured.

    attempts: run folders of this place that were begun and not finished (crash, Ctrl-C); they are kept and not counted.
    repeat_of: the place of a run that was invalid through the rig or the machine, and is measured once more at the end
    of its round; both are shown, at most one is valid and counts.
    """

    number: int
    round: int
    load: LoadName
    label: str
    run_id: str | None = None
    attempts: tuple[str, ...] = ()
    repeat_of: int | None = None


class Campaign(msgspec.Struct, kw_only=True):
    """One campaign. entries[0] is the control. seed: what the order was drawn from.

    asked: the standard load as asked for. traces: of which requests traces are kept, in the words of TRACES=.
    steady_rps: given; None where it is found: half of what the slowest entry holds. plans: the load of each name, once
    that is known. null_pair: the labels that are
    one adapter twice; None when the null test was switched off. commit: of this program; sources_sha256: of what it
    consists of, so that a resumed campaign is measured by the same code. backend: its kind;
    backend_url: None where the rig starts it; settings: else, those that its user states. idle_wait_s: after each
    run's load, on top of the budget.
    heap_runs: by label, the run whose heap was sampled after the rounds; it is never a timed one.
    searches: by label, the folder of its capacity search, where CURVES=on asked for one.
    """

    schema_version: int = SCHEMA_VERSION
    campaign_id: str
    status: CampaignStatus = CampaignStatus.RUNNING
    agentdyno: str
    commit: str | None = None
    sources_sha256: str
    rig_environment_sha256: str
    started_utc: str
    finished_utc: str | None = None
    command: list[str] = []
    workload: Workload
    workload_hash: str
    asked: LoadPlan
    traces: str
    steady_rps: float | None = None
    heap: bool = True
    curves: bool = False
    admission: int | None
    backend: str = "mock"
    backend_url: str | None = None
    model: str
    settings: str | None = None
    ready_timeout_s: float
    idle_wait_s: float = 0.0
    seed: int
    rounds: int
    entries: list[Entry]
    null_pair: tuple[str, str] | None = None
    probes: list[Probe] = []
    plans: dict[LoadName, LoadPlan] = {}
    runs: list[PlannedRun] = []
    heap_runs: dict[str, str] = {}
    searches: dict[str, str] = {}
    notes: list[str] = []
