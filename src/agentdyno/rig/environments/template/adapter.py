"""my-framework, hosted. As it stands it is a plain loop over aiohttp; put the framework where the TODOs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson

from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest


class MyFramework:
    """Built as the framework's own documentation tells a user to."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Build the client and the agent once."""
        # TODO: build the framework's LLM client from llm.base_url, llm.model, llm.api_key and llm.timeout_s, and its
        # agent from the tools. A tool is an async function with typed parameters (tool.function), and also has a
        # name, a description and a JSON schema (tool.parameters). Switch telemetry off in adapter.toml ([variant.env]).
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
        """Run the agent to its final answer."""
        # TODO: hand request.history and request.input to the framework's agent, await it, and return its last text.
        # It must be cancellable, and must keep nothing from one request to the next.
        history = [{"role": message.role, "content": message.content} for message in request.history]
        messages: list[dict[str, Any]] = [self.system, *history, {"role": "user", "content": request.input}]
        offered = [self.tools[name].openai_schema() for name in request.tools or self.tools]
        while True:
            body = orjson.dumps({"model": self.model, "messages": messages, "tools": offered})
            async with self.session.post(self.url, data=body) as response:
                answer = orjson.loads(await response.read())["choices"][0]["message"]
            if not answer.get("tool_calls"):
                return str(answer["content"])
            messages.append(answer)
            for call in answer["tool_calls"]:
                arguments = orjson.loads(call["function"]["arguments"])
                result = await self.tools[call["function"]["name"]].function(**arguments)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def close(self) -> None:
        """Release what start built."""
        # TODO: close the framework's client.
        await self.session.close()
