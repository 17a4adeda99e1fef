"""Small adapters whose one request is a function of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest
from agentdyno.contract.proof import Stage, chain, order_id
from agentdyno.host.trace import now_ns

KEY = b"k" * 16
ORDER = order_id(1, Stage.MEASURE, 7)
LINKS = chain(KEY, ORDER)


async def hello(_: InvokeRequest) -> str:
    return "hello"


class Plain:
    """Answers with what `work` returns."""

    def __init__(self, work: Callable[[InvokeRequest], Awaitable[object]] = hello) -> None:
        self.work = work
        self.started: tuple[LlmEndpoint, list[str], str] | None = None
        self.closed = False

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        self.tools = {tool.name: tool.function for tool in tools}
        self.started = (llm, list(self.tools), system_prompt)

    async def invoke(self, request: InvokeRequest) -> str:
        return await self.work(request)  # type: ignore[return-value]

    async def close(self) -> None:
        self.closed = True

    async def work_the_chain(self, _: InvokeRequest) -> str:
        for name, reference, _made in LINKS:
            await self.tools[name](reference)
        return f"done: {LINKS[-1][2]}"


class Streaming(Plain):
    """Streams what `pieces` yields; it is a function of the adapter, so that it can call the tools."""

    def __init__(self, pieces: Callable[[Streaming], AsyncIterator[str]]) -> None:
        super().__init__()
        self.pieces = pieces

    async def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        async for piece in self.pieces(self):
            yield piece


class Changing(Plain):
    """Remembers sessions that end and tools that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str]] = []

    async def add_tool(self, tool: Tool) -> None:
        self.changes.append(("add", tool.name))

    async def remove_tool(self, name: str) -> None:
        self.changes.append(("remove", name))

    async def end_session(self, session_id: str) -> None:
        if session_id == "broken":
            raise LookupError("the session store is gone")
        self.changes.append(("end", session_id))


class Held:
    """Work that the test holds: each call says that it has begun and waits until it is let go, or was cancelled."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self._changed = asyncio.Condition()

    async def __call__(self, _: InvokeRequest) -> str:
        async with self._changed:
            self.begun += 1
            self._changed.notify_all()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            async with self._changed:
                self._changed.notify_all()
            raise
        return "held"

    async def until(self, *, begun: int = 0, cancelled: int = 0) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.begun >= begun and self.cancelled >= cancelled)


def busy(milliseconds: float) -> None:
    """Blocks the thread."""
    end = now_ns() + milliseconds * 1e6
    while now_ns() < end:
        pass
