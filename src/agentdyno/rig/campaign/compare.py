"""`agentdyno compare`: a campaign as a person asks for it, from the names to the report's path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console

from agentdyno import __version__
from agentdyno.analysis.comparison import compare_campaign
from agentdyno.contract.adapter import find_variants
from agentdyno.contract.campaign import Campaign, CampaignStatus
from agentdyno.contract.comparison import Comparison
from agentdyno.contract.run import ExitCode, LoadPlan
from agentdyno.contract.summary import BackendFacts
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.manifest import source_commit
from agentdyno.report.campaign_report import REPORT_FILE, write_report
from agentdyno.report.comparison_terminal import print_comparison
from agentdyno.rig.campaign.identity import differences, entry, places_apart, rig_sha256, sources_sha256
from agentdyno.rig.campaign.life import CampaignRunner, Measure, here
from agentdyno.rig.campaign.plan import (
    DEFAULT_DURATION_S,
    DEFAULT_ROUNDS,
    DEFAULT_WARMUP_S,
    MAX_ROUNDS,
    Times,
    labels_of,
    variant_of,
    within_budget,
)
from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.environments.frameworks import adapters_root, resolve
from agentdyno.rig.native_spans import refuse_native_spans
from agentdyno.rig.option_values import OptionError, rate_rps, seconds, whole
from agentdyno.rig.options import BenchOptions, Words, observed_folder, read
from agentdyno.rig.vllm_cpu import refuse_vllm_cpu

MAX_TIME_S = 7 * 24 * 3600.0
_OUT = "campaigns"
_PLAIN_WIDTH = 200
_TRACES = "20/s"  # enough for phases, and small enough to publish


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignWords:
    """The options of a campaign as they were written; None: not given. bench: those of each run."""

    names: Sequence[str]
    rounds: str | None = None
    time: str | None = None
    steady_rate: str | None = None
    null: str | None = None
    heap: str | None = None
    curves: str | None = None
    resume: Path | None = None
    bench: Words


@dataclass(frozen=True, slots=True)
class Where:
    """Where a campaign's runs take place, and what is different there; without anything: this machine.

    measure: how one is measured; understand: what reads its options; target: the word of `make` for the place;
    backend: a cluster's, which is everybody's there; None where each campaign chooses its own.
    """

    measure: Measure = here
    understand: Callable[[Words], BenchOptions] = read
    target: str = ""
    backend: BackendFacts | None = None


def compare(words: CampaignWords, where: Where = Where()) -> ExitCode:
    """Run or resume the campaign, compare and report; the campaign folder's path is the last line on stdout.

    VALID when the comparison can be believed, INVALID_RUN when it cannot, INTERRUPTED with what is measured kept.
    Raises OptionError, AdapterError, SetupError or FolderError for what the user can mend.
    """
    folder, campaign = _begun(words, where) if words.resume is None else _resumed(words, words.resume, where)
    status = CampaignRunner(folder, campaign, where.measure, observed_folder(words.bench.observe)).run()
    if status is CampaignStatus.INTERRUPTED:
        say(f"What was measured is kept. Go on with: make compare {where.target}RESUME={folder.path}")
        sys.stdout.write(f"{folder.path}\n")
        return ExitCode.INTERRUPTED
    say("computing every figure from the raw files")
    comparison = compare_campaign(folder)
    write_report(folder, comparison)
    print_comparison(comparison, _console())
    say(f"report: {folder.path / REPORT_FILE}")
    sys.stdout.write(f"{folder.path}\n")
    return ExitCode.VALID if can_be_believed(comparison) else ExitCode.INVALID_RUN


def _console() -> Console:
    """As wide as the terminal; where nobody looks at the width, wide enough for every entry's name."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PLAIN_WIDTH, soft_wrap=False)


def can_be_believed(comparison: Comparison) -> bool:
    """Whether every entry has a run that counts under each load, and the null test, where there was one that could
    tell anything, found no difference.
    """
    everyone = all(under.valid_runs for under in comparison.under_load)
    null = comparison.null_test
    return comparison.complete and everyone and (null is None or null.passed is not False)


def _begun(words: CampaignWords, where: Where) -> tuple[CampaignFolder, Campaign]:
    """A new campaign, nothing of it measured yet."""
    labels, null_pair = labels_of(_names(words.names), null_test=_switch("NULL", words.null or "on"))
    for label in labels:
        resolve(variant_of(label))  # a name that is not known is said before anything is built
    traces = words.bench.traces or _TRACES
    bench = replace(
        words.bench,
        framework=labels[0],
        out=words.bench.out or _OUT,
        traces=traces,
    )
    if words.bench.profile is None:
        bench = replace(
            bench,
            warmup=words.bench.warmup or f"{DEFAULT_WARMUP_S:g}s",
            duration=words.bench.duration or f"{DEFAULT_DURATION_S:g}s",
        )
    options = where.understand(bench)
    refuse_native_spans(options, "compare")
    refuse_vllm_cpu(options, "compare")
    heap, curves = _switch("HEAP", words.heap or "on"), _switch("CURVES", words.curves or "off")
    apart = len({variant_of(label) for label in labels})
    times = _times(words, options.plan, len(labels), heaps=apart * heap, searches=apart * curves)
    steady_rps = None if words.steady_rate is None else rate_rps("STEADY_RATE", words.steady_rate)
    entries = [entry(label) for label in labels]
    folder = CampaignFolder.create(options.out)
    campaign = Campaign(
        campaign_id=folder.campaign_id,
        agentdyno=__version__,
        commit=source_commit(ROOT),
        sources_sha256=sources_sha256(labels),
        rig_environment_sha256=rig_sha256(),
        started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        command=sys.argv[1:],
        workload=options.workload,
        workload_hash=options.workload.hash(),
        asked=msgspec.structs.replace(options.plan, warmup_s=times.warmup_s, duration_s=times.duration_s),
        traces=traces,
        steady_rps=steady_rps,
        heap=heap,
        curves=curves,
        admission=options.admission,
        backend=options.backend,
        backend_url=options.backend_url,
        model=options.model,
        settings=options.settings,
        ready_timeout_s=options.ready_timeout_s,
        idle_wait_s=options.idle_wait_s,
        seed=options.workload.seed,
        rounds=times.rounds,
        entries=entries,
        null_pair=null_pair,
    )
    minutes = times.campaign_s(len(labels)) / 60
    say(f"{times.rounds} rounds of {', '.join(labels)} under two loads, each {times.duration_s:g} s: {minutes:.0f} min")
    return folder, campaign


def _resumed(words: CampaignWords, path: Path, where: Where) -> tuple[CampaignFolder, Campaign]:
    """A campaign that was begun, when this checkout would measure the rest of it in the same way."""
    free = ("framework", "observe")
    given = [each.name for each in fields(words.bench) if each.name not in free and getattr(words.bench, each.name)]
    own = (words.names, words.rounds, words.time, words.steady_rate, words.null, words.heap, words.curves)
    if given or any(own):
        raise OptionError("RESUME goes on with a campaign as it was begun; leave the other options out.")
    folder = CampaignFolder(path)
    campaign = folder.read()
    found = [*differences(campaign), *places_apart(folder, campaign, where.backend)]
    if found:
        raise OptionError(f"{path} cannot be resumed here, because runs of two kinds would be mixed. {' '.join(found)}")
    left = sum(run.run_id is None for run in campaign.runs)
    say(f"{path}: {len(campaign.runs) - left} runs are kept, {left if campaign.runs else 'all'} are left")
    return folder, campaign


def _names(names: Sequence[str]) -> list[str]:
    """As they were given; every variant there is when none was."""
    given = [name for text in names for name in text.split()]
    return given or sorted(find_variants(adapters_root()))


def _times(words: CampaignWords, plan: LoadPlan, entries: int, *, heaps: int, searches: int) -> Times:
    rounds = None if words.rounds is None else whole("ROUNDS", words.rounds, 1, MAX_ROUNDS)
    if words.time is None:
        return Times(rounds or DEFAULT_ROUNDS, plan.duration_s, plan.warmup_s)
    if words.bench.duration is not None:
        raise OptionError("TIME chooses how long each run takes; leave DURATION out, or TIME.")
    budget_s = seconds("TIME", words.time, MAX_TIME_S)
    return within_budget(budget_s, entries, rounds, plan.warmup_s, heaps=heaps, searches=searches)


def _switch(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise OptionError(f"{name}={text!r} is neither on nor off.")
    return text == "on"
