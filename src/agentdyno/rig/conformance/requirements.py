"""The conformance test of an adapter, in words: what every adapter must do before it may be measured.

It starts the adapter's real host against the scripted mock, with every connection but to loopback refused, and
asks it questions over HTTP, as the load generator would.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import msgspec

from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.invoke import INVOKE_PATH, InvokeRequest
from agentdyno.contract.proof import Stage, order_id
from agentdyno.contract.run import Outcome
from agentdyno.contract.scenario import SCENARIOS, BackendTiming
from agentdyno.host.offline import MARK
from agentdyno.load.verify import judge
from agentdyno.record.folder import RunFolder
from agentdyno.record.spans import SpanKind
from agentdyno.rig.conformance.subject import KEY, WAIT_S, NotConforming, Subject, read_event, running
from agentdyno.rig.conformance.trace_shape import faults, of_kind
from agentdyno.rig.preparation import expected_llm_calls
from agentdyno.rig.processes import Child, ChildFailed, fetch

_REQUESTS = 12
_CONCURRENT = 8
_SHORT_MS = 400
_SLOW_LLM_S = 60  # so that a call that is still open after the time-out was not ended by its answer
_SLOW_LLM = BackendTiming(ttft_ms=f"const:{_SLOW_LLM_S * 1000}")
_CANCELLED_WITHIN_S = 3.0
STOP_WITHIN_S = 12.0
_CARRIED_BYTES = 64

Check = Callable[[Subject], None]


def work_is_proven(rig: Subject) -> None:
    """every answer carries the proof of its three tool calls"""
    for index in range(_REQUESTS):
        rig.verified(index)


def requests_do_not_mix(rig: Subject) -> None:
    """concurrent requests do not see each other"""
    with ThreadPoolExecutor(_CONCURRENT) as pool:
        list(pool.map(rig.verified, range(100, 100 + 3 * _CONCURRENT)))


def work_is_as_declared(rig: Subject) -> None:
    """LLM and tool calls are as declared, and as the mock counted them"""
    before = rig.served()
    usage = rig.verified(200).usage
    after = rig.served()
    declared = expected_llm_calls(rig.options, rig.variant)
    if declared is not None and usage.llm_calls != declared:
        raise NotConforming(f"{usage.llm_calls} LLM calls for a request; adapter.toml declares llm_calls = {declared}.")
    seen = after.calls - before.calls
    if usage.llm_calls != seen:
        raise NotConforming(
            f"The host's border saw {usage.llm_calls} LLM calls and the mock served {seen}: some go through an HTTP "
            "client that the border does not wrap (it wraps aiohttp, httpx, httpx2), or outside the request's context."
        )
    if usage.prompt_bytes != after.prompt_bytes - before.prompt_bytes:
        raise NotConforming("The prompt bytes at the host's border are not those that the mock received.")


def same_work_again(rig: Subject) -> None:
    """a request that was asked before is worked on again"""
    for time_asked in ("first", "second"):
        try:
            rig.verified(500)
        except NotConforming as error:
            raise NotConforming(f"The {time_asked} time: {error} Nothing may be answered from a cache.") from error


def nothing_is_carried_over(rig: Subject) -> None:
    """a session sees nothing of the others"""
    first, *_, last = (rig.verified(0x700 + index).usage.prompt_bytes for index in range(6))
    if abs(last - first) > _CARRIED_BYTES:
        raise NotConforming(
            f"Of six sessions that ask for the same, the first sent {first} prompt bytes and the last {last}: "
            "something is carried from one session to the next. Keep state per session id, or none."
        )


def no_stray_tool_calls(rig: Subject) -> None:
    """every tool call runs in its request's context"""
    rig.post(rig.request(50))
    text = fetch(rig.host.url + "/metrics", WAIT_S).decode()
    found = re.search(r"^agentdyno_stray_tool_calls_total\{.*\} ([0-9.]+)$", text, re.MULTILINE)
    if found is None:
        return  # a program of its own, in another language, has no such metric
    if float(found.group(1)) > 0:
        raise NotConforming(
            f"{float(found.group(1)):.0f} tool calls ran outside their request's context variables: the framework "
            "runs tools in a task or thread that was started elsewhere. Start it per request, or copy the context."
        )


def wrong_requests_are_refused(rig: Subject) -> None:
    """a wrong body is a 400, not a crash"""
    try:
        fetch(rig.host.url + INVOKE_PATH, WAIT_S, method="POST", body=b'{"session_id": 1}')
    except HTTPError as error:
        kind = error.headers.get("content-type", "")
        if error.code != 400 or not kind.startswith("application/problem+json"):
            raise NotConforming(f"A wrong body got {error.code} as {kind!r}, not a 400 problem+json.") from error
    else:
        raise NotConforming("A wrong body was answered with 200.")


def streams_if_it_says_so(rig: Subject) -> None:
    """a streamed answer adds up to the final one"""
    if "stream" not in rig.variant.capabilities:
        return
    status, body = rig.post(rig.request(300, stream=True))
    events = [read_event(block) for block in body.decode().split("\n\n") if block]
    final = [data for kind, data in events if kind == "final"]
    if status != 200 or len(final) != 1:
        raise NotConforming(f"A streamed request ended with {len(final)} `final` events: {body[-300:]!r}.")
    text = "".join(data["text"] for kind, data in events if kind == "token")
    if text != final[0]["output"]:
        raise NotConforming(
            f"The streamed pieces make {text[:200]!r}, the final answer is {final[0]['output'][:200]!r}."
        )
    order = order_id(rig.options.plan.seed, Stage.MEASURE, 300)
    judged = judge(200, msgspec.json.encode(final[0]), order, KEY, SCENARIOS[rig.options.plan.scenario])
    if judged.outcome is not Outcome.OK:
        raise NotConforming(f"The streamed answer is not proven: {judged.reason}.")
    if sum(kind == "tool_call" for kind, _ in events) != 3:
        raise NotConforming("A streamed request must show its three tool calls as events.")


def trace_is_whole(rig: Subject) -> None:
    """its trace is whole, and its phases tile it"""
    if rig.variant.command is not None:
        return  # a program of its own has no borders of ours; its spans, if it sends any, are its own
    for stream in (False, True) if "stream" in rig.variant.capabilities else (False,):
        traced = rig.traced(rig.request(450 + stream, stream=stream))
        if traced.usage is None:
            raise NotConforming(f"A traced request was answered with {traced.status}.")
        plans_with_llm = rig.variant.plans_with == "llm"
        for fault in faults(traced.spans, traced.parent_span_id, traced.usage, plans_with_llm=plans_with_llm):
            raise NotConforming(f"{fault}{' (streamed)' if stream else ''}")


def timed_out_trace_is_closed(rig: Subject) -> None:
    """the trace of a timed-out request is closed, and says so"""
    if rig.variant.command is not None:
        return
    traced = rig.traced(rig.request(560, timeout_ms=_SHORT_MS))
    for fault in faults(traced.spans, traced.parent_span_id, None, plans_with_llm=True):
        raise NotConforming(fault)
    wrong = [s.name for s in of_kind(traced.spans, SpanKind.REQUEST, SpanKind.CHAT) if s.error is None]
    if wrong:
        raise NotConforming(f"The span {wrong[0]!r} of a request that timed out says that all was well.")


def tools_change_if_it_says_so(rig: Subject) -> None:
    """a removed tool is not offered, an added one is"""
    if "dynamic_tools" not in rig.variant.capabilities:
        return
    address = f"{rig.host.url}/agent/tools/resolution"
    offered = replace_tools(rig.request(400), ())
    fetch(address, WAIT_S, method="DELETE")
    _, body = rig.post(offered)
    if b'"RE-' in body or b" RE-" in body:
        raise NotConforming("A removed tool was still used.")
    fetch(address, WAIT_S, method="PUT", body=b"{}")
    rig.verified(401)


def sessions_end(rig: Subject) -> None:
    """a session can be ended, known or not"""
    fetch(f"{rig.host.url}/agent/sessions/sess-unknown", WAIT_S, method="DELETE")


def time_out_stops_the_work(rig: Subject) -> None:
    """a timed-out request is a 504 at once, and its work stops"""
    begin = time.monotonic()
    status, body = rig.post(rig.request(550, timeout_ms=_SHORT_MS))
    took_s = time.monotonic() - begin
    if status != 504:
        raise NotConforming(
            f"With an LLM of {_SLOW_LLM_S} s and a time-out of {_SHORT_MS} ms the answer was {status}: {body[:200]!r}."
        )
    if took_s > 5:
        raise NotConforming(f"The 504 came after {took_s:.1f} s: something blocks the event loop.")
    deadline = time.monotonic() + _CANCELLED_WITHIN_S
    while rig.backend_stats().in_flight and time.monotonic() < deadline:
        time.sleep(0.05)
    if rig.backend_stats().in_flight:
        raise NotConforming(
            f"{_CANCELLED_WITHIN_S:g} s after its time-out the request's LLM call is still open: "
            "cancellation is swallowed."
        )
    calls = rig.served().calls
    time.sleep(0.5)
    if rig.served().calls != calls:
        raise NotConforming("After its time-out the request went on to call the LLM.")


def dead_backend_is_an_error(rig: Subject) -> None:
    """a backend that is gone is an error, not a hang or an answer"""
    if rig.backend.child is not None:
        rig.backend.child.stop(0.0)
    status, body = rig.post(rig.request(600, timeout_ms=8_000))
    if status not in (500, 502, 504):
        raise NotConforming(f"Without a backend the answer was {status}: {body[:200]!r}.")


def replace_tools(request: InvokeRequest, tools: tuple[str, ...]) -> InvokeRequest:
    """The same request with other tools named."""
    return msgspec.structs.replace(request, tools=tools)


# Where one of these fails, the checks after it would fail too, and say nothing more.
_FOUNDATIONS: tuple[Check, ...] = (no_stray_tool_calls, work_is_proven)
_PLAIN: tuple[Check, ...] = (
    *_FOUNDATIONS,
    requests_do_not_mix,
    work_is_as_declared,
    same_work_again,
    nothing_is_carried_over,
    wrong_requests_are_refused,
    streams_if_it_says_so,
    trace_is_whole,
    tools_change_if_it_says_so,
    sessions_end,
)


@dataclass(frozen=True, slots=True)
class Result:
    """One check's name and, when it failed, the sentence."""

    name: str
    failure: str | None


def verify(adapter: AdapterFolder, variant: Variant, *, stop_within_s: float = STOP_WITHIN_S) -> Iterator[Result]:
    """Run every check against the adapter, yielding results as they come."""
    situations: tuple[tuple[str, BackendTiming, tuple[Check, ...]], ...] = (
        ("chain", BackendTiming(), _PLAIN),
        ("parallel", BackendTiming(), (*_FOUNDATIONS, work_is_as_declared, trace_is_whole)),
        ("chain", _SLOW_LLM, (time_out_stops_the_work, timed_out_trace_is_closed, dead_backend_is_an_error)),
    )
    with tempfile.TemporaryDirectory(prefix="agentdyno-verify-") as parent:
        for scenario, timing, checks in situations:
            folder = RunFolder.create(Path(parent), variant.name)
            try:
                with running(adapter, variant, scenario, timing, folder) as rig:
                    for check in checks:
                        result = _result(f"{check.__doc__} ({scenario})", partial(check, rig))
                        yield result
                        if result.failure is not None and check in _FOUNDATIONS:
                            break
                    ends = partial(_ends, rig.host.child, stop_within_s)
                    yield _result(f"SIGTERM ends it within {stop_within_s:g} s, with exit code 0", ends)
            except ChildFailed as error:
                yield Result(f"starts and becomes ready ({scenario})", str(error))
                return
            yield _result("reaches out to nothing but loopback", partial(_stayed_home, folder.log("host")))


def _result(name: str, check: Callable[[], None]) -> Result:
    try:
        check()
    except NotConforming as error:
        return Result(name, str(error))
    except OSError as error:
        return Result(name, f"The host gave no answer: {error}.")
    return Result(name, None)


def _ends(child: Child, within_s: float) -> None:
    code = child.stop(within_s)
    if code != 0:
        raise NotConforming(f"After SIGTERM the host {child.describe_exit()}.{child.log_tail()}")


def _stayed_home(log: Path) -> None:
    reached = sorted({line for line in log.read_text(errors="replace").splitlines() if line.startswith(MARK)})
    if reached:
        raise NotConforming(
            f"{' '.join(reached[:5])} Switch telemetry, tracing and downloads off, in adapter.toml's [variant.env]."
        )
