"""The control on the openai SDK: the same turns as any agent framework makes, with no framework.

One client is built in `start` and its connections are reused; nothing is kept between requests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from openai import AsyncOpenAI

from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest

MAX_TURNS = 10


class BareOpenAI:
    """Calls the LLM and the tools it asks for, turn by turn, until it answers in text."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Build the SDK's client; its retries stay at the default (2)."""
        self._client = AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, timeout=llm.timeout_s)
        self._model = llm.model
        self._tools = {tool.name: tool for tool in tools}
        self._system_prompt = system_prompt

    async def invoke(self, request: InvokeRequest) -> str:
        """Run the turns and return the final text."""
        messages, tools = self._messages(request), self._schemas(request)
        for _ in range(MAX_TURNS):
            completion = await self._client.chat.completions.create(model=self._model, messages=messages, tools=tools)
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message)
            messages += await self._run_tools((call.id, call.function.to_dict()) for call in message.tool_calls)
        raise RuntimeError(f"The LLM gave no final answer in {MAX_TURNS} turns.")

    async def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        """The same turns with every completion streamed; yields the text as it comes."""
        messages, tools = self._messages(request), self._schemas(request)
        for _ in range(MAX_TURNS):
            calls: dict[int, dict[str, Any]] = {}
            async with await self._client.chat.completions.create(
                model=self._model, messages=messages, tools=tools, stream=True, stream_options={"include_usage": True}
            ) as chunks:
                async for chunk in chunks:
                    for choice in chunk.choices:  # none in the chunk that carries the usage
                        if choice.delta.content:
                            yield choice.delta.content
                        for part in choice.delta.tool_calls or ():
                            _add_part(calls, part)
            if not calls:
                return
            messages.append({"role": "assistant", "content": None, "tool_calls": list(calls.values())})
            messages += await self._run_tools((call["id"], call["function"]) for call in calls.values())
        raise RuntimeError(f"The LLM gave no final answer in {MAX_TURNS} turns.")

    async def close(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    def _messages(self, request: InvokeRequest) -> list[Any]:
        history = [{"role": message.role, "content": message.content} for message in request.history]
        return [
            {"role": "system", "content": self._system_prompt},
            *history,
            {"role": "user", "content": request.input},
        ]

    def _schemas(self, request: InvokeRequest) -> list[Any]:
        return [self._tools[name].openai_schema() for name in request.tools or self._tools]

    async def _run_tools(self, calls: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, str]]:
        """Run the calls at once; their results as messages, in the same order."""
        return await asyncio.gather(*(self._run_tool(*call) for call in calls))

    async def _run_tool(self, call_id: str, call: dict[str, Any]) -> dict[str, str]:
        result = await self._tools[call["name"]].function(**json.loads(call["arguments"]))
        return {"role": "tool", "tool_call_id": call_id, "content": result}


def _add_part(calls: dict[int, dict[str, Any]], part: Any) -> None:
    """Add a streamed piece of a tool call to those gathered so far: id and name come first, arguments in pieces."""
    empty = {"id": part.id, "type": "function", "function": {"name": "", "arguments": ""}}
    function = calls.setdefault(part.index, empty)["function"]
    function["name"] += part.function.name or ""
    function["arguments"] += part.function.arguments or ""
