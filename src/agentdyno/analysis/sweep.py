"""A sweep from its raw files: each tier's times, success, peaks, and whether it left anything behind."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agentdyno.analysis.percentiles import percentile, samples_needed
from agentdyno.analysis.run_data import NS_PER_MS, NS_PER_S, DataError, read_json
from agentdyno.contract.run import Outcome
from agentdyno.contract.sweep import Clean, Levels, SweepPlan, SweepResult, Tier, TierFacts, TierRecord, Waits
from agentdyno.record.manifest import Manifest
from agentdyno.record.sampler import Sample

PLAN_FILE, RESULT_FILE, FACTS_FILE, TIERS_FOLDER = "plan.json", "sweep.json", "tier.json", "tiers"
RECORDS_FILE, RESOURCES_FILE = "requests-0.jsonl", "resources.jsonl"
_MB = 1e6
_PEAK_WINDOW_NS = NS_PER_S


def read_sweep(folder: Path) -> SweepResult:
    """Compute `sweep.json` from everything else in the folder. Raises DataError."""
    plan = read_json(folder / PLAN_FILE, SweepPlan)
    manifest = read_json(folder / "manifest.json", Manifest)
    paths = [path for path in sorted((folder / TIERS_FOLDER).glob("*")) if (path / FACTS_FILE).exists()]
    raw = (PLAN_FILE, "manifest.json", FACTS_FILE, RECORDS_FILE, RESOURCES_FILE)
    files = sorted(file for file in folder.rglob("*") if file.name in raw)
    return SweepResult(
        framework=manifest.framework,
        workload_hash=manifest.workload_hash,
        admission=manifest.admission,
        plan=plan,
        tiers=tuple(read_tier(path, stream=plan.stream) for path in paths),
        complete=len(paths) == len(plan.concurrency) and not manifest.findings,
        findings=tuple(manifest.findings),
        files={file.relative_to(folder).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files},
    )


def read_tier(path: Path, *, stream: bool) -> Tier:
    """One tier from its folder. Raises DataError."""
    facts = read_json(path / FACTS_FILE, TierFacts)
    records: list[TierRecord] = _lines(path / RECORDS_FILE, TierRecord)
    samples: list[Sample] = [each for each in _lines(path / RESOURCES_FILE, Sample) if each.role == "host"]
    good = [record for record in records if record.outcome is Outcome.OK]
    outcomes = Counter(record.outcome.value for record in records)
    submit = _waits([(r.head_ns, r.sent_ns) for r in good])
    first = _waits([(r.first_token_ns, r.sent_ns) for r in good])
    total = _waits([(r.done_ns, r.sent_ns) for r in good])
    used_s = _cpu_seconds(samples)
    return Tier(
        users=facts.users,
        requests_each=facts.requests_each,
        arrivals=facts.users * facts.requests_each,
        ok=len(good),
        outcomes={outcome.value: outcomes[outcome.value] for outcome in Outcome},
        failure_reasons=dict(Counter(record.reason for record in records if record.reason is not None)),
        seconds=(max(r.done_ns for r in records) - min(r.sent_ns for r in records)) / NS_PER_S if records else 0.0,
        submit_ms=submit,
        first_token_ms=first,
        total_ms=total,
        rss_before_mb=_mb(facts.before.rss_bytes),
        rss_peak_mb=_mb(max(_looks(samples, "rss_bytes").values(), default=None)),
        rss_after_mb=_mb(facts.looks[-1].rss_bytes if facts.looks else None),
        cpu_peak_percent=_cpu_peak_percent(samples),
        cpu_ms_per_request=used_s * 1000 / len(good) if used_s is not None and good else None,
        tasks_before=facts.before.tasks,
        clean=cleanliness(facts),
        notes=tuple(_notes(len(good), stream)),
    )


def cleanliness(facts: TierFacts) -> Clean:
    """What the looks after a tier say, against the level before it."""
    sessions = facts.users * facts.requests_each
    last = facts.looks[-1] if facts.looks else None
    left = [] if last is None else more_than(facts.before, last)
    if facts.deleted < sessions:
        left.append(f"{sessions - facts.deleted} of {sessions} sessions not deleted: {facts.not_deleted}")
    seen = last is not None and not left
    seconds = (last.monotonic_ns - facts.ended_ns) / NS_PER_S if last is not None and seen else None
    return Clean(clean=seen, seconds=seconds, deleted=facts.deleted, left=tuple(left))


def more_than(before: Levels, now: Levels) -> list[str]:
    """What there is more of than before, in words; what cannot be read is not complained of."""
    pairs = (
        ("requests in flight in the host", 0, now.host_in_flight),
        ("calls in flight in the mock LLM", 0, now.llm_in_flight),
        ("asyncio tasks", before.tasks, now.tasks),
        ("open sockets", before.open_sockets, now.open_sockets),
    )
    return [f"{now - was} {what}" for what, was, now in pairs if was is not None and now is not None and now > was]


def _waits(pairs: list[tuple[int | None, int]]) -> Waits:
    ms = np.array([(at - sent) / NS_PER_MS for at, sent in pairs if at is not None])
    if not ms.size:
        return Waits(0)
    return Waits(int(ms.size), percentile(ms, 0.5), percentile(ms, 0.95), float(ms.max()))


def _notes(good: int, stream: bool) -> list[str]:
    notes = [
        f"{good} right answers are too few for {name}, which needs {samples_needed(quantile)}."
        for name, quantile in (("p50", 0.5), ("p95", 0.95))
        if good < samples_needed(quantile)
    ]
    return notes if stream else [*notes, "The adapter does not stream: there is no first token to time."]


def _looks(samples: list[Sample], *names: str) -> dict[int, float]:
    """The sum over processes and columns of each look at which all of them could be read."""
    by_look: dict[int, list[float | None]] = {}
    for sample in samples:
        by_look.setdefault(sample.look, []).extend(getattr(sample.reading, name) for name in names)
    return {look: sum(v for v in values if v is not None) for look, values in by_look.items() if None not in values}


def _cpu_curve(samples: list[Sample]) -> list[tuple[int, float]]:
    """The processes' CPU so far, s, at each look, by its time."""
    at = {sample.look: sample.monotonic_ns for sample in samples}
    exact = not any(sample.reading.cpu_s is None for sample in samples)  # the two counts must not be mixed
    names = ("cpu_s",) if exact else ("cpu_user_s", "cpu_system_s")
    return sorted((at[look], used_s) for look, used_s in _looks(samples, *names).items())


def _cpu_seconds(samples: list[Sample]) -> float | None:
    curve = _cpu_curve(samples)
    return curve[-1][1] - curve[0][1] if len(curve) > 1 else None


def _cpu_peak_percent(samples: list[Sample]) -> float | None:
    """Over the busiest stretch of a second or a little more; over the whole when it is shorter."""
    curve = _cpu_curve(samples)
    if len(curve) < 2:
        return None
    peaks = [(end[1] - start[1]) / (end[0] - start[0]) for start, end in _stretches(curve)]
    return 100 * NS_PER_S * max(peaks)


def _stretches(curve: list[tuple[int, float]]) -> list[tuple[tuple[int, float], tuple[int, float]]]:
    found = []
    for number, start in enumerate(curve):
        end = next((later for later in curve[number + 1 :] if later[0] - start[0] >= _PEAK_WINDOW_NS), None)
        if end is not None:
            found.append((start, end))
    return found or [(curve[0], curve[-1])]


def _mb(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else size_bytes / _MB


def _lines(file: Path, kind: type[Any]) -> list[Any]:
    """Every whole line; one that was cut off at the end by a kill is left out."""
    try:
        text = file.read_bytes()
        return [msgspec.json.decode(line, type=kind) for line in text[: text.rfind(b"\n") + 1].splitlines()]
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise DataError(f"{file} holds a line that is no record of this version: {error}.") from error
