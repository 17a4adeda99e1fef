"""The conformance test of an adapter, in words: what every adapter must do before it may be measured.

It starts the adapter's real host against the scripted mock, with every connection but to loopback refused, and
asks it questions over HTTP, as the load generator would.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import msgspec

from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.invoke import INVOKE_PATH, InvokeRequest, InvokeResponse
from agentdyno.contract.proof import KEY_BYTES, Stage, order_id
from agentdyno.contract.run import BackendStage, BackendStats, Outcome
from agentdyno.contract.scenario import SCENARIOS, BackendTiming, Workload
from agentdyno.host.offline import MARK
from agentdyno.load.verify import judge
from agentdyno.rig.environments import adapter_environment
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.preparation import expected_llm_calls
from agentdyno.rig.processes import Child, ChildFailed, Children, body_of, fetch
from agentdyno.rig.servers import Backend, Host, start_backend, start_host

_KEY = bytes(range(KEY_BYTES))
_REQUESTS = 12
_CONCURRENT = 8
_TIMEOUT_MS = 20_000
_SHORT_MS = 400
_SLOW_LLM_S = 60  # so that a call that is still open after the time-out was not ended by its answer
_SLOW_LLM = BackendTiming(ttft_ms=f"const:{_SLOW_LLM_S * 1000}")
_CANCELLED_WITHIN_S = 3.0
_WAIT_S = 30.0
STOP_WITHIN_S = 12.0
_CARRIED_BYTES = 64


class NotConforming(AssertionError):
    """What the adapter does wrong, and what to look at."""


@dataclass(frozen=True, slots=True)
class Rig:
    """The adapter's running host and mock, for one scenario and timing."""

    options: BenchOptions
    variant: Variant
    host: Host
    backend: Backend

    def request(self, index: int, *, timeout_ms: int = _TIMEOUT_MS, stream: bool = False) -> InvokeRequest:
        """The request of measured arrival `index`."""
        plan = self.options.plan
        return SCENARIOS[plan.scenario].request(plan.seed, Stage.MEASURE, index, timeout_ms, stream=stream)

    def post(self, request: InvokeRequest) -> tuple[int, bytes]:
        """Status and body."""
        try:
            sent = msgspec.json.encode(request)
            return 200, fetch(self.host.url + INVOKE_PATH, _WAIT_S, method="POST", body=sent)
        except HTTPError as error:
            return error.code, body_of(error)

    def verified(self, index: int) -> InvokeResponse:
        """Ask once; raises NotConforming unless the answer proves the work."""
        status, body = self.post(self.request(index))
        plan = self.options.plan
        order = order_id(plan.seed, Stage.MEASURE, index)
        judged = judge(status, body, order, _KEY, SCENARIOS[plan.scenario])
        if judged.outcome is not Outcome.OK:
            raise NotConforming(f"Request {index}: {judged.reason}. Status {status}, body {body[:400]!r}.")
        return msgspec.json.decode(body, type=InvokeResponse)

    def served(self) -> BackendStage:
        """What the mock has served for measured orders so far."""
        stats = self.backend_stats()
        return stats.stages.get(Stage.MEASURE.letter, BackendStage())

    def backend_stats(self) -> BackendStats:
        """The mock's `/stats`."""
        stats = self.backend.record().stats
        if stats is None:
            raise NotConforming("The mock LLM keeps no stats.")
        return stats


Check = Callable[[Rig], None]


def work_is_proven(rig: Rig) -> None:
    """every answer carries the proof of its three tool calls"""
    for index in range(_REQUESTS):
        rig.verified(index)


def requests_do_not_mix(rig: Rig) -> None:
    """concurrent requests do not see each other"""
    with ThreadPoolExecutor(_CONCURRENT) as pool:
        list(pool.map(rig.verified, range(100, 100 + 3 * _CONCURRENT)))


def work_is_as_declared(rig: Rig) -> None:
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


def same_work_again(rig: Rig) -> None:
    """a request that was asked before is worked on again"""
    for time_asked in ("first", "second"):
        try:
            rig.verified(500)
        except NotConforming as error:
            raise NotConforming(f"The {time_asked} time: {error} Nothing may be answered from a cache.") from error


def nothing_is_carried_over(rig: Rig) -> None:
    """a session sees nothing of the others"""
    first, *_, last = (rig.verified(0x700 + index).usage.prompt_bytes for index in range(6))
    if abs(last - first) > _CARRIED_BYTES:
        raise NotConforming(
            f"Of six sessions that ask for the same, the first sent {first} prompt bytes and the last {last}: "
            "something is carried from one session to the next. Keep state per session id, or none."
        )


def no_stray_tool_calls(rig: Rig) -> None:
    """every tool call runs in its request's context"""
    rig.post(rig.request(50))
    text = fetch(rig.host.url + "/metrics", _WAIT_S).decode()
    found = re.search(r"^agentdyno_stray_tool_calls_total\{.*\} ([0-9.]+)$", text, re.MULTILINE)
    if found is None:
        return  # a program of its own, in another language, has no such metric
    if float(found.group(1)) > 0:
        raise NotConforming(
            f"{float(found.group(1)):.0f} tool calls ran outside their request's context variables: the framework "
            "runs tools in a task or thread that was started elsewhere. Start it per request, or copy the context."
        )


def wrong_requests_are_refused(rig: Rig) -> None:
    """a wrong body is a 400, not a crash"""
    try:
        fetch(rig.host.url + INVOKE_PATH, _WAIT_S, method="POST", body=b'{"session_id": 1}')
    except HTTPError as error:
        kind = error.headers.get("content-type", "")
        if error.code != 400 or not kind.startswith("application/problem+json"):
            raise NotConforming(f"A wrong body got {error.code} as {kind!r}, not a 400 problem+json.") from error
    else:
        raise NotConforming("A wrong body was answered with 200.")


def streams_if_it_says_so(rig: Rig) -> None:
    """a streamed answer adds up to the final one"""
    if "stream" not in rig.variant.capabilities:
        return
    status, body = rig.post(rig.request(300, stream=True))
    events = [_event(block) for block in body.decode().split("\n\n") if block]
    final = [data for kind, data in events if kind == "final"]
    if status != 200 or len(final) != 1:
        raise NotConforming(f"A streamed request ended with {len(final)} `final` events: {body[-300:]!r}.")
    text = "".join(data["text"] for kind, data in events if kind == "token")
    if text != final[0]["output"]:
        raise NotConforming(
            f"The streamed pieces make {text[:200]!r}, the final answer is {final[0]['output'][:200]!r}."
        )
    order = order_id(rig.options.plan.seed, Stage.MEASURE, 300)
    judged = judge(200, msgspec.json.encode(final[0]), order, _KEY, SCENARIOS[rig.options.plan.scenario])
    if judged.outcome is not Outcome.OK:
        raise NotConforming(f"The streamed answer is not proven: {judged.reason}.")
    if sum(kind == "tool_call" for kind, _ in events) != 3:
        raise NotConforming("A streamed request must show its three tool calls as events.")


def tools_change_if_it_says_so(rig: Rig) -> None:
    """a removed tool is not offered, an added one is"""
    if "dynamic_tools" not in rig.variant.capabilities:
        return
    address = f"{rig.host.url}/agent/tools/resolution"
    offered = replace_tools(rig.request(400), ())
    fetch(address, _WAIT_S, method="DELETE")
    _, body = rig.post(offered)
    if b'"RE-' in body or b" RE-" in body:
        raise NotConforming("A removed tool was still used.")
    fetch(address, _WAIT_S, method="PUT", body=b"{}")
    rig.verified(401)


def sessions_end(rig: Rig) -> None:
    """a session can be ended, known or not"""
    fetch(f"{rig.host.url}/agent/sessions/sess-unknown", _WAIT_S, method="DELETE")


def time_out_stops_the_work(rig: Rig) -> None:
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


def dead_backend_is_an_error(rig: Rig) -> None:
    """a backend that is gone is an error, not a hang or an answer"""
    if rig.backend.child is not None:
        rig.backend.child.stop(0.0)
    status, body = rig.post(rig.request(600, timeout_ms=8_000))
    if status not in (500, 502, 504):
        raise NotConforming(f"Without a backend the answer was {status}: {body[:200]!r}.")


def replace_tools(request: InvokeRequest, tools: tuple[str, ...]) -> InvokeRequest:
    """The same request with other tools named."""
    return msgspec.structs.replace(request, tools=tools)


def _event(block: str) -> tuple[str, dict[str, str]]:
    kind, _, data = block.partition("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


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
        ("parallel", BackendTiming(), (*_FOUNDATIONS, work_is_as_declared)),
        ("chain", _SLOW_LLM, (time_out_stops_the_work, dead_backend_is_an_error)),
    )
    with tempfile.TemporaryDirectory(prefix="agentdyno-verify-") as folder:
        for number, (scenario, timing, checks) in enumerate(situations):
            logs = Path(folder) / str(number)
            logs.mkdir()
            try:
                with _running(adapter, variant, scenario, timing, logs) as rig:
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
            yield _result("reaches out to nothing but loopback", partial(_stayed_home, logs / "host.log"))


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


@contextmanager
def _running(
    adapter: AdapterFolder, variant: Variant, scenario: str, timing: BackendTiming, logs: Path
) -> Iterator[Rig]:
    options = read(Words(framework=variant.name, scenario=scenario))
    options = replace(options, workload=Workload(scenario=scenario, seed=options.plan.seed, timing=timing))
    children = Children()
    try:
        backend = start_backend(options, None, logs / "backend.log", children)
        host = start_host(
            adapter_environment(adapter.path).python,
            adapter,
            variant,
            options,
            backend_url=backend.url,
            key=_KEY,
            cores=None,
            log=logs / "host.log",
            children=children,
            offline=True,
        )
        yield Rig(options, variant, host, backend)
    finally:
        children.stop(STOP_WITHIN_S)
