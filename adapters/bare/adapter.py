"""The control: the four LLM calls and the three tools of a request, in a plain loop and no framework."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import orjson

from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest

Message = dict[str, Any]


class Bare:
    """Sends the messages, runs the tools that the LLM asks for, and sends again until it answers."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Open the one session."""
        self.model = llm.model
        self.tools = {tool.name: tool for tool in tools}
        self.system = {"role": "system", "content": system_prompt}
        self.url = llm.base_url + "/chat/completions"
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=llm.timeout_s),
            headers={"Authorization": f"Bearer {llm.api_key}", "Content-Type": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            raise_for_status=True,
        )

    async def invoke(self, request: InvokeRequest) -> str:
        """The loop, to the final answer."""
        messages, tools = self.begin(request)
        while True:
            async with self.session.post(self.url, data=self.body(messages, tools)) as response:
                message = orjson.loads(await response.read())["choices"][0]["message"]
            if not message.get("tool_calls"):
                return str(message["content"])
            messages += [message, *await self.run_tools(message["tool_calls"])]

    async def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        """The same loop with every LLM answer streamed."""
        messages, tools = self.begin(request)
        calls: dict[int, dict[str, Any]] = {0: {}}
        while calls:
            calls = {}
            async with self.session.post(self.url, data=self.body(messages, tools, stream=True)) as response:
                async for line in response.content:
                    if not line.startswith(b"data: {"):
                        continue
                    for choice in orjson.loads(line[6:])["choices"]:
                        if choice["delta"].get("content"):
                            yield choice["delta"]["content"]
                        for part in choice["delta"].get("tool_calls") or ():
                            call = calls.setdefault(part["index"], part | {"function": {"name": "", "arguments": ""}})
                            call["function"]["name"] += part["function"].get("name") or ""
                            call["function"]["arguments"] += part["function"].get("arguments") or ""
            messages.append({"role": "assistant", "content": None, "tool_calls": list(calls.values())})
            messages += await self.run_tools(list(calls.values()))

    def begin(self, request: InvokeRequest) -> tuple[list[Message], list[dict[str, Any]]]:
        """The first messages and the tools on offer."""
        history = [{"role": message.role, "content": message.content} for message in request.history]
        messages = [self.system, *history, {"role": "user", "content": request.input}]
        return messages, [self.tools[name].openai_schema() for name in request.tools or self.tools]

    def body(self, messages: list[Message], tools: list[dict[str, Any]], *, stream: bool = False) -> bytes:
        """The body of one LLM call."""
        fields: dict[str, Any] = {"model": self.model, "messages": messages, "tools": tools}
        if stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return orjson.dumps(fields)

    async def run_tools(self, calls: list[dict[str, Any]]) -> list[Message]:
        """Run the calls at once; their results as messages, in the same order."""
        functions = [call["function"] for call in calls]
        results = await asyncio.gather(
            *(self.tools[it["name"]].function(**orjson.loads(it["arguments"])) for it in functions)
        )
        return [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(calls, results, strict=True)
        ]

    async def close(self) -> None:
        """Close the session."""
        await self.session.close()
