"""LlamaIndex as its documentation builds an agent: `FunctionAgent` with `OpenAILike`.

LLM, tools and agent are built once; each run has its own context and memory. What a reader of its figures must know:
it streams its LLM calls unless told not to, also where nobody reads the stream, and does not ask for usage then; with
openai 2.54 each of these streams costs a new connection; and before a run's first LLM call its memory counts tokens
with tiktoken, in a thread (the tokenizer is read from llama-index-core at the first request, which may take a second).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow.handler import WorkflowHandler
from llama_index.llms.openai_like import OpenAILike

from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest

CONTEXT_WINDOW_TOKENS = 128_000  # its memory drops what is beyond three quarters of this


class LlamaIndex:
    """Hosts one agent workflow for each set of tools that a request may ask for."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Build the LLM, wrap the tools, and build the agent that has all of them."""
        self._llm = OpenAILike(
            model=llm.model,
            api_base=llm.base_url,
            api_key=llm.api_key,
            timeout=llm.timeout_s,
            context_window=CONTEXT_WINDOW_TOKENS,
            is_chat_model=True,
            is_function_calling_model=True,
        )
        self._tools = {
            tool.name: FunctionTool.from_defaults(async_fn=tool.function, name=tool.name, description=tool.description)
            for tool in tools
        }
        self._system_prompt = system_prompt
        self._agents: dict[tuple[str, ...], FunctionAgent] = {}
        self._agent(())

    async def invoke(self, request: InvokeRequest) -> str:
        """Run the workflow to its end and return the answer's text."""
        handler = self._run(request)
        try:
            return str(await handler)
        except asyncio.CancelledError:
            await handler.cancel_run()  # a run goes on in tasks of its own when its waiter is cancelled
            raise

    async def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        """Yield the text deltas of the workflow's event stream."""
        handler = self._run(request)
        try:
            async for event in handler.stream_events():
                if isinstance(event, AgentStream) and event.delta:
                    yield event.delta
            await handler
        except (asyncio.CancelledError, GeneratorExit):
            await handler.cancel_run()
            raise

    async def close(self) -> None:
        """Close the LLM's client, which LlamaIndex has no public way to do."""
        await self._llm._get_aclient().close()

    def _run(self, request: InvokeRequest) -> WorkflowHandler:
        history = [ChatMessage(role=message.role, content=message.content) for message in request.history]
        return self._agent(request.tools).run(user_msg=request.input, chat_history=history)

    def _agent(self, names: tuple[str, ...]) -> FunctionAgent:
        names = names or tuple(self._tools)
        if names not in self._agents:
            offered = [self._tools[name] for name in names]
            self._agents[names] = FunctionAgent(tools=offered, llm=self._llm, system_prompt=self._system_prompt)
        return self._agents[names]
