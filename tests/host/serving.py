"""A host in front of an in-test adapter: on a real socket, or driven by single ASGI messages."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.contract.adapter import Adapter, LlmEndpoint
from agentdyno.contract.scenario import BackendTiming, Workload
from agentdyno.host.app import Host
from agentdyno.host.metrics import HostMetrics
from agentdyno.host.tools import build_tools
from agentdyno.host.trace import RequestTrace
from tests.host.adapters import KEY

LLM = LlmEndpoint("http://127.0.0.1:1/v1", "m-1", "none", 5.0)


def make_host(
    adapter: Adapter, *, admission: int | None = 64, timing: BackendTiming | None = None, **options: Any
) -> Host:
    metrics = HostMetrics("bare")
    workload = Workload(timing=timing or BackendTiming())
    tools = build_tools(workload, KEY, parallel=False, on_stray=metrics.stray_calls.inc)
    return Host(adapter, LLM, tools, "Be kind.", framework="bare", admission=admission, metrics=metrics, **options)


def counts(host: Host) -> dict[str, float]:
    """Requests by outcome that is not at 0, and the gauge of those in flight as `in_flight`."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(host.metrics.render()[0].decode()):
        for sample in family.samples:
            if sample.name == "agentdyno_requests_total" and sample.value:
                found[sample.labels["outcome"]] = sample.value
            if sample.name == "agentdyno_requests_in_flight":
                found["in_flight"] = sample.value
    return found


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self) -> tuple[int, str]:
        """Checks that this is a well-formed problem, and returns its status and code."""
        assert self.headers["content-type"] == "application/problem+json"
        found = self.json()
        assert set(found) == {"title", "status", "code", "detail"}
        assert all(isinstance(found[key], str) and found[key] for key in ("title", "code", "detail"))
        assert found["status"] == self.status
        return self.status, found["code"]


def request_body(**fields: Any) -> bytes:
    return json.dumps({"session_id": "s-1", "input": "hello?", **fields}).encode()


class Connection:
    """One TCP connection to the host, spoken by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, method: str, path: str, body: bytes | None = None, headers: tuple[str, ...] = ()) -> None:
        head = [f"{method} {path} HTTP/1.1", "host: test", *headers]
        if body is not None:
            head.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join([*head, "", ""]).encode() + (body or b""))

    async def head(self) -> Answer:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {key.lower(): value.strip() for key, value in (line.split(":", 1) for line in lines[1:] if line)}
        return Answer(int(lines[0].split()[1]), headers, b"")

    async def answer(self, *, bodiless: bool = False) -> Answer:
        answer = await self.head()
        if bodiless or answer.status == 204:
            return answer
        if answer.headers.get("transfer-encoding") == "chunked":
            answer.body = b"".join([piece async for piece in self.chunks()])
        else:
            answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
        return answer

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()

    async def event(self) -> tuple[str, Any]:
        """The next server-sent event; each is one chunk."""
        size = int(await self.reader.readline(), 16)
        return parse_events((await self.reader.readexactly(size + 2))[:-2])[0]

    async def ended(self) -> bool:
        return await self.reader.read() == b""

    def close(self) -> None:
        self.writer.transport.abort()


def parse_events(body: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        kind, data = block.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


@dataclass
class Served:
    host: Host
    port: int
    traces: list[tuple[RequestTrace, str]]
    connections: list[Connection] = field(default_factory=list)

    async def connect(self) -> Connection:
        made = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self.connections.append(made)
        return made

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: tuple[str, ...] = (),
        *,
        bodiless: bool = False,
    ) -> Answer:
        connection = await self.connect()
        connection.send(method, path, body, (*headers, "connection: close"))
        answer = await connection.answer(bodiless=bodiless)
        assert await connection.ended()
        return answer

    async def invoke(self, **fields: Any) -> Answer:
        return await self.ask("POST", "/agent/invoke", request_body(**fields))

    async def outcome(self, number: int = 0) -> str:
        """The outcome of the n-th request; waits for it."""
        await until(lambda: len(self.traces) > number)
        return self.traces[number][1]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(adapter: Adapter, **options: Any) -> AsyncIterator[Served]:
    """The host on a free port, with uvicorn as `python -m agentdyno.host` has it but for the loop."""
    traces: list[tuple[RequestTrace, str]] = []
    host = make_host(adapter, on_trace=lambda trace, outcome: traces.append((trace, outcome)), **options)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        config = uvicorn.Config(host, http="httptools", loop="asyncio", lifespan="on", log_config=None, ws="none",
                                server_header=False, date_header=False, timeout_graceful_shutdown=5)  # fmt: skip
        server = uvicorn.Server(config)
        running = asyncio.ensure_future(server._serve([listener]))
        served = Served(host, listener.getsockname()[1], traces)
        try:
            await until(lambda: server.started or running.done())
            yield served
        finally:
            for connection in served.connections:
                connection.close()
            server.should_exit = True
            await running


class Exchange:
    """One request as ASGI messages: what the host is given one by one, and what it sends."""

    def __init__(self, host: Host, *, path: str = "/agent/invoke", method: str = "POST", stuck_after: int = -1) -> None:
        self._given: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self._stuck_after = stuck_after
        scope = {"type": "http", "method": method, "path": path, "headers": []}
        self.task = asyncio.ensure_future(host(scope, self._given.get, self._send))

    async def _send(self, message: Any) -> None:
        if len(self.sent) == self._stuck_after:
            await asyncio.Event().wait()  # as uvicorn does while the client does not read
        self.sent.append(message)

    def give(self, body: bytes, *, more: bool = False) -> None:
        self._given.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def hang_up(self) -> None:
        self._given.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> Answer:
        await self.task
        assert [message["type"] for message in self.sent[:1]] == ["http.response.start"]
        assert not self.sent[-1].get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}
        return Answer(self.sent[0]["status"], headers, b"".join(message["body"] for message in self.sent[1:]))
