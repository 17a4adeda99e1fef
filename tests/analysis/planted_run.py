"""One run's folder with figures that were planted, made as arrays: parquet and JSON as the rig leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import BackendStage, BackendStats, LoadPlan, WorkerEnd
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import Framework
from agentdyno.contract.trace import RecorderLedger
from agentdyno.record.calibration import Calibration
from agentdyno.record.folder import _READING_SCHEMA, _REQUEST_SCHEMA, RunFolder
from agentdyno.record.manifest import Backend, Machine, Manifest, Status
from agentdyno.record.span_table import SPAN_SCHEMA, client_table

MS, S, MB = 1_000_000, 1_000_000_000, 1_000_000
T0 = 7_000 * S
TOOL_CALLS = 3
TIMEOUT_S = 10.0
TRACE_EVERY = 10
PHASES = {"parse": 0.05, "plan": 0.45, "tool": 0.10, "framework": 0.15, "reflect": 0.20, "respond": 0.05}
MACHINE = Machine("Linux", "6.1", "x86_64", "a processor", 2, 8_000_000_000, "3.11.9")
_CLOSE = (0.5, 0.25)  # the sampler looks every quarter of a second, and from half a second before to after the run
_Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Figures:
    """What one run shall show. phases: each one's share of a request, in the order in which they come.

    capacity_rps: above it requests are rejected. tail: sigma of the latency's logarithm. lost: arrivals, from the
    first measured on, that are left out of the records, which makes the run invalid.
    """

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
    calibration_ms: float = 1.5
    lost: int = 0


def load_plan(rate: float, requests: int, seed: int, *, traced: bool) -> LoadPlan:
    """So many measured arrivals, after 20 of warm-up and before 5 of cool-down."""
    return LoadPlan(
        rate=rate,
        warmup_s=20 / rate,
        duration_s=requests / rate,
        cooldown_s=5 / rate,
        timeout_s=TIMEOUT_S,
        max_in_flight=1000,
        seed=seed,
        scenario="chain",
        trace_every=TRACE_EVERY if traced else 0,
    )


def write_run(folder: Path, plan: LoadPlan, framework: Framework, figures: Figures, seed: int, **facts: Any) -> None:
    """Write the run `folder`. facts: fields of its manifest (started_utc, commit, environment, ...)."""
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    requests = _requests(plan, figures, np.random.default_rng(seed))
    start, end = _window_ns(plan)
    area_s = _in_flight_area_s(requests, start, end)
    worker = WorkerEnd(0, True, T0, area_s, start, end, 0.1 * (end - start) / S)
    kept = pa.concat_tables([requests.slice(0, 20), requests.slice(20 + figures.lost)]) if figures.lost else requests
    run.write_requests(kept)
    run.write_resources(_resources(requests, figures, start, end))
    pauses = [figures.gc_ms * share for share in (0.1, 0.2, 0.3, 0.4)] if figures.gc_ms else []
    run.write_gc([(T0 + start + (n + 1) * S // 10_000, round(p * MS), 2, 10) for n, p in enumerate(pauses)])
    run.write_loop(
        [(T0 + start + at, 200_000 + 1000 * (at // 50_000_000 % 50)) for at in range(0, end - start, 50 * MS)]
    )
    if plan.trace_every:
        run.write_spans(_spans(requests, figures), SPAN_SCHEMA)
    run.write_json("backend.json", Backend(kind="mock", model="scripted", stats=_stats(requests)))
    calibration = Calibration(figures.calibration_ms, figures.calibration_ms, figures.calibration_ms, 0.0)
    counts = [int(v) for v in _counts(plan)]
    manifest = Manifest(
        run_id=folder.name,
        status=Status.FINISHED,
        framework=framework,
        workload_hash=facts.get("workload", Workload()).hash(),
        plan=plan,
        scheduled=dict(zip((stage.value for stage in Stage), counts, strict=True)),
        expected_llm_calls=figures.llm_calls,
        expected_tool_calls=TOOL_CALLS,
        backend={"kind": "mock", "model": "scripted", "url": None},
        machine=MACHINE,
        cores={"host": [1], "rest": [0]},
        calibration={"before": calibration, "after": calibration},
        cold_start_ms=800.0,
        rss_idle_bytes=round(figures.rss_mb * 0.6 * MB),
        moments_monotonic_ns={"drained": T0 + end + S // 4},
        t0_monotonic_ns=T0,
        workers=[worker],
        spans_dropped=0 if plan.trace_every else None,
        recorder=RecorderLedger() if plan.trace_every else None,
        **({"started_utc": "2026-01-02T03:04:05+00:00", "workload": Workload()} | facts),
    )
    run.write_json("manifest.json", manifest)
    run.write_json("summary.json", summarise(read_run(folder)))


def _counts(plan: LoadPlan) -> list[float]:
    return [round(seconds * plan.rate) for seconds in (plan.warmup_s, plan.duration_s, plan.cooldown_s)]


def _window_ns(plan: LoadPlan) -> tuple[int, int]:
    return round(plan.warmup_s * S), round((plan.warmup_s + plan.duration_s) * S)


def _requests(plan: LoadPlan, figures: Figures, rng: np.random.Generator) -> pa.Table:
    counts = [int(count) for count in _counts(plan)]
    total = sum(counts)
    index = np.arange(total)
    intended = (index * S / plan.rate).astype(np.int64)
    sent = intended + rng.integers(50_000, 150_000, total)
    held = min(1.0, figures.capacity_rps / plan.rate)
    ok = np.floor((index + 1) * held + 1e-9) > np.floor(index * held + 1e-9)
    middle_ms = figures.latency_ms if held == 1.0 else max(figures.latency_ms, 64_000 / max(figures.capacity_rps, 1.0))
    took_ms = np.minimum(middle_ms * rng.lognormal(0.0, figures.tail, total), TIMEOUT_S * 900)
    done = sent + np.where(ok, took_ms * MS, 300_000).astype(np.int64)
    traced = index % plan.trace_every == 0 if plan.trace_every else np.zeros(total, bool)

    def of_answers(value: int) -> pa.Array:
        return pa.array(np.full(total, value), pa.int64(), mask=~ok)

    columns: dict[str, Any] = {
        "index": index,
        "stage": np.repeat([stage.value for stage in Stage], counts),
        "stage_index": np.concatenate([np.arange(count) for count in counts]),
        "worker": np.zeros(total, np.int64),
        "intended_ns": intended,
        "sent_ns": sent,
        "done_ns": done,
        "outcome": np.where(ok, "ok", "rejected"),
        "status": np.where(ok, 200, 429),
        "reason": pa.array(np.full(total, "http_429"), mask=ok),
        "trace_id": [f"{n + 1:032x}" for n in range(total)],
        "span_id": [f"{n + 1:016x}" for n in range(total)],
        "traced": traced,
        "response_bytes": of_answers(900),
        "llm_calls": of_answers(figures.llm_calls),
        "tool_calls": of_answers(TOOL_CALLS),
        "prompt_bytes": of_answers(figures.prompt_tokens * 5),
        "prompt_tokens": of_answers(figures.prompt_tokens),
        "completion_tokens": of_answers(figures.completion_tokens),
        "retries": of_answers(0),
        "connections": of_answers(0),
    }
    return pa.table({name: pa.array(columns[name], _REQUEST_SCHEMA.field(name).type) for name in _REQUEST_SCHEMA.names})


def _in_flight_area_s(requests: pa.Table, start: int, end: int) -> float:
    begin, done = requests["sent_ns"].to_numpy(), requests["done_ns"].to_numpy()
    return float(np.maximum(np.minimum(done, end) - np.maximum(begin, start), 0).sum()) / S


def _resources(requests: pa.Table, figures: Figures, start: int, end: int) -> pa.Table:
    """The host uses its core evenly, so that CPU per request is just what was planted; memory grows to its peak."""
    done = requests["done_ns"].to_numpy()
    ok = requests["outcome"].to_numpy(zero_copy_only=False) == "ok"
    finished = int((ok & (done >= start) & (done < end)).sum())
    cores = figures.cpu_ms * finished * MS / (end - start)
    early, every = _CLOSE
    times = np.arange(-early, end / S + 2 * early, every)
    grown = np.clip(times * S / end, 0.0, 1.0)
    rss = (figures.rss_mb * MB * (0.6 + 0.4 * grown)).astype(np.int64)
    looks = len(times)
    readings: dict[str, Any] = {
        name: pa.nulls(looks, _READING_SCHEMA.field(name).type) for name in _READING_SCHEMA.names
    }
    readings |= {
        "rss_bytes": rss,
        "rss_peak_bytes": rss,
        "pss_bytes": rss * 9 // 10,
        "private_dirty_bytes": rss * 8 // 10,
        "cpu_user_s": cores * 0.8 * (times + early),
        "cpu_system_s": cores * 0.2 * (times + early),
        "run_queue_wait_s": np.zeros(looks),
    }
    head: dict[str, Any] = {
        "monotonic_ns": (T0 + times * S).astype(np.int64),
        "look": np.arange(looks),
        "role": np.full(looks, "host"),
        "pid": np.full(looks, 100),
    }
    columns = {name: pa.array(readings[name], _READING_SCHEMA.field(name).type) for name in _READING_SCHEMA.names}
    return pa.table({name: pa.array(value) for name, value in head.items()} | columns)


def _stats(requests: pa.Table) -> BackendStats:
    """The mock has served just what the host has counted."""
    stages = {}
    for stage in Stage:
        rows = requests.filter(pa.compute.equal(requests["stage"], stage.value))
        sums = {
            name: int(pa.compute.sum(rows[name]).as_py() or 0)
            for name in ("prompt_bytes", "prompt_tokens", "completion_tokens", "tool_calls")
        }
        stages[stage.letter] = BackendStage(calls=int(pa.compute.sum(rows["llm_calls"]).as_py() or 0), **sums)
    return BackendStats(stages, 0, 8, 0)


def _spans(requests: pa.Table, figures: Figures) -> Iterator[pa.Table]:
    """Of each traced answer, one after the other: parse, the planning calls, the tools, framework, reflect, respond."""
    answered = requests.filter(pa.compute.and_(requests["traced"], pa.compute.equal(requests["outcome"], "ok")))
    columns = ("trace_id", "span_id", "sent_ns", "done_ns")
    rows = [
        span
        for row in zip(*(answered[name].to_pylist() for name in columns), strict=True)
        for span in _of_request(*row, figures)
    ]
    yield pa.table(list(zip(*rows, strict=True)) if rows else [[]] * len(SPAN_SCHEMA), schema=SPAN_SCHEMA)
    yield client_table(requests, T0)


def _of_request(trace_id: str, parent: str, sent: int, done: int, figures: Figures) -> Iterator[tuple[Any, ...]]:
    kinds = {"plan": "chat" if figures.llm_calls > 1 else "planning", "tool": "tool", "reflect": "chat"}
    parts = {"plan": max(1, figures.llm_calls - 1), "tool": TOOL_CALLS, "reflect": 1}
    number = 0
    root = f"{trace_id[-12:]}0000"

    def span(above: str, kind: str, name: str, phase: str | None, start: float, end: float) -> tuple[Any, ...]:
        nonlocal number
        number += 1
        span_id = root if kind == "request" else f"{trace_id[-12:]}{number:04x}"
        service = "backend" if kind == "served" else "host"
        return (trace_id, span_id, above, service, kind, name, phase, T0 + int(start), T0 + int(end), None, "{}")

    yield span(parent, "request", "invoke_agent", None, sent, done)
    at, whole = float(sent), float(done - sent)
    for phase, share in figures.phases.items():
        pieces = parts.get(phase, 0)
        each = whole * share / max(1, pieces)
        for n in range(pieces):
            begin, end = at + n * each, at + (n + 1) * each
            made = span(root, kinds[phase], kinds[phase], phase, begin, end)
            yield made
            if kinds[phase] == "chat":
                yield span(made[1], "served", "served", None, begin + each / 4, end - each / 4)
        at += whole * share
