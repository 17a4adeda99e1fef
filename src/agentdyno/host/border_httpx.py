"""The LLM border for httpx and httpx2 (the openai SDK and most frameworks go through one of them)."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agentdyno.contract.trace import LlmCall
from agentdyno.host.observer import Observer, Origin
from agentdyno.host.trace import CURRENT

_OPENED = ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete")
_Trace = Callable[[str, dict[str, Any]], Awaitable[None]]


def _count_connections(call: LlmCall, theirs: _Trace | None) -> _Trace:
    """httpcore's `trace` extension, which names each connection that is opened for the request.

    theirs: one that was asked for already, and still gets everything.
    """

    async def trace(event: str, info: dict[str, Any]) -> None:
        if event in _OPENED:
            call.connections = (call.connections or 0) + 1
        if theirs is not None:
            await theirs(event, info)

    return trace


def install(library: str, origin: Origin) -> None:
    """Wrap `library`'s AsyncHTTPTransport, through which every request of its async clients goes."""
    httpx = importlib.import_module(library)
    transport = httpx.AsyncHTTPTransport
    original = transport.handle_async_request

    class ObservedStream(httpx.AsyncByteStream):  # type: ignore[misc,name-defined]
        """Passes a response body on and shows each piece to the observer."""

        def __init__(self, stream: Any, observer: Observer) -> None:
            self._stream = stream
            self._observer = observer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for piece in self._stream:
                    self._observer.feed(piece)
                    yield piece
            except Exception as error:
                self._observer.fail(error)
                raise
            self._observer.finish()

        async def aclose(self) -> None:
            self._observer.stop()
            await self._stream.aclose()

    async def handle_async_request(self: Any, request: Any) -> Any:
        trace = CURRENT.get()
        url = request.url
        if trace is None or not origin.matches(url.host, url.port, url.scheme):
            return await original(self, request)
        call = trace.begin_llm(int(request.headers.get("content-length", 0)))
        request.headers["traceparent"] = trace.traceparent(call.span_id)
        observer = Observer(call)
        call.connections = 0
        request.extensions = {**request.extensions, "trace": _count_connections(call, request.extensions.get("trace"))}
        try:
            response = await original(self, request)
        except BaseException as error:
            observer.fail(error)
            raise
        headers = response.headers
        observer.begin(response.status_code, headers.get("content-type", ""), headers.get("content-encoding", ""))
        response.stream = ObservedStream(response.stream, observer)
        return response

    transport.handle_async_request = handle_async_request
