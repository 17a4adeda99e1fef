"""The three HTTP client libraries behind one shape, each used as its own documentation shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx
import httpx2

LIBRARIES = ("aiohttp", "httpx", "httpx2")
_MODULES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}


class Client:
    """post: the whole answer as (status, body). pieces: the body as it arrives, not decoded; closes when left."""

    @classmethod
    @asynccontextmanager
    async def of(cls, library: str) -> AsyncIterator[Client]:
        if library == "aiohttp":
            async with aiohttp.ClientSession() as session:
                yield _Aiohttp(session)
        else:
            async with _MODULES[library].AsyncClient() as client:
                yield _Httpx(client)

    async def post(self, url: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        raise NotImplementedError

    def pieces(self, url: str, body: bytes = b"{}") -> Any:
        raise NotImplementedError


class _Aiohttp(Client):
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def post(self, url: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        async with self.session.post(url, data=body, headers=headers) as response:
            return response.status, await response.read()

    @asynccontextmanager
    async def pieces(self, url: str, body: bytes = b"{}") -> AsyncIterator[AsyncIterator[bytes]]:
        async with self.session.post(url, data=body) as response:
            yield response.content.iter_any()


class _Httpx(Client):
    def __init__(self, client: Any) -> None:
        self.client = client

    async def post(self, url: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        response = await self.client.post(url, content=body, headers=headers)
        return response.status_code, response.content

    @asynccontextmanager
    async def pieces(self, url: str, body: bytes = b"{}") -> AsyncIterator[AsyncIterator[bytes]]:
        async with self.client.stream("POST", url, content=body) as response:
            yield response.aiter_raw()
