"""An LLM played by the test, behind a real socket on 127.0.0.1."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Status:
    """An answer that is only a status."""

    code: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "no"


@dataclass
class Events:
    """An event stream, written piece by piece. broken: the connection is cut after the last piece."""

    pieces: Sequence[bytes]
    broken: bool = False


class Hang:
    """Never answers."""


class Cut:
    """Cuts the connection without an answer."""


def says(text: str | None, *calls: tuple[str, Any]) -> dict[str, Any]:
    """A completion with text or tool calls; a call's arguments may be a str, to be sent as they are."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"id-{position}-{name}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for position, (name, given) in enumerate(calls)
        ]
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }


def streamed(completion: dict[str, Any], *, newline: str = "\n") -> bytes:
    """The same completion as an event stream: text by two characters, a call's arguments by three."""
    message = completion["choices"][0]["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    text = message["content"] or ""
    deltas += [{"content": text[at : at + 2]} for at in range(0, len(text), 2)]
    for index, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        start = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [start]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + 3]}}]}
            for at in range(0, len(arguments), 3)
        ]
    parts: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    parts.append({"choices": [{"index": 0, "delta": {}, "finish_reason": completion["choices"][0]["finish_reason"]}]})
    parts.append({"choices": [], "usage": completion["usage"]})
    events = [": keep-alive", *(f"data: {json.dumps(part, ensure_ascii=False)}" for part in parts), "data: [DONE]"]
    return "".join(event + newline + newline for event in events).encode()


Reaction = dict[str, Any] | Status | Events | Hang | Cut


class FakeLlm:
    """Answers by the script: a list of reactions in order, or a function of the request's body.

    requests: the bodies received. hung_up: set when a client goes away from a Hang. connections: how many
    connections carried the requests.
    """

    def __init__(self, script: Sequence[Reaction] | Callable[[dict[str, Any]], Reaction]) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.hung_up = asyncio.Event()
        self.asked = asyncio.Event()
        self.url = ""
        self._connections: set[Any] = set()

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self._connections.add(request.transport)
        self.asked.set()
        reaction = self.script(body) if callable(self.script) else self.script[len(self.requests) - 1]
        if isinstance(reaction, Status):
            return web.Response(status=reaction.code, headers=reaction.headers, text=reaction.body)
        if isinstance(reaction, Hang):
            try:
                await asyncio.sleep(3600)
            finally:
                self.hung_up.set()
        if isinstance(reaction, Cut):
            request.transport.close()
            return web.Response()
        if isinstance(reaction, dict) and body.get("stream"):
            reaction = Events([streamed(reaction)])
        if isinstance(reaction, Events):
            return await self.write_events(request, reaction)
        return web.json_response(reaction)

    async def write_events(self, request: web.Request, events: Events) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in events.pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if events.broken:
            request.transport.close()
        return response

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[FakeLlm]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()


class Sleeps:
    """A sleep that takes no time and notes what was asked for."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked_s.append(seconds)
