"""The LLM border for aiohttp."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from agentdyno.host.observer import SENDING, Observer, Origin
from agentdyno.host.trace import CURRENT

_Read = TypeVar("_Read")


class ObservedContent:
    """Stands in for a response's StreamReader: passes everything on and shows each piece to the observer."""

    def __init__(self, content: aiohttp.StreamReader, observer: Observer) -> None:
        self._content = content
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    def stop(self) -> None:
        """The client released the response, wherever it was."""
        self._observer.stop()

    def _saw(self, data: bytes) -> bytes:
        self._observer.feed(data)
        if self._content.at_eof():
            self._observer.finish()
        return data

    async def _observe(self, reading: Awaitable[_Read]) -> _Read:
        try:
            return await reading
        except Exception as error:
            self._observer.fail(error)
            raise

    async def read(self, n: int = -1) -> bytes:
        """See aiohttp.StreamReader.read. To the end it goes by pieces as there, so that the first byte has its time."""
        if n < 0:
            pieces = []
            while piece := await self.readany():
                pieces.append(piece)
            return b"".join(pieces)
        return self._saw(await self._observe(self._content.read(n)))

    async def readany(self) -> bytes:
        """See aiohttp.StreamReader.readany."""
        return self._saw(await self._observe(self._content.readany()))

    async def readline(self, **options: Any) -> bytes:
        """See aiohttp.StreamReader.readline."""
        return self._saw(await self._observe(self._content.readline(**options)))

    async def readuntil(self, separator: bytes = b"\n", **options: Any) -> bytes:
        """See aiohttp.StreamReader.readuntil."""
        return self._saw(await self._observe(self._content.readuntil(separator, **options)))

    async def readexactly(self, n: int) -> bytes:
        """See aiohttp.StreamReader.readexactly."""
        return self._saw(await self._observe(self._content.readexactly(n)))

    async def readchunk(self) -> tuple[bytes, bool]:
        """See aiohttp.StreamReader.readchunk."""
        data, end_of_chunk = await self._observe(self._content.readchunk())
        return self._saw(data), end_of_chunk

    def read_nowait(self, n: int = -1) -> bytes:
        """See aiohttp.StreamReader.read_nowait."""
        return self._saw(self._content.read_nowait(n))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while line := await self.readline():
            yield line

    async def iter_any(self) -> AsyncIterator[bytes]:
        """See aiohttp.StreamReader.iter_any."""
        while data := await self.readany():
            yield data

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """See aiohttp.StreamReader.iter_chunked."""
        while data := await self.read(n):
            yield data

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        """See aiohttp.StreamReader.iter_chunks."""
        while True:
            data, end_of_chunk = await self.readchunk()
            if not data and not end_of_chunk:
                return
            yield data, end_of_chunk


def install(library: str, origin: Origin) -> None:
    """Wrap aiohttp.ClientSession's one method through which all its requests go, and how a response is let go."""
    original = aiohttp.ClientSession._request
    counted = _count_connections()

    async def _request(self: aiohttp.ClientSession, method: str, url: Any, **options: Any) -> aiohttp.ClientResponse:
        trace = CURRENT.get()
        if trace is None or not _is_llm(self, url, origin):
            return await original(self, method, url, **options)
        _serialise(self, options)
        call = trace.begin_llm(_size(options.get("data")))
        headers = CIMultiDict(options.get("headers") or {})
        headers["traceparent"] = trace.traceparent(call.span_id)
        options["headers"] = headers
        observer = Observer(call)
        call.connections = 0 if counted else None
        SENDING.set(call)
        try:
            response = await original(self, method, url, **options)
        except BaseException as error:
            if isinstance(error, aiohttp.ClientResponseError):  # raise_for_status: there was an answer
                call.status = error.status
            observer.fail(error)
            raise
        finally:
            SENDING.set(None)
        if not call.prompt_bytes:  # a body whose size only aiohttp knew, a form for example
            call.prompt_bytes = int(response.request_info.headers.get("content-length", 0))
        observer.begin(response.status, response.headers.get("content-type", ""), _encoding(self, response, options))
        response.content = ObservedContent(response.content, observer)  # type: ignore[assignment]
        return response

    aiohttp.ClientSession._request = _request  # type: ignore[method-assign,assignment]
    for name in ("release", "close"):
        _observe_end(name)


def _count_connections() -> bool:
    """Count each connection that a connector opens for a call; False when this aiohttp does it in some other way."""
    original = getattr(aiohttp.TCPConnector, "_create_connection", None)
    if original is None:
        return False

    async def _create_connection(self: aiohttp.TCPConnector, *arguments: Any, **options: Any) -> Any:
        call = SENDING.get()
        made = await original(self, *arguments, **options)
        if call is not None and call.connections is not None:
            call.connections += 1
        return made

    aiohttp.TCPConnector._create_connection = _create_connection  # type: ignore[method-assign]
    return True


def _observe_end(name: str) -> None:
    original = getattr(aiohttp.ClientResponse, name)

    def let_go(self: aiohttp.ClientResponse) -> Any:
        if isinstance(self.content, ObservedContent):
            self.content.stop()
        return original(self)

    setattr(aiohttp.ClientResponse, name, let_go)


def _is_llm(session: aiohttp.ClientSession, url: Any, origin: Origin) -> bool:
    if isinstance(url, str):
        if url.startswith(origin.text):
            return True
        try:
            url = URL(url)
        except ValueError:  # aiohttp will say what is wrong with it
            return False
    base = getattr(session, "_base_url", None)
    if base is not None and not url.absolute:
        url = base.join(url)
    return origin.matches(url.host, url.port, url.scheme)


def _serialise(session: aiohttp.ClientSession, options: dict[str, Any]) -> None:
    """Turn `json` into a body as aiohttp would, to know its size even when the call fails."""
    own_way = getattr(session, "_json_serialize_bytes", None) is not None
    if options.get("json") is not None and options.get("data") is None and not own_way:
        options["data"] = aiohttp.JsonPayload(options.pop("json"), dumps=session.json_serialize)


def _encoding(session: aiohttp.ClientSession, response: aiohttp.ClientResponse, options: dict[str, Any]) -> str:
    """Of the bytes that the client reads: aiohttp decompresses below us unless it was told not to."""
    asked = options.get("auto_decompress")
    decompressed = session.auto_decompress if asked is None else asked
    return "" if decompressed else response.headers.get("content-encoding", "")


def _size(data: Any) -> int:
    if data is None:
        return 0
    if isinstance(data, (bytes, bytearray, memoryview)):
        return len(data)
    if isinstance(data, str):
        return len(data.encode())
    return getattr(data, "size", None) or 0
