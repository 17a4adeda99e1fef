"""What a run of the fake cluster leaves in its pods: the files as the real processes write them, each on its clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentdyno.contract.pprof import HEAP_TYPES, Frame, Profile, write_gzip
from agentdyno.contract.pprof import Sample as HeapSample
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import BackendStage, BackendStats, LoadPlan, Outcome, RequestRecord, WorkerEnd
from agentdyno.contract.trace import Hello, LlmCall, RecorderLedger, RequestEvents, ServedCall, Service, ToolSpan
from agentdyno.host.probes import ProbeReport
from agentdyno.load.generator import trace_ids
from agentdyno.load.schedule import Schedule
from agentdyno.record.cgroup import Cgroup
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample
from agentdyno.record.sidecar import CgroupReading
from tests.record.recording import frame, goodbye

MS, S = 1_000_000, 1_000_000_000
THERE_NS, BACK_NS = 2 * MS // 10, 3 * MS // 10  # a request's way to the host, an answer's way back
SERVICE_NS = 10 * MS
CPU_PER_REQUEST_S = 0.002
TOOLS = ("order_status", "refund_policy", "resolution")


@dataclass(frozen=True)
class Clocks:
    """How far each machine's clock is ahead of the test's own, ns."""

    host: int = 1000 * S
    backend: int = 5000 * S
    worker: tuple[int, ...] = (2000 * S, 3000 * S, 4000 * S)


def write_load(folder: Path, plan: LoadPlan, worker: int, t0_ns: int) -> None:
    """A worker's records; every answer is right. t0_ns: on its own clock."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [request_record(plan, worker, arrival) for arrival in Schedule(plan).share(worker)]
    (folder / f"requests-{worker}.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
    (folder / f"seconds-{worker}.jsonl").write_bytes(b"")
    start, end = round(plan.warmup_s * S), round((plan.warmup_s + plan.duration_s) * S)
    inside = [min(r.done_ns, end) - max(r.sent_ns, start) for r in records]
    area_s = sum(part for part in inside if part > 0) / S
    told = WorkerEnd(worker, True, t0_ns, area_s, start, end, 0.1 * plan.duration_s)
    (folder / f"end-{worker}.json").write_bytes(msgspec.json.encode(told))


def request_record(plan: LoadPlan, worker: int, arrival) -> RequestRecord:
    trace_id, span_id = trace_ids(plan.seed, arrival.stage, arrival.stage_index)
    sent = arrival.intended_ns + MS // 10
    slower_ns = arrival.index * MS  # one after the other, so that each percentile names a request
    return RequestRecord(
        index=arrival.index,
        stage=arrival.stage.value,
        stage_index=arrival.stage_index,
        worker=worker,
        intended_ns=arrival.intended_ns,
        sent_ns=sent,
        done_ns=sent + SERVICE_NS + slower_ns,
        outcome=Outcome.OK,
        status=200,
        trace_id=trace_id,
        span_id=span_id,
        traced=plan.trace_every > 0 and arrival.stage_index % plan.trace_every == 0,
        response_bytes=500,
        llm_calls=4,
        tool_calls=3,
        prompt_bytes=4000,
        prompt_tokens=900,
        completion_tokens=120,
        retries=0,
        connections=0,
    )


def write_spans(folder: Path, plan: LoadPlan, t0_ns: int, clocks: Clocks) -> None:
    """What the recorder took of all workers. t0_ns: on the test's own clock; both services tell their own clock's."""
    folder.mkdir(parents=True, exist_ok=True)
    content = frame(Hello(Service.HOST, 0, 50 * S, "host")) + frame(Hello(Service.BACKEND, 0, 50 * S, "backend"))
    for arrival in (a for worker in range(plan.workers) for a in Schedule(plan).share(worker)):
        if plan.trace_every == 0 or arrival.stage_index % plan.trace_every:
            continue
        sent = t0_ns + arrival.intended_ns + MS // 10
        events, calls = _traced(plan, arrival, sent, clocks)
        content += frame(events, goodbye()) + frame(*calls, goodbye(Service.BACKEND))
    (folder / "spans.frames").write_bytes(content)
    (folder / "otlp.frames").write_bytes(b"")


def _traced(plan: LoadPlan, arrival, sent: int, clocks: Clocks) -> tuple[RequestEvents, list[ServedCall]]:
    trace, parent = trace_ids(plan.seed, arrival.stage, arrival.stage_index)
    begin, end = sent + THERE_NS, sent + SERVICE_NS + arrival.index * MS - BACK_NS
    base = 1000 * (arrival.index + 1)
    at = [begin + MS * (1 + 2 * i) for i in range(4)]
    over = [*(t + MS for t in at[:3]), end]  # the last one's answer is the host's
    calls = [
        LlmCall(base + i, t + clocks.host, 1000, 200, None, over[i] + clocks.host, False, i < 3, 225, 30, "m")
        for i, t in enumerate(at)
    ]
    tools = [
        ToolSpan(base + 10 + i, TOOLS[i], t + MS + clocks.host, t + 2 * MS + clocks.host, None)
        for i, t in enumerate(at[:3])
    ]
    noted = end + BACK_NS + 5 * MS  # held up: the generator has the answer by then
    times = (begin + clocks.host, noted + clocks.host)
    events = RequestEvents(bytes.fromhex(trace), int(parent, 16), base + 20, *times, "ok", [], calls, tools)
    served = [
        ServedCall(
            bytes.fromhex(trace),
            base + i,
            base + 30 + i,
            t + MS // 4 + clocks.backend,
            0,
            None,
            t + MS * 3 // 4 + clocks.backend,
            200,
            225,
            30,
        )
        for i, t in enumerate(at)
    ]
    return events, served


def write_samples(folder: Path, plan: LoadPlan, t0_ns: int, cgroup: Cgroup) -> None:
    """What the sampler beside the host saw, from 30 s before t0 (on the host's clock) to 5 s after the load."""
    folder.mkdir(parents=True, exist_ok=True)
    total_s = plan.warmup_s + plan.duration_s + plan.cooldown_s
    lines, groups = [], []
    for look in range(round((35 + total_s) * 4)):
        at = t0_ns + look * S // 4 - 30 * S
        busy_s = min(max(at - t0_ns, 0) / S, total_s)
        cpu_s = 1.0 + busy_s * plan.rate * CPU_PER_REQUEST_S
        reading = Reading(rss_bytes=60_000_000, rss_peak_bytes=61_000_000, pss_bytes=50_000_000, cpu_s=cpu_s)
        lines.append(msgspec.json.encode(Sample(at, look, "host", 7, reading)) + b"\n")
        share = busy_s / total_s
        told = msgspec.structs.replace(
            cgroup,
            periods=round((cgroup.periods or 0) * share),
            throttled_periods=round((cgroup.throttled_periods or 0) * share),
            throttled_s=None if cgroup.throttled_s is None else cgroup.throttled_s * share,
            oom_kills=round((cgroup.oom_kills or 0) * share),
        )
        groups.append(msgspec.json.encode(CgroupReading(at, 7, told)) + b"\n")
    (folder / "resources.jsonl").write_bytes(b"".join(lines))
    (folder / "cgroup.jsonl").write_bytes(b"".join(groups))


def probes(t0_ns: int) -> bytes:
    """t0_ns: on the host's clock."""
    ticks = [(t0_ns + n * 50 * MS, MS // 5) for n in range(80)]
    return msgspec.json.encode(ProbeReport(gc=[(t0_ns + S, 2 * MS, 2, 10)], loop=ticks, lost=0))


def ledger() -> bytes:
    return msgspec.json.encode(RecorderLedger(frames=100, raw_bytes=100))


def stats(plan: LoadPlan) -> bytes:
    schedule = Schedule(plan)
    stages: dict[str, BackendStage] = {}
    for worker in range(plan.workers):
        for arrival in schedule.share(worker):
            was = stages.get(arrival.stage.letter, BackendStage())
            stages[arrival.stage.letter] = BackendStage(
                calls=was.calls + 4,
                prompt_bytes=was.prompt_bytes + 4000,
                prompt_tokens=was.prompt_tokens + 900,
                completion_tokens=was.completion_tokens + 120,
            )
    return msgspec.json.encode(BackendStats(stages=stages, in_flight=0, in_flight_max=4, cancelled=0))


def vllm(path: str, plan: LoadPlan | None, model: str) -> bytes:
    """What the release's vLLM says. plan: of the load that it has served; None: none since the requests before it."""
    if path == "version":
        return b'{"version": "0.18.2"}'
    if path == "v1/models":
        return msgspec.json.encode({"data": [{"id": model, "root": "Qwen/weights", "max_model_len": 8192}]})
    requests = 7 + (0 if plan is None else sum(Schedule(plan).count(stage) for stage in Stage))
    counts = {
        "request_success_total": 4 * requests,
        "prompt_tokens_total": 900 * requests,
        "generation_tokens_total": 120 * requests,
        "num_preemptions_total": 0,
        "request_queue_time_seconds_sum": 0.5 * requests,
        "request_prefill_time_seconds_sum": 0.0,
        "request_decode_time_seconds_sum": 0.0,
        "time_to_first_token_seconds_sum": 0.0,
        "e2e_request_latency_seconds_sum": 0.0,
    }
    cache = 'vllm:cache_config_info{engine="0",block_size="16"} 1.0\n'
    return (cache + "".join(f"vllm:{name} {count}\n" for name, count in counts.items())).encode()


def profile(number: int) -> bytes:
    """The host's heap: it holds `number` MB."""
    stack = (Frame("held", "adapters/bare/adapter.py", 1),)
    sample = HeapSample(stack, (number, number * 1_000_000, number, number * 1_000_000), {})
    return write_gzip(Profile(HEAP_TYPES, (sample,), time_ns=number))
