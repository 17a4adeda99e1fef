"""An LLM played on a real socket, byte by byte as the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CALLS = [{"id": "c1", "type": "function", "function": {"name": "order_status", "arguments": '{"reference": "é"}'}}]
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def whole(*, tools: bool, usage: bool = True, model: str = "m-1") -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": None if tools else 'héllo "usage"'}
    if tools:
        message["tool_calls"] = CALLS
    answer: dict[str, Any] = {"model": model, "choices": [{"index": 0, "message": message}]}
    if usage:
        answer["usage"] = USAGE
    return json.dumps(answer, ensure_ascii=False).encode()


def events(*, tools: bool, usage: bool = True, model: str = "m-1", newline: str = "\n", done: bool = True) -> bytes:
    says = {"tool_calls": [{"index": 0, **CALLS[0]}]} if tools else {"content": 'héllo "tool_calls"'}
    parts: list[dict[str, Any]] = [
        {"model": model, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {"model": model, "choices": [{"index": 0, "delta": says}]},
    ]
    if usage:
        parts.append({"model": model, "choices": [], "usage": USAGE})
    lines = [f"data: {json.dumps(part, ensure_ascii=False)}" for part in parts] + ["data: [DONE]"] * done
    return "".join(f"{line}{newline}{newline}" for line in [": a comment", *lines]).encode()


@dataclass
class Asked:
    """A request that arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


@dataclass
class Reply:
    """What is sent back. gate: waited for before each piece but the first. cut: hang up before the body's end."""

    pieces: list[bytes]
    status: int = 200
    content_type: str = "application/json"
    encoding: str = ""
    chunked: bool = False
    cut: bool = False
    gate: asyncio.Event | None = None


class FakeLlm:
    """`async with FakeLlm(reply)`: answers every request with what `reply` (a Reply, or made from the request) says."""

    def __init__(self, reply: Reply | Callable[[Asked], Reply] | None = None) -> None:
        self.reply = reply if reply is not None else Reply([whole(tools=False)])
        self.asked: list[Asked] = []
        self.arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> FakeLlm:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.base_url = f"{self.root}/v1"
        self.url = f"{self.base_url}/chat/completions"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                self.arrived.set()
                reply = self.reply if isinstance(self.reply, Reply) else self.reply(asked)
                await _write(writer, reply)
                if reply.cut:
                    return
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)


@dataclass
class _Head:
    method: str = ""
    target: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = lines[0].split(" ")
    headers = [(key.lower(), value.strip()) for key, value in (line.split(":", 1) for line in lines[1:] if line)]
    named = dict(headers)
    body = b""
    if named.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(named.get("content-length", 0)))
    return Asked(method, target, headers, body)


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    head = [f"HTTP/1.1 {reply.status} Whatever", f"content-type: {reply.content_type}"]
    if reply.encoding:
        head.append(f"content-encoding: {reply.encoding}")
    size = sum(map(len, reply.pieces)) + (1 if reply.cut else 0)
    head.append("transfer-encoding: chunked" if reply.chunked else f"content-length: {size}")
    writer.write("\r\n".join([*head, "", ""]).encode())
    for number, piece in enumerate(reply.pieces):
        if number and reply.gate is not None:
            await writer.drain()
            await reply.gate.wait()
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if reply.chunked else piece)
    if reply.chunked and not reply.cut:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
