"""A real recorder on real sockets, in the test's own loop; and records to give it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from agentdyno.contract.trace import Goodbye, Hello, LlmCall, Record, RequestEvents, ServedCall, Service, ToolSpan
from agentdyno.record.export import Exporter
from agentdyno.record.recorder import Recorder, otlp_application

S = 1_000_000_000
UNIX_NS = 1_700_000_000 * S
TRACE = bytes(range(16))


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def frame(*records: Record) -> bytes:
    body = msgspec.msgpack.encode(records)
    return len(body).to_bytes(4, "big") + body


def hello(service: Service = Service.HOST, unix_ns: int = UNIX_NS, machine: str = "m") -> Hello:
    return Hello(service, 0, unix_ns, machine)


def goodbye(service: Service = Service.HOST, recorded: int = 1, dropped: int = 0) -> Goodbye:
    return Goodbye(service, recorded, dropped)


def request(number: int = 0, **fields: Any) -> RequestEvents:
    """A chain: plan, tool, plan, tool, plan, tool, reflect, each of 10 ns with 1 ns between."""
    base = 1000 * number
    calls = [
        LlmCall(100 + i, at + 10, 1000, 200, at + 15, at + 20, False, i < 3, 50, 9, "m")
        for i, at in enumerate(range(base, base + 88, 22))
    ]
    names = ("order_status", "refund_policy", "resolution")
    tools = [ToolSpan(200 + i, names[i], base + 22 * i + 21, base + 22 * i + 31, None) for i in range(3)]
    whole = RequestEvents(TRACE, 7, 5000 + number, base, base + 100, "ok", [], calls, tools)
    return msgspec.structs.replace(whole, **fields)


def served(number: int = 0, parent: int = 100) -> ServedCall:
    return ServedCall(TRACE, parent, 9000 + number, 11, 2, 13, 19, 200, 50, 9)


@dataclass
class Recording:
    recorder: Recorder
    folder: Path
    raw: tuple[str, int]
    url: str

    async def send(self, *pieces: bytes, close: bool = True) -> bytes:
        """One sender that writes these pieces, and what it was answered."""
        reader, writer = await asyncio.open_connection(*self.raw)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if close:
            writer.write_eof()
        answer = b""
        with suppress(ConnectionResetError):  # it is cut off with something left unread
            while close and (piece := await reader.read(100)):
                answer += piece
        writer.close()
        return answer


@asynccontextmanager
async def recording(folder: Path, exporter: Exporter | None = None) -> AsyncIterator[Recording]:
    recorder = Recorder(folder, exporter)
    server = await asyncio.start_server(recorder.on_connection, "127.0.0.1", 0)
    runner = web.AppRunner(otlp_application(recorder), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield Recording(recorder, folder, server.sockets[0].getsockname(), f"http://127.0.0.1:{port}/v1/traces")
    finally:
        server.close()
        await runner.cleanup()
        await asyncio.to_thread(recorder.close)
