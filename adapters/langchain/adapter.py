"""LangChain as its documentation builds an agent: `create_agent` with a `ChatOpenAI` model and `@tool` functions.

Model, tools and graph are built once; the graph keeps nothing between requests, since it has no checkpointer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.messages import AIMessageChunk
from langchain.tools import tool
from langchain_openai import ChatOpenAI

from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest


class LangChain:
    """Hosts one compiled agent graph for each set of tools that a request may ask for."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Build the model, wrap the tools, and compile the graph that has all of them."""
        self._model = ChatOpenAI(model=llm.model, base_url=llm.base_url, api_key=llm.api_key, timeout=llm.timeout_s)
        self._tools = {made.name: tool(made.name, description=made.description)(made.function) for made in tools}
        self._system_prompt = system_prompt
        self._agents: dict[tuple[str, ...], Any] = {}
        self._agent(())

    async def invoke(self, request: InvokeRequest) -> str:
        """Run the graph to its end and return the last message's text."""
        result = await self._agent(request.tools).ainvoke({"messages": _messages(request)})
        return str(result["messages"][-1].text)

    async def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        """Yield the model's text tokens; tool results come by the same way and are left out."""
        agent = self._agent(request.tools)
        async for message, _ in agent.astream({"messages": _messages(request)}, stream_mode="messages"):
            if isinstance(message, AIMessageChunk) and message.text:
                yield str(message.text)

    async def close(self) -> None:
        """Forget the graphs. The HTTP client is not ours to close: langchain-openai shares one in the process."""
        self._agents.clear()

    def _agent(self, names: tuple[str, ...]) -> Any:
        names = names or tuple(self._tools)
        if names not in self._agents:
            offered = [self._tools[name] for name in names]
            self._agents[names] = create_agent(self._model, tools=offered, system_prompt=self._system_prompt)
        return self._agents[names]


def _messages(request: InvokeRequest) -> list[dict[str, str]]:
    history = [{"role": message.role, "content": message.content} for message in request.history]
    return [*history, {"role": "user", "content": request.input}]
