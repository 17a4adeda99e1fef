"""What it costs the recorder to export a run's spans while they come: the part of check `recorder` with an endpoint."""

from __future__ import annotations

import asyncio
import time

import msgspec

from agentdyno.contract.trace import (
    ACKNOWLEDGED,
    FRAME_HEAD_BYTES,
    Goodbye,
    Hello,
    Record,
    ServedCall,
    Service,
)
from agentdyno.emit.clocks import both_clocks
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.record.export import ENDPOINT_VARIABLES
from agentdyno.record.folder import RunFolder
from agentdyno.record.ledger import read_ledger
from agentdyno.rig.processes import Children
from agentdyno.rig.servers import start_recorder
from agentdyno.selfcheck.check import CheckFailed, Setting
from agentdyno.selfcheck.sample_work import SPANS_RECORDED, finished_request
from agentdyno.selfcheck.slices import on_cores

RATE_RPS = 200
_CALLS = 4  # of one request, each served by the mock
SPANS_EXPORTED = SPANS_RECORDED + 2 + _CALLS  # with the derived ones, parse and respond
_FRAMES_A_SECOND = 10
_GRACE_S = 6.0
_SETTLE_S = 30.0
_IDLE_S = 1.0
_IDLE_NS = 10_000_000  # in that time; a tick of the kernel's clock
_encode = msgspec.msgpack.encode


def live_percent(setting: Setting, duration_s: float) -> float:
    """The recorder's CPU, per cent of a core, while it gets raw records of 200 requests/s and exports their spans.

    Records are made beforehand and sent on an absolute schedule, so that the figure is of just that rate however slow
    a framework would be. Raises CheckFailed when not all were exported.
    """
    folder = RunFolder.create(setting.folder, "live")
    receivers, recorders = Children(), Children()
    try:
        receiver = start_recorder(RunFolder.create(setting.folder, "receiver"), {}, setting.cores.rest, receivers, {})
        endpoint = {ENDPOINT_VARIABLES[0]: receiver.otlp_url}
        resource = {"agentdyno.run.id": folder.run_id, "agentdyno.framework": "bare", "agentdyno.scenario": "chain"}
        recorder = start_recorder(folder, resource, setting.cores.host, recorders, endpoint)
        with on_cores(setting.cores.rest):
            percent = asyncio.run(_feed(recorder.address, recorder.child.pid, duration_s))
    finally:
        recorders.stop(_GRACE_S)
        receivers.stop(_GRACE_S)
    ledger, sent = read_ledger(folder.raw), int(duration_s * _FRAMES_A_SECOND) * _REQUESTS_A_FRAME * SPANS_EXPORTED
    if ledger is None or ledger.exported != sent:
        exported = None if ledger is None else ledger.exported
        raise CheckFailed(f"Of {sent} spans that the recorder was to export live it exported {exported}.")
    return percent


_REQUESTS_A_FRAME = RATE_RPS // _FRAMES_A_SECOND


async def _feed(address: str, pid: int, duration_s: float) -> float:
    host, _, port = address.rpartition(":")
    bodies = [_frames(number) for number in range(int(duration_s * _FRAMES_A_SECOND))]
    reader, writer = await asyncio.open_connection(host, int(port))
    hello = Hello(Service.HOST, *both_clocks())
    writer.write(_framed([hello, Goodbye(Service.HOST, 0, 0)]))
    await _acknowledged(reader, 1)
    loop = asyncio.get_running_loop()
    before_ns, start_s = cpu_ns(pid), loop.time()
    for number, body in enumerate(bodies):
        await asyncio.sleep(start_s + number / _FRAMES_A_SECOND - loop.time())
        writer.write(body)
        await _acknowledged(reader, 2)
    await asyncio.sleep(start_s + duration_s - loop.time())
    used_ns = await _settled(pid) - before_ns
    writer.close()
    return used_ns / duration_s / 1e7


async def _settled(pid: int) -> int:
    """Its CPU time when it has worked off what it got: on a busy machine that takes longer, and no more CPU."""
    end_s, used_ns = time.monotonic() + _SETTLE_S, cpu_ns(pid)
    while time.monotonic() < end_s:
        await asyncio.sleep(_IDLE_S)
        now_ns = cpu_ns(pid)
        if now_ns - used_ns < _IDLE_NS:
            return now_ns
        used_ns = now_ns
    raise CheckFailed(f"The recorder was still exporting {_SETTLE_S:g} s after the last record.")


async def _acknowledged(reader: asyncio.StreamReader, frames: int) -> None:
    if await reader.readexactly(frames * len(ACKNOWLEDGED)) != ACKNOWLEDGED * frames:
        raise CheckFailed("The recorder did not acknowledge a frame.")


def _frames(number: int) -> bytes:
    """One of the host and one of the mock, of the same requests."""
    traces = [finished_request(number * _REQUESTS_A_FRAME + index) for index in range(_REQUESTS_A_FRAME)]
    requests = [trace.events("ok") for trace in traces]
    served = [
        ServedCall(
            trace_id=request.trace_id,
            parent_span_id=call.span_id,
            span_id=call.span_id ^ 1 or 1,
            start_ns=call.start_ns,
            queued_ns=0,
            first_token_ns=call.first_byte_ns,
            end_ns=call.end_ns or call.start_ns,
            status=200,
            prompt_tokens=call.prompt_tokens or 0,
            completion_tokens=call.completion_tokens or 0,
        )
        for request in requests
        for call in request.llm_calls
    ]
    of_host: list[Record] = [*requests, Goodbye(Service.HOST, len(requests), 0)]
    of_mock: list[Record] = [*served, Goodbye(Service.BACKEND, len(served), 0)]
    return _framed(of_host) + _framed(of_mock)


def _framed(records: list[Record]) -> bytes:
    body = _encode(records)
    return len(body).to_bytes(FRAME_HEAD_BYTES, "big") + body
