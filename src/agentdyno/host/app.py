"""The host's ASGI application: one contract in front of whichever adapter was loaded.

Plain ASGI without a web framework: the same few microseconds for every framework, and nothing of a web framework
in the measured process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

import msgspec

from agentdyno import __version__
from agentdyno.contract.adapter import Adapter, ChangesTools, KeepsSessions, LlmEndpoint, Streams, Tool
from agentdyno.contract.invoke import INVOKE_PATH, PROBLEM_TYPE, InvokeRequest, Problem
from agentdyno.emit.sender import Sender
from agentdyno.host.border import Border
from agentdyno.host.invocation import Invocation, describe, report
from agentdyno.host.metrics import HostMetrics, ProbeCollector
from agentdyno.host.probes import Probes
from agentdyno.host.trace import RequestTrace, open_trace

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEAP_PATH = "/debug/pprof/heap"
MAX_BODY_BYTES = 1 << 20
_BODY_S = 10.0
_CLOSE_S = 5.0
_LONGEST_TIMEOUT_MS = 86_400_000
# A body nested without end raises RecursionError, which is no MsgspecError.
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode_request = msgspec.json.Decoder(InvokeRequest).decode
_encode = msgspec.json.encode
_JSON = [(b"content-type", b"application/json")]
_PROBLEM = [(b"content-type", PROBLEM_TYPE.encode())]
_REJECTED_HEADERS = [*_PROBLEM, (b"retry-after", b"1")]


class Host:
    """Serves one adapter.

    border: told whenever something may have been imported. spans: where finished requests that are traced are sent.
    on_trace: told of every finished request and its outcome.
    admission: how many requests may be in flight; beyond it a cheap 429 (None: no limit, which shows the collapse).
    heap: takes a heap profile, in a process that is profiled. enter: called in each request's context before the
    framework, in a process that carries its instrumentation.
    """

    def __init__(
        self,
        adapter: Adapter,
        llm: LlmEndpoint,
        tools: Sequence[Tool],
        system_prompt: str,
        *,
        framework: str,
        admission: int | None,
        metrics: HostMetrics,
        border: Border | None = None,
        spans: Sender | None = None,
        on_trace: Callable[[RequestTrace, str], None] | None = None,
        heap: Callable[[], bytes] | None = None,
        enter: Callable[[RequestTrace], None] | None = None,
    ) -> None:
        self.adapter = adapter
        self.metrics = metrics
        self.probes = Probes()
        probed = ProbeCollector(self.probes, framework, spans)
        metrics.registry.register(probed)
        metrics.histograms += probed.histograms()
        self._llm = llm
        self._tools = {tool.name: tool for tool in tools}
        self._system_prompt = system_prompt
        self._framework = framework
        self._admission = admission
        self._in_flight = 0
        metrics.in_flight.set_function(lambda: self._in_flight)
        self._draining = False
        self._border = border
        self._spans = spans
        self._on_trace = on_trace
        self._heap = heap
        self._enter = enter
        detail = f"{admission} requests are in flight, which is the admission limit. Try again later."
        self._rejection = _encode(Problem("Too many requests", 429, "admission", detail))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            if scope["path"] == INVOKE_PATH and scope["method"] == "POST":
                await self._invoke(scope, receive, send)
            else:
                await self._other(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.adapter.start(self._llm, list(self._tools.values()), self._system_prompt)
                self._refresh_border()
                self.probes.start()
                if self._spans is not None:
                    self._spans.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                self._draining = True
                self.probes.stop()
                try:
                    async with asyncio.timeout(_CLOSE_S):
                        await self.adapter.close()
                finally:
                    if self._spans is not None:
                        await self._spans.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def watch(self, on: bool) -> None:
        """Switch what watches the requests on or off: the probes, and the metrics of their work. On the loop's thread.

        Only the self-check does so: two processes of the same program differ by more than the watching costs.
        """
        self.probes.stop()
        self.metrics.detailed = on
        if on:
            self.probes.start()

    async def _invoke(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._admission is not None and self._in_flight >= self._admission:
            self.metrics.count("rejected")
            await _respond(send, 429, self._rejection, _REJECTED_HEADERS)
            return
        trace = open_trace(_header(scope, b"traceparent"))
        self._in_flight += 1
        outcome = "error"
        try:
            try:
                async with asyncio.timeout(_BODY_S):
                    body = await _read_body(receive)
                request = _decode_request(body)
                self._check(request)
            except TimeoutError:
                outcome = "bad_request"
                detail = f"The body did not arrive within {_BODY_S:g} s."
                await _send_problem(send, Problem("Request timed out", 408, "slow_body", detail))
                return
            except _ClientGone:
                outcome = "client_gone"
                return
            except (_Refused, *_MALFORMED) as error:
                outcome = "bad_request"
                await _send_problem(send, _as_problem(error))
                return
            outcome = await Invocation(self.adapter, request, trace, receive, send, self._enter).run()
        finally:
            self._in_flight -= 1
            trace.finish()
            self._account(trace, outcome)

    def _refresh_border(self) -> None:
        if self._border is not None:
            self._border.refresh()

    def _account(self, trace: RequestTrace, outcome: str) -> None:
        self._refresh_border()
        good = sum(call.ok for call in trace.llm_calls)
        self.metrics.llm_ok.inc(good)
        if failed := len(trace.llm_calls) - good:
            self.metrics.llm_failed.inc(failed)
        if outcome == "bad_request" or trace.end_ns is None:
            self.metrics.count(outcome)
        else:
            traced = trace.trace_id if self._spans is not None and trace.sampled else None
            self.metrics.count(outcome, trace.end_ns - trace.start_ns, traced)
            self.metrics.count_work(trace)
        if self._on_trace is not None:
            self._on_trace(trace, outcome)
        if self._spans is not None and trace.sampled:
            self._spans.add(partial(trace.events, outcome))

    def _check(self, request: InvokeRequest) -> None:
        unknown = [name for name in request.tools if name not in self._tools]
        if unknown:
            raise _Refused(400, "unknown_tool", f"There is no tool named {unknown[0]!r}; there are {self._names()}.")
        if not 0 < request.timeout_ms <= _LONGEST_TIMEOUT_MS:
            raise _Refused(400, "bad_timeout", f"timeout_ms must be above 0 and at most {_LONGEST_TIMEOUT_MS} (a day).")
        if request.stream and not isinstance(self.adapter, Streams):
            raise _Refused(501, "no_stream", f"The adapter of {self._framework} does not stream; ask without `stream`.")

    def _names(self) -> str:
        return ", ".join(self._tools)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, body, headers = await self._route(scope)
        except _Refused as error:
            await _send_problem(send, error.problem, error.headers)
        except Exception as error:  # an adapter's fault in a side endpoint must be an answer, not a dead connection
            report(error)
            await _send_problem(send, Problem("Internal error", 500, "adapter_error", describe(error)))
        else:
            await _respond(send, status, body, headers)

    async def _route(self, scope: Scope) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        method, path = scope["method"], scope["path"]
        if path == "/healthz":
            _only(method, "GET", "HEAD")
            if self._draining:
                raise _Refused(503, "draining", "The host is draining.")
            ready = {"status": "ready", "framework": self._framework, "agentdyno": __version__}
            return 200, _encode(ready), _JSON
        if path == "/metrics":
            _only(method, "GET", "HEAD")
            text, content_type = self.metrics.render(_header(scope, b"accept") or "")
            return 200, text, [(b"content-type", content_type.encode())]
        if path == "/debug/probes":
            _only(method, "GET")
            return 200, _encode(self.probes.report(self._spans)), _JSON
        if path == HEAP_PATH:
            _only(method, "GET")
            return await self._heap_profile()
        if path == INVOKE_PATH:
            _only(method, "POST")
        if path.startswith("/agent/sessions/"):
            _only(method, "DELETE")
            return await self._end_session(path.removeprefix("/agent/sessions/"))
        if path.startswith("/agent/tools/"):
            _only(method, "PUT", "DELETE")
            return await self._change_tool(method, path.removeprefix("/agent/tools/"))
        raise _Refused(404, "not_found", f"There is nothing at {path[:200]}.")

    async def _heap_profile(self) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        if self._heap is None:
            raise _Refused(501, "not_profiling", "This process is timed, so it carries no heap profiler.")
        profile = await asyncio.to_thread(self._heap)
        name = b'attachment; filename="heap.pb.gz"'
        return 200, profile, [(b"content-type", b"application/octet-stream"), (b"content-disposition", name)]

    async def _end_session(self, session_id: str) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        if isinstance(self.adapter, KeepsSessions):
            await self.adapter.end_session(session_id)
        return 204, b"", []

    async def _change_tool(self, method: str, name: str) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        if name not in self._tools:
            raise _Refused(404, "unknown_tool", f"There is no tool named {name[:80]!r}; there are {self._names()}.")
        if not isinstance(self.adapter, ChangesTools):
            detail = f"The adapter of {self._framework} cannot change its tools while it runs."
            raise _Refused(501, "no_dynamic_tools", detail)
        if method == "PUT":
            await self.adapter.add_tool(self._tools[name])
        else:
            await self.adapter.remove_tool(name)
        return 204, b"", []


class _ClientGone(Exception):
    """The client hung up before its request was complete."""


class _Refused(Exception):
    def __init__(self, status: int, code: str, detail: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(detail)
        self.problem = Problem(_TITLES.get(status, "Error"), status, code, detail)
        self.headers = list(headers)


_TITLES = {
    400: "Bad request",
    404: "Not found",
    405: "Method not allowed",
    413: "Request too large",
    501: "Not implemented",
    503: "Not ready",
}


def _only(method: str, *allowed: str) -> None:
    if method not in allowed:
        names = ", ".join(allowed)
        raise _Refused(405, "method", f"This address takes {names}.", [(b"allow", names.encode())])


def _as_problem(error: Exception) -> Problem:
    if isinstance(error, _Refused):
        return error.problem
    return Problem("Bad request", 400, "bad_body", f"The body is not a valid invoke request: {error}.")


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


async def _read_body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MAX_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if not message.get("more_body", False) and size <= MAX_BODY_BYTES:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise _Refused(413, "too_large", f"The body is larger than {MAX_BODY_BYTES} bytes.")


async def _send_problem(send: Send, problem: Problem, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    await _respond(send, problem.status, _encode(problem), [*_PROBLEM, *headers])


async def _respond(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    head = list(headers)
    if status != 204:  # which has no body, and so by RFC 9110 no length either
        head.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
