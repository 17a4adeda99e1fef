"""Check `recorder`: the process that keeps the spans shares a core with the load, so it must take little of it."""

from __future__ import annotations

import asyncio

import aiohttp

from agentdyno.analysis.figures import cpu_seconds
from agentdyno.analysis.run_data import read_run
from agentdyno.emit.clocks import both_clocks
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.record.folder import RunFolder
from agentdyno.rig.environments.building import say
from agentdyno.rig.processes import Children
from agentdyno.rig.servers import RecorderProcess, start_recorder
from agentdyno.selfcheck.benches import short_run
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.live_export import RATE_RPS, SPANS_EXPORTED, live_percent
from agentdyno.selfcheck.otlp_spans import request_body
from agentdyno.selfcheck.result import at_most, figure
from agentdyno.selfcheck.sample_work import SPANS_RECORDED, finished_request
from agentdyno.selfcheck.slices import on_cores

CPU_PERCENT = 20.0
DURATION_S = 10.0
REPEATS = 3
# OpenTelemetry's batch processor sends 512 spans at once.
REQUESTS_A_POST = 512 // SPANS_RECORDED
_GRACE_S = 6.0


def measure(setting: Setting) -> Findings:
    """Repeat: a traced run of the control for the raw way, then as many spans by OTLP."""
    raw, otlp, live = [], [], []
    for number in range(setting.repeats(REPEATS)):
        say(f"recorder: repeat {number + 1}")
        raw.append(_raw_percent(setting))
        otlp.append(_otlp_percent(setting))
        live.append(live_percent(setting, setting.seconds(DURATION_S)))
    return Findings(
        (
            figure("raw records of 200 requests/s", "% of a core", raw, at_most(CPU_PERCENT)),
            figure("OTLP of 200 requests/s", "% of a core", otlp, at_most(CPU_PERCENT)),
            figure("raw records of 200 requests/s, exported live", "% of a core", live),
        ),
        (
            f"By OTLP the host's {SPANS_RECORDED} spans of each request, {REQUESTS_A_POST} requests to a POST.",
            f"Exported live: the {SPANS_EXPORTED} spans of host and mock of each request, over HTTP with protobuf, to "
            "a second recorder on another core. No goal: two thirds of it are the standard exporter's own encoding, "
            "which is kept, and TRACES=20/s exports a tenth.",
        ),
    )


def _raw_percent(setting: Setting) -> float | None:
    duration = f"{setting.seconds(DURATION_S):g}s"
    path = short_run(setting.folder, "bare", rate=str(RATE_RPS), duration=duration, warmup="2s", cooldown="1s").path
    data = read_run(path)
    window_ns = data.window_ns()
    if data.resources is None or window_ns is None:
        return None
    used_s = cpu_seconds(data.resources, "recorder", window_ns)
    return None if used_s is None else used_s / data.window().seconds * 100


def _otlp_percent(setting: Setting) -> float:
    folder = RunFolder.create(setting.folder, "otlp")
    recorders = Children()
    try:
        recorder = start_recorder(folder, {}, setting.cores.host, recorders)
        with on_cores(setting.cores.rest):
            return asyncio.run(_feed(recorder, setting.seconds(DURATION_S)))
    finally:
        recorders.stop(_GRACE_S)


async def _feed(recorder: RecorderProcess, duration_s: float) -> float:
    """Post on an absolute schedule; the recorder's CPU meanwhile, per cent of a core."""
    monotonic_ns, unix_ns = both_clocks()
    body = request_body([finished_request(n) for n in range(REQUESTS_A_POST)], unix_ns - monotonic_ns)
    loop = asyncio.get_running_loop()
    headers = {"Content-Type": "application/x-protobuf"}
    async with aiohttp.ClientSession(headers=headers) as session:
        await _post(session, recorder.otlp_url, body)
        before_ns, start_s = cpu_ns(recorder.child.pid), loop.time()
        for number in range(int(duration_s * RATE_RPS / REQUESTS_A_POST)):
            await asyncio.sleep(start_s + number * REQUESTS_A_POST / RATE_RPS - loop.time())
            await _post(session, recorder.otlp_url, body)
        await asyncio.sleep(start_s + duration_s - loop.time())
        return (cpu_ns(recorder.child.pid) - before_ns) / (loop.time() - start_s) / 1e7


async def _post(session: aiohttp.ClientSession, url: str, body: bytes) -> None:
    async with session.post(url, data=body) as response:
        if response.status != 200:
            raise CheckFailed(f"The recorder answered {response.status} to OTLP: {await response.text()}")
        await response.read()


CHECK = Check("recorder", "the process that keeps the spans", measure)
