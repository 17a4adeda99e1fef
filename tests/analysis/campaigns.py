"""Campaigns of which every figure is known beforehand, on disk as the rig leaves them: for statistics, report, audit.

folder = write_campaign(tmp_path, [Planted("bare"), Planted("bare#2"), Planted("slow", cpu_ms=20.0)], rounds=3)
comparison = compare_campaign(folder)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from agentdyno.analysis.heap import HeapTop, Kind, Site
from agentdyno.contract.campaign import NULL_MARK, Campaign, CampaignStatus, Entry, LoadName, PlannedRun, Probe
from agentdyno.contract.run import LoadPlan
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import Framework
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.folder import _NOT_IN_A_NAME, RunFolder
from agentdyno.record.heap_folder import HEAP_FOLDER
from tests.analysis.planted_run import PHASES, Figures, load_plan, write_run

Place = tuple[int, LoadName, str]
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STEADY_RATE, STANDARD_RATE, PROBE_RATE = 20.0, 200.0, 400.0
PROBE_REQUESTS = 100
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Planted:
    """One entry and its true figures; each run's are these times its round's and its own noise (log-normal).

    capacity_rps: above it requests are rejected (the standard load is 200/s). tail: sigma of the latency's logarithm.
    *_noise: sigma of the logarithm from run to run.
    """

    label: str
    cpu_ms: float = 2.0
    latency_ms: float = 5.0
    tail: float = 0.3
    rss_mb: float = 100.0
    gc_ms: float = 20.0
    capacity_rps: float = 1000.0
    llm_calls: int = 4
    prompt_tokens: int = 1200
    completion_tokens: int = 160
    phases: dict[str, float] = field(default_factory=lambda: dict(PHASES))
    version: str | None = "1.0.0"
    cpu_noise: float = 0.01
    latency_noise: float = 0.02
    rss_noise: float = 0.005
    gc_noise: float = 0.1

    @property
    def variant(self) -> str:
        """The label without the mark of the null test."""
        return self.label.partition(NULL_MARK)[0]

    @property
    def framework(self) -> Framework:
        """As the manifest has it."""
        return Framework(self.variant, self.version, "default", "llm" if self.llm_calls > 1 else "code")

    def figures(self, rng: np.random.Generator, round_factor: float, *, lost: int = 0) -> Figures:
        """Of one run."""

        def drawn(value: float, noise: float) -> float:
            return float(value * rng.lognormal(0.0, noise)) if noise else value

        return Figures(
            cpu_ms=drawn(self.cpu_ms, self.cpu_noise) * round_factor,
            latency_ms=drawn(self.latency_ms, self.latency_noise) * round_factor,
            tail=self.tail,
            rss_mb=drawn(self.rss_mb, self.rss_noise),
            gc_ms=drawn(self.gc_ms, self.gc_noise) * round_factor,
            capacity_rps=self.capacity_rps / round_factor,
            llm_calls=self.llm_calls,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            phases=self.phases,
            calibration_ms=1.5 * round_factor,
            lost=lost,
        )


CONTROL_AND_NULL = (Planted("bare"), Planted("bare#2"))
USUAL = (
    *CONTROL_AND_NULL,
    Planted("lean", cpu_ms=1.9, latency_ms=4.0, llm_calls=1, prompt_tokens=276, rss_mb=105.0),
    Planted("heavy", cpu_ms=30.0, latency_ms=60.0, rss_mb=310.0, gc_ms=400.0, capacity_rps=31.0, prompt_tokens=1900),
)


def write_campaign(
    path: Path,
    entries: Sequence[Planted] = USUAL,
    rounds: int = 3,
    *,
    requests: int = 600,
    loads: Sequence[LoadName] = tuple(LoadName),
    seed: int = 1,
    round_noise: float = 0.02,
    traced: bool = True,
    probes: bool = True,
    invalid: Collection[Place] = (),
    repeated: Collection[Place] = (),
    missing: Collection[Place] = (),
    heap_profiles: Collection[str] = (),
    campaign_id: str = "20260102T030405Z-abcdef",
) -> CampaignFolder:
    """Write a campaign under `path` and return its folder; every round has every entry in a drawn order.

    entries[0] is the control; one with `#` in its label makes the null test. requests: measured arrivals of a run.
    invalid: runs that lost arrivals. repeated: such runs that were measured once more, well. missing: runs that were
    not measured yet. heap_profiles: labels that have a heap run. The same arguments make the same files.
    """
    folder = CampaignFolder(path / campaign_id)
    folder.runs.mkdir(parents=True)
    rates = {LoadName.STEADY: STEADY_RATE, LoadName.STANDARD: STANDARD_RATE}
    plans = {load: load_plan(rates[load], requests, seed, traced=traced) for load in loads}
    rng = np.random.default_rng(seed)
    factors = [float(rng.lognormal(0.0, round_noise)) if round_noise else 1.0 for _ in range(rounds)]
    runs = _drawn(entries, rounds, loads, rng)
    spoilt = [run for run in runs if (run.round, run.load, run.label) in repeated]
    runs += [
        msgspec.structs.replace(run, number=len(runs) + n, repeat_of=run.number) for n, run in enumerate(spoilt, 1)
    ]
    by_label = {entry.label: entry for entry in entries}
    for at, run in enumerate(runs):
        place = (run.round, run.load, run.label)
        if place in missing:
            continue
        runs[at] = msgspec.structs.replace(run, run_id=f"{run.number:03d}-{_named(run.label)}-{run.load.value}")
        again = run.repeat_of is not None
        lost = 7 if place in invalid or (place in repeated and not again) else 0
        factor, key = factors[run.round - 1], (seed, *place, again)
        _write(folder, runs[at].run_id or "", by_label[run.label], plans[run.load], factor, key, lost, run.number)
    probed = [_probe(folder, entry, seed) for entry in entries if NULL_MARK not in entry.label] if probes else []
    campaign = _campaign(folder, entries, rounds, seed, plans, runs, probed)
    campaign.heap_runs = {e.label: _heap_run(folder, e, seed) for e in entries if e.label in heap_profiles}
    folder.write(campaign)
    return folder


def _named(label: str) -> str:
    """As a part of a folder's name, the way the rig makes it."""
    return _NOT_IN_A_NAME.sub("_", label)


def _drawn(
    entries: Sequence[Planted], rounds: int, loads: Sequence[LoadName], rng: np.random.Generator
) -> list[PlannedRun]:
    places = [(number, load, entry.label) for number in range(1, rounds + 1) for load in loads for entry in entries]
    each = len(loads) * len(entries)
    order = [number * each + int(at) for number in range(rounds) for at in rng.permutation(each)]
    return [
        PlannedRun(number=n, round=places[at][0], load=places[at][1], label=places[at][2])
        for n, at in enumerate(order, 1)
    ]


def _write(
    folder: CampaignFolder,
    run_id: str,
    entry: Planted,
    plan: LoadPlan,
    factor: float,
    key: tuple[object, ...],
    lost: int,
    number: int,
    **more: Any,
) -> None:
    drawn = crc32(repr(tuple(str(part) for part in key)).encode())
    figures = entry.figures(np.random.default_rng(drawn), factor, lost=lost)
    started = (START + timedelta(seconds=60 * number)).isoformat(timespec="seconds")
    environment = {"lock_sha256": lock_sha256(entry), "python": "CPython 3.11.9", "distribution_count": 12}
    write_run(
        folder.run(run_id), plan, entry.framework, figures, drawn,
        started_utc=started, commit=COMMIT, admission=64, environment=environment,
        rig_environment={"lock_sha256": "b" * 64, "python": "CPython 3.11.9"}, **more,
    )  # fmt: skip


def lock_sha256(entry: Planted) -> str:
    """Of the entry's environment; equal for an adapter and its double."""
    return f"{crc32(entry.variant.encode()):08x}" * 8


def _probe(folder: CampaignFolder, entry: Planted, seed: int) -> Probe:
    run_id = f"probe-{_named(entry.label)}"
    plan = load_plan(PROBE_RATE, PROBE_REQUESTS, seed, traced=False)
    _write(folder, run_id, entry, plan, 1.0, (seed, "probe", entry.label), 0, 0)
    return Probe(label=entry.label, run_id=run_id, rate=PROBE_RATE, capacity_rps=min(PROBE_RATE, entry.capacity_rps))


def _heap_run(folder: CampaignFolder, entry: Planted, seed: int) -> str:
    """A run under the profiler, with a top ten of three places."""
    run_id = f"heap-{_named(entry.label)}"
    plan = load_plan(STEADY_RATE, PROBE_REQUESTS, seed, traced=False)
    profiler = {"profiler": "memalloc", "sample_bytes": 32_768}
    _write(folder, run_id, entry, plan, 1.0, (seed, "heap", entry.label), 0, 0, heap_profile=profiler)
    (folder.run(run_id) / HEAP_FOLDER).mkdir()
    RunFolder(folder.run(run_id)).write_json(f"{HEAP_FOLDER}/top10.json", heap_top(entry))
    return run_id


def heap_top(entry: Planted) -> HeapTop:
    """Three places that hold half, a third and a sixth of the entry's memory."""
    sites = [
        Site(
            *(f"make_{what}", f"site-packages/{entry.variant}/{what}.py", line, entry.variant, Kind.FRAMEWORK),
            *(entry.variant, Kind.FRAMEWORK, held, held // 100, held * 3, held // 20, held // 10, held // 1000),
        )
        for what, line, held in (
            (what, 10 * share, round(entry.rss_mb * 1e6 / share)) for what, share in (("a", 2), ("b", 3), ("c", 6))
        )
    ]
    held = sum(site.inuse_bytes for site in sites)
    whole = (held, held // 100, held * 3, held // 20, held // 10)
    return HeapTop(
        **dict(
            zip(("inuse_bytes", "inuse_objects", "alloc_bytes", "alloc_objects", "growth_bytes"), whole, strict=True)
        ),
        sample_bytes=32_768,
        seconds=30.0,
        by_inuse_bytes=sites,
        by_alloc_objects=sites,
        by_growth_bytes=sites,
        packages=[],
        kinds={Kind.FRAMEWORK.value: held},
    )


def _campaign(
    folder: CampaignFolder,
    entries: Sequence[Planted],
    rounds: int,
    seed: int,
    plans: dict[LoadName, LoadPlan],
    runs: list[PlannedRun],
    probes: list[Probe],
) -> Campaign:
    complete = all(run.run_id is not None for run in runs)
    null = next((entry.label for entry in entries if NULL_MARK in entry.label), None)
    facts: dict[str, Any] = {
        "status": CampaignStatus.FINISHED if complete else CampaignStatus.INTERRUPTED,
        "finished_utc": (START + timedelta(hours=1)).isoformat(timespec="seconds") if complete else None,
        "null_pair": None if null is None else (null.partition(NULL_MARK)[0], null),
    }
    return Campaign(
        campaign_id=folder.campaign_id,
        agentdyno="0.1.0",
        commit=COMMIT,
        sources_sha256="c" * 64,
        rig_environment_sha256="b" * 64,
        started_utc=START.isoformat(timespec="seconds"),
        command=["compare", "--frameworks", " ".join(entry.label for entry in entries), "--rounds", str(rounds)],
        workload=Workload(),
        workload_hash=Workload().hash(),
        asked=plans.get(LoadName.STANDARD) or load_plan(STANDARD_RATE, PROBE_REQUESTS, seed, traced=True),
        traces="20/s",
        admission=64,
        model="scripted",
        ready_timeout_s=60.0,
        seed=seed,
        rounds=rounds,
        entries=[
            Entry(
                label=e.label,
                variant=e.variant,
                framework=e.framework,
                environment_sha256=lock_sha256(e),
                distributions=12,
            )
            for e in entries
        ],
        probes=probes,
        plans=plans,
        runs=runs,
        **facts,
    )
