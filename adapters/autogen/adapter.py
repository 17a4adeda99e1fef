"""AutoGen as its documentation builds an agent: AgentChat's `AssistantAgent` with `OpenAIChatCompletionClient`.

The model client is built once. An agent is stateful (it keeps the conversation) and must not be shared between
tasks, so each request gets its own, with the history in its model context.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, LLMMessage, ModelFamily, ModelInfo, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest

AGENT_NAME = "assistant"
MAX_TOOL_ITERATIONS = 10


class AutoGen:
    """Hosts one model client and makes an agent for each request."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Build the model client and wrap the tools."""
        self._client = OpenAIChatCompletionClient(
            model=llm.model,
            base_url=llm.base_url,
            api_key=llm.api_key,
            timeout=llm.timeout_s,
            model_info=ModelInfo(
                vision=False,
                function_calling=True,
                json_output=False,
                structured_output=False,
                family=ModelFamily.UNKNOWN,
            ),
        )
        self._tools = {
            tool.name: FunctionTool(tool.function, name=tool.name, description=tool.description) for tool in tools
        }
        self._system_prompt = system_prompt

    async def invoke(self, request: InvokeRequest) -> str:
        """Run a new agent on the request and return its last message's text."""
        token = CancellationToken()
        try:
            result = await self._agent(request).run(task=request.input, cancellation_token=token)
        except asyncio.CancelledError:
            token.cancel()  # the agent runs its tools in a task of their own, which only the token reaches
            raise
        return result.messages[-1].to_text()

    async def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        """Run a new agent that streams its LLM calls and yield its text chunks."""
        token = CancellationToken()
        agent = self._agent(request, stream=True)
        try:
            async for event in agent.run_stream(task=request.input, cancellation_token=token):
                if isinstance(event, ModelClientStreamingChunkEvent):
                    yield event.content
        finally:
            token.cancel()

    async def close(self) -> None:
        """Close the model client's connections."""
        await self._client.close()

    def _agent(self, request: InvokeRequest, *, stream: bool = False) -> AssistantAgent:
        return AssistantAgent(
            name=AGENT_NAME,
            model_client=self._client,
            tools=[self._tools[name] for name in request.tools or self._tools],
            system_message=self._system_prompt,
            model_context=UnboundedChatCompletionContext(initial_messages=_history(request)),
            model_client_stream=stream,
            # One tool iteration is the default and would end with the first tool's result; the loop ends at the
            # first text answer. Reflection would be an LLM call of its own, made only if the iterations ran out.
            max_tool_iterations=MAX_TOOL_ITERATIONS,
            reflect_on_tool_use=True,
        )


def _history(request: InvokeRequest) -> list[LLMMessage]:
    return [
        AssistantMessage(content=message.content, source=AGENT_NAME)
        if message.role == "assistant"
        else UserMessage(content=message.content, source=message.role)
        for message in request.history
    ]
