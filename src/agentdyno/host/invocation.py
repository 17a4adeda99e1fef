"""One admitted request: the framework's task, its time-out, a client that leaves, and the answer."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from agentdyno.contract.adapter import Adapter, Streams
from agentdyno.contract.invoke import PROBLEM_TYPE, InvokeRequest, InvokeResponse, Problem
from agentdyno.host.trace import CURRENT, RequestTrace, ToolRun

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_encode = msgspec.json.encode
_LAST_EVENT_S = 5.0
_REPORTED_FAULTS = 20
_faults_reported = 0


class Invocation:
    """Runs the adapter for one request in a task of its own, so that it can be cancelled without waiting for it.

    A framework that swallows its cancellation cannot hold the answer up; the closed trace makes its further LLM
    and tool calls fail. enter: called in the framework's context before it begins.
    """

    def __init__(
        self,
        adapter: Adapter,
        request: InvokeRequest,
        trace: RequestTrace,
        receive: Receive,
        send: Send,
        enter: Callable[[RequestTrace], None] | None = None,
    ) -> None:
        self._adapter = adapter
        self._request = request
        self._trace = trace
        self._receive = receive
        self._send = send
        self._enter = enter

    async def run(self) -> str:
        """Serve the request to its last byte; returns the outcome's label for the metrics."""
        work = self._stream() if self._request.stream else self._adapter.invoke(self._request)
        context = contextvars.copy_context()
        context.run(CURRENT.set, self._trace)
        if self._enter is not None:
            context.run(self._enter, self._trace)
        task: asyncio.Task[str] = asyncio.get_running_loop().create_task(work, context=context)
        leaving = asyncio.ensure_future(self._receive())  # after the body, the next message is the disconnect
        try:
            await asyncio.wait(
                (task, leaving), timeout=self._request.timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:  # the server gives the request up, at the end of its drain
            self._abandon(task)
            raise
        finally:
            gone = leaving.done()
            leaving.cancel()
            self._trace.close()
        try:
            if task.done():
                return await self._answer(task)
            self._abandon(task)
            return "client_gone" if gone else await self._time_out()
        except _ClientStuck:
            return "client_gone"

    async def _time_out(self) -> str:
        detail = f"The framework did not answer within {self._request.timeout_ms} ms."
        await self._problem(Problem("Timed out", 504, "timeout", detail))
        return "timeout"

    def _abandon(self, task: asyncio.Task[str]) -> None:
        """Cancel the framework's task without waiting for it; nothing of it reaches the client any more."""
        task.cancel()
        task.add_done_callback(_reap)
        if self._sender is not None:
            self._sender.cancel()

    async def _answer(self, task: asyncio.Task[str]) -> str:
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        body = b""
        if error is None:
            try:
                body = self._encoded(task.result())
            except (TypeError, ValueError) as unfit:
                error = unfit
        if error is not None:
            report(error)
            await self._problem(Problem("The framework failed", 500, "framework_error", describe(error)))
            return "error"
        if self._request.stream:
            await self._last_event("final", body)
        else:
            await self._whole(200, body, b"application/json")
        return "ok"

    def _encoded(self, output: object) -> bytes:
        """The response's JSON. Raises TypeError or ValueError when the output is not text that JSON can carry."""
        if not isinstance(output, str):
            raise TypeError(f"the adapter's output is {type(output).__name__}, not str")
        return _encode(self._response(output))

    def _response(self, output: str) -> InvokeResponse:
        calls = tuple(run.as_call() for run in self._trace.tools)
        return InvokeResponse(self._request.session_id, output, calls, self._trace.usage())

    async def _problem(self, problem: Problem) -> None:
        if self._request.stream and self._streaming:
            await self._last_event("error", _encode(problem))
        else:
            await self._whole(problem.status, _encode(problem), PROBLEM_TYPE.encode())

    async def _whole(self, status: int, body: bytes, content_type: bytes) -> None:
        headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    # streaming

    _streaming = False
    _sender: asyncio.Task[None] | None = None

    async def _stream(self) -> str:
        """Pass the adapter's text on as `token` events, in between what the tool border sees."""
        adapter = self._adapter
        if not isinstance(adapter, Streams):
            raise TypeError("the adapter does not stream")
        queue: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()

        def heard(kind: str, run: ToolRun) -> None:
            queue.put_nowait((kind, _encode(run.as_call())))

        self._trace.listener = heard
        self._sender = asyncio.ensure_future(self._send_events(queue))
        pieces: list[str] = []
        try:
            async for piece in adapter.stream(self._request):
                if self._trace.closed:  # it swallowed its cancellation
                    break
                pieces.append(piece)
                queue.put_nowait(("token", _encode({"text": piece})))
        finally:
            # What came before a failure is sent before it. A time-out has cancelled the sender, so this cannot wait.
            queue.put_nowait(None)
            await asyncio.wait((self._sender,))
        self._sender.result()
        return "".join(pieces)

    async def _send_events(self, queue: asyncio.Queue[tuple[str, bytes] | None]) -> None:
        while (event := await queue.get()) is not None:
            await self._event(*event)

    async def _last_event(self, kind: str, data: bytes) -> None:
        """Raises _ClientStuck when the client has stopped reading: it must not hold a place among those in flight."""
        try:
            async with asyncio.timeout(_LAST_EVENT_S):
                await self._event(kind, data, last=True)
        except TimeoutError:
            raise _ClientStuck from None

    async def _event(self, kind: str, data: bytes, *, last: bool = False) -> None:
        if not self._streaming:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._streaming = True
        body = b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})


class _ClientStuck(Exception):
    """The client keeps its connection open and does not read from it."""


def _reap(task: asyncio.Task[str]) -> None:
    if not task.cancelled() and task.exception() is not None:
        report(task.exception())


def describe(error: BaseException) -> str:
    """Class and message, as JSON can carry them."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception as broken:  # an exception that cannot even say what it is
        text = f"{type(error).__name__} (its message cannot be read: {type(broken).__name__})"
    return text[:500].encode(errors="backslashreplace").decode()


def report(error: BaseException | None) -> None:
    """The first faults go to the log with their traceback; an overload must not turn into a logging test."""
    global _faults_reported
    _faults_reported += 1
    if error is not None and _faults_reported <= _REPORTED_FAULTS:
        text = "".join(traceback.format_exception(error))
        sys.stderr.write(text.encode(errors="backslashreplace").decode())
        if _faults_reported == _REPORTED_FAULTS:
            sys.stderr.write("Further faults are counted in /metrics and not logged.\n")
