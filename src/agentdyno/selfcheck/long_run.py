"""A run of very many requests, made and not measured: what the analysis is timed on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from agentdyno.contract.campaign import CONTROL, Campaign, Entry, LoadName, PlannedRun
from agentdyno.contract.phases import Phase
from agentdyno.contract.proof import STEPS, Stage
from agentdyno.contract.run import LoadPlan, Outcome, RequestRecord, WorkerEnd
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import Framework
from agentdyno.contract.trace import RecorderLedger, Service
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Manifest, Status, machine_facts
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import INTERVAL_S, Sample
from agentdyno.record.span_table import SPAN_SCHEMA
from agentdyno.record.spans import SpanKind

RATE_RPS = 200.0
TRACE_EVERY = 10  # 20 traces a second, as in a campaign
_NS = 1_000_000_000
_T0 = 1_000 * _NS
_FRAMEWORK = Framework(CONTROL, None, "default", "llm")
_LOCK = "0" * 64
_LINES = 10_000
_CALLS = len(STEPS) + 1
# Slots of a request's spans, and where each begins and ends, as shares of the request.
_ROOT = 0
_CHATS = [(1 + call, 0.05 + 0.22 * call, 0.20 + 0.22 * call) for call in range(_CALLS)]
_TOOLS = [(1 + _CALLS + tool, 0.21 + 0.22 * tool, 0.25 + 0.22 * tool) for tool in range(len(STEPS))]
_SERVED_FROM = 1 + _CALLS + len(STEPS)


def make_campaign(parent: Path, requests: int) -> tuple[CampaignFolder, RunFolder]:
    """A campaign of one run, whose requests are still lines of JSON, as a run has just ended. Raises OSError."""
    campaign = CampaignFolder.create(parent)
    run = RunFolder.create(campaign.runs, CONTROL)
    plan = LoadPlan(
        rate=RATE_RPS,
        warmup_s=0.0,
        duration_s=requests / RATE_RPS,
        cooldown_s=0.0,
        timeout_s=10.0,
        max_in_flight=1000,
        seed=1,
        scenario="chain",
        trace_every=TRACE_EVERY,
    )
    _write_lines(run.raw / "requests-0.jsonl", requests)
    end_ns = round(plan.duration_s * _NS)
    _write_samples(run, end_ns)
    run.write_loop([(_T0 + at, 100_000) for at in range(0, end_ns, 50_000_000)])
    run.write_gc([(_T0 + at, 1_000_000, 2, 100) for at in range(0, end_ns, _NS)])
    run.write_spans(_spans(requests), SPAN_SCHEMA)
    area_s = sum(_took_ns(index) for index in range(requests)) / _NS
    run.write_json("manifest.json", _manifest(run, plan, requests, WorkerEnd(0, True, _T0, area_s, 0, end_ns, 1.0)))
    campaign.write(_campaign(campaign, run, plan))
    return campaign, run


def _took_ns(index: int) -> int:
    """Between 5 and 15 ms, no two neighbours alike; the last few end within the window."""
    return 5_000_000 + index * 7919 % 10_007 * 1000


def _write_lines(file: Path, requests: int) -> None:
    gap_ns = round(_NS / RATE_RPS)
    encode = msgspec.json.Encoder().encode_lines
    with file.open("wb") as lines:
        for first in range(0, requests, _LINES):
            lines.write(encode([_record(index, gap_ns) for index in range(first, min(first + _LINES, requests))]))


def _record(index: int, gap_ns: int) -> RequestRecord:
    sent_ns = index * gap_ns + 100_000
    return RequestRecord(
        index=index,
        stage=Stage.MEASURE.value,
        stage_index=index,
        worker=0,
        intended_ns=index * gap_ns,
        sent_ns=sent_ns,
        done_ns=sent_ns + _took_ns(index),
        outcome=Outcome.OK,
        status=200,
        trace_id=f"{index + 1:032x}",
        span_id=f"{index + 1:016x}",
        traced=index % TRACE_EVERY == 0,
        response_bytes=900,
        llm_calls=_CALLS,
        tool_calls=len(STEPS),
        prompt_bytes=9000,
        prompt_tokens=2000,
        completion_tokens=120,
        retries=0,
        connections=0,
    )


def _write_samples(run: RunFolder, end_ns: int) -> None:
    """The host at four looks a second; it uses a third of its core."""
    looks = [
        Sample(
            _T0 + at_ns,
            look,
            "host",
            1,
            Reading(
                rss_bytes=80_000_000, rss_peak_bytes=80_000_000, cpu_user_s=look * INTERVAL_S / 3, cpu_system_s=0.0
            ),
        )
        for look, at_ns in enumerate(range(-_NS, end_ns + 2 * _NS, round(INTERVAL_S * _NS)))
    ]
    (run.raw / "resources.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(looks))
    run.write_resources(run.samples())


def _spans(requests: int) -> Iterator[pa.Table]:
    """Eight spans of the host and four of the mock for each traced request, some thousands of requests at a time."""
    gap_ns = round(_NS / RATE_RPS)
    traced = range(0, requests, TRACE_EVERY)
    for first in range(0, len(traced), _LINES):
        rows = [span for index in traced[first : first + _LINES] for span in _of_request(index, gap_ns)]
        yield pa.table(list(zip(*rows, strict=True)), schema=SPAN_SCHEMA)


def _of_request(index: int, gap_ns: int) -> Iterator[tuple[str | int | None, ...]]:
    trace_id, start_ns, took_ns = f"{index + 1:032x}", _T0 + index * gap_ns + 100_000, _took_ns(index)

    def span(
        slot: int, above: int | None, kind: SpanKind, phase: Phase | None, begin: float, end: float
    ) -> tuple[str | int | None, ...]:
        service = Service.BACKEND if kind is SpanKind.SERVED else Service.HOST
        parent = None if above is None else f"{index * 16 + above:016x}"
        name = kind.value if phase is not Phase.TOOL else STEPS[slot - 1 - _CALLS].tool
        times = (start_ns + int(begin * took_ns), start_ns + int(end * took_ns))
        named = (service.value, kind.value, name, None if phase is None else phase.value)
        return (trace_id, f"{index * 16 + slot:016x}", parent, *named, *times, None, "{}")

    yield span(_ROOT, None, SpanKind.REQUEST, None, 0.0, 1.0)
    for slot, begin, end in _CHATS:
        phase = Phase.REFLECT if slot == _CALLS else Phase.PLAN
        yield span(slot, _ROOT, SpanKind.CHAT, phase, begin, end)
        yield span(_SERVED_FROM + slot - 1, slot, SpanKind.SERVED, None, begin + 0.03, end - 0.03)
    for slot, begin, end in _TOOLS:
        yield span(slot, _ROOT, SpanKind.TOOL, Phase.TOOL, begin, end)


def _manifest(run: RunFolder, plan: LoadPlan, requests: int, worker: WorkerEnd) -> Manifest:
    return Manifest(
        run_id=run.run_id,
        status=Status.FINISHED,
        started_utc="2026-01-01T00:00:00+00:00",
        framework=_FRAMEWORK,
        workload=Workload(),
        workload_hash=Workload().hash(),
        plan=plan,
        scheduled={stage.value: requests if stage is Stage.MEASURE else 0 for stage in Stage},
        expected_llm_calls=_CALLS,
        expected_tool_calls=len(STEPS),
        backend={"kind": "mock", "model": "made"},
        machine=machine_facts(),
        environment={"lock_sha256": _LOCK},
        rig_environment={},
        cores={"host": [0], "rest": [1]},
        t0_monotonic_ns=_T0,
        workers=[worker],
        spans_dropped=0,
        recorder=RecorderLedger(),
    )


def _campaign(folder: CampaignFolder, run: RunFolder, plan: LoadPlan) -> Campaign:
    return Campaign(
        campaign_id=folder.campaign_id,
        agentdyno="made",
        sources_sha256=_LOCK,
        rig_environment_sha256=_LOCK,
        started_utc="2026-01-01T00:00:00+00:00",
        workload=Workload(),
        workload_hash=Workload().hash(),
        asked=plan,
        traces="20/s",
        admission=None,
        model="made",
        ready_timeout_s=60.0,
        seed=1,
        rounds=1,
        entries=[Entry(label=CONTROL, variant=CONTROL, framework=_FRAMEWORK, environment_sha256=_LOCK)],
        plans={LoadName.STANDARD: plan},
        runs=[PlannedRun(number=1, round=1, load=LoadName.STANDARD, label=CONTROL, run_id=run.run_id)],
    )
