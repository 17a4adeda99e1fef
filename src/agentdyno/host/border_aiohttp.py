"""The LLM border for aiohttp."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from agentdyno.host.border import Observer, Origin
from agentdyno.host.trace import CURRENT


class ObservedContent:
    """Stands in for a response's StreamReader: passes everything on and shows each piece to the observer."""

    def __init__(self, content: aiohttp.StreamReader, observer: Observer) -> None:
        self._content = content
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def _observe(self, reading: Any) -> bytes:
        try:
            data: bytes = await reading
        except Exception as error:
            self._observer.fail(error)
            raise
        self._observer.feed(data)
        if self._content.at_eof():
            self._observer.finish()
        return data

    async def read(self, n: int = -1) -> bytes:
        """See aiohttp.StreamReader.read."""
        return await self._observe(self._content.read(n))

    async def readany(self) -> bytes:
        """See aiohttp.StreamReader.readany."""
        return await self._observe(self._content.readany())

    async def readline(self) -> bytes:
        """See aiohttp.StreamReader.readline."""
        return await self._observe(self._content.readline())

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        """See aiohttp.StreamReader.readuntil."""
        return await self._observe(self._content.readuntil(separator))

    async def readexactly(self, n: int) -> bytes:
        """See aiohttp.StreamReader.readexactly."""
        return await self._observe(self._content.readexactly(n))

    async def readchunk(self) -> tuple[bytes, bool]:
        """See aiohttp.StreamReader.readchunk."""
        data, end_of_chunk = await self._content.readchunk()
        self._observer.feed(data)
        if self._content.at_eof():
            self._observer.finish()
        return data, end_of_chunk

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


def install(origin: Origin) -> None:
    """Wrap aiohttp.ClientSession's one method through which all its requests go."""
    original = aiohttp.ClientSession._request

    async def _request(self: aiohttp.ClientSession, method: str, url: Any, **options: Any) -> aiohttp.ClientResponse:
        trace = CURRENT.get()
        if trace is None or not _is_llm(self, url, origin):
            return await original(self, method, url, **options)
        if options.get("json") is not None:  # serialised here as aiohttp would, to know its size
            options["data"] = aiohttp.JsonPayload(options.pop("json"), dumps=self.json_serialize)
        call = trace.begin_llm(_size(options.get("data")))
        headers = CIMultiDict(options.get("headers") or {})
        headers["traceparent"] = trace.traceparent(call.span_id)
        options["headers"] = headers
        observer = Observer(call)
        try:
            response = await original(self, method, url, **options)
        except BaseException as error:
            observer.fail(error)
            raise
        observer.begin(response.status, response.headers.get("content-type", ""), "")  # aiohttp decompresses below us
        response.content = ObservedContent(response.content, observer)  # type: ignore[assignment]
        return response

    aiohttp.ClientSession._request = _request  # type: ignore[method-assign,assignment]


def _is_llm(session: aiohttp.ClientSession, url: Any, origin: Origin) -> bool:
    if isinstance(url, str):
        if url.startswith(origin.text):
            return True
        url = URL(url)
    base = getattr(session, "_base_url", None)
    if base is not None and not url.absolute:
        url = base.join(url)
    return origin.matches(url.host, url.port, url.scheme)


def _size(data: Any) -> int:
    if data is None:
        return 0
    if isinstance(data, (bytes, bytearray, memoryview)):
        return len(data)
    if isinstance(data, str):
        return len(data.encode())
    return getattr(data, "size", None) or 0
