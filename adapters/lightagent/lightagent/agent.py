"""The agent: a state machine that takes a request from Parse to Respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType, TracebackType
from typing import Any, Self

from lightagent.calls import run_calls
from lightagent.errors import LlmResponseError
from lightagent.llm import ChatClient, OnText
from lightagent.planner import LlmPlanner, Plan, Planner
from lightagent.task import Answer, Message, Task
from lightagent.tools import Tool, ToolSet, as_tool


class State(StrEnum):
    """Where a request is.

    parse: the conversation is put together. plan: the planner decides on tool calls, or that there are no more.
    tool: the calls run. reflect: the LLM answers from what is known (an answer that planning brought already is
    taken as it is). respond: the answer is handed over.
    """

    PARSE = "parse"
    PLAN = "plan"
    TOOL = "tool"
    REFLECT = "reflect"
    RESPOND = "respond"


TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.PARSE: frozenset({State.PLAN}),
        State.PLAN: frozenset({State.TOOL, State.REFLECT}),
        State.TOOL: frozenset({State.PLAN}),
        State.REFLECT: frozenset({State.RESPOND}),
        State.RESPOND: frozenset(),
    }
)


class Agent:
    """An LLM, a planner and tools. It keeps nothing of a request; a conversation's history comes with each.

    planner: LlmPlanner() unless given. max_turns: the most LLM calls for one request. on_state: told each state
    that a request enters. Use it as an async context manager, or close it.
    """

    def __init__(
        self,
        llm: ChatClient,
        tools: Iterable[Tool | Callable[..., Awaitable[Any]]] = (),
        *,
        planner: Planner | None = None,
        system_prompt: str = "",
        max_turns: int = 10,
        on_state: Callable[[State], None] | None = None,
    ) -> None:
        self._llm = llm
        self._tools = ToolSet(as_tool(tool) for tool in tools)
        self._planner = planner or LlmPlanner()
        self._start: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._max_turns = max_turns
        self._on_state = on_state

    async def __aenter__(self) -> Self:
        self._llm.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to the LLM."""
        await self._llm.close()

    @property
    def tools(self) -> ToolSet:
        """The tools that the next request begins with."""
        return self._tools

    def add_tool(self, tool: Tool | Callable[..., Awaitable[Any]]) -> None:
        """Offer a tool from the next request on, in place of one with the same name."""
        self._tools = self._tools.adding(as_tool(tool))

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool from the next request on. Raises UnknownToolError when there is none."""
        self._tools = self._tools.removing(name)

    async def run(self, text: str, *, history: Sequence[Message] = (), tools: Sequence[str] = ()) -> Answer:
        """Answer `text`. history: earlier messages; tools: names of those that may be used (empty: all).

        Raises LightAgentError. When it is cancelled, so are the LLM call or the tools under way.
        """
        return await self._advance(self._task(text, history, tools, None))

    async def stream(
        self, text: str, *, history: Sequence[Message] = (), tools: Sequence[str] = ()
    ) -> AsyncIterator[str]:
        """Like `run`, but yield the answer's text as the LLM writes it.

        What an LLM says beside its tool calls comes too: it is not known to be no answer until the calls follow.
        Closing the iterator cancels the request.
        """
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        task = self._task(text, history, tools, pieces.put_nowait)
        work = asyncio.create_task(self._advance(task))
        work.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            await work  # raises what went wrong
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _task(self, text: str, history: Sequence[Message], tools: Sequence[str], on_text: OnText | None) -> Task:
        return Task(self._llm, text, history, self._tools.only(tools), self._max_turns, on_text)

    async def _advance(self, task: Task) -> Answer:
        """Take the task through the states to its answer."""
        plan = self._planner.begin(task)
        state = State.PARSE
        while True:
            if self._on_state is not None:
                self._on_state(state)
            if state is State.RESPOND:
                return self._respond(task)
            entered = await self._leave(state, task, plan)
            if entered not in TRANSITIONS[state]:
                raise AssertionError(f"{state} does not lead to {entered}")
            state = entered

    async def _leave(self, state: State, task: Task, plan: Plan) -> State:
        """Do the state's work; returns the state that follows."""
        if state is State.PLAN:
            return await self._plan(task, plan)
        if state is State.TOOL:
            return await self._tool(task)
        if state is State.REFLECT:
            return await self._reflect(task)
        return self._parse(task)

    def _parse(self, task: Task) -> State:
        task.messages = [*self._start, *task.history, {"role": "user", "content": task.input}]
        return State.PLAN

    async def _plan(self, task: Task, plan: Plan) -> State:
        decision = await plan.decide()
        task.wanted, task.reply = decision.calls, decision.reply
        if not decision.calls:
            return State.REFLECT
        parts = [call.as_message_part() for call in decision.calls]
        task.messages.append({"role": "assistant", "content": decision.said, "tool_calls": parts})
        return State.TOOL

    async def _tool(self, task: Task) -> State:
        results = await run_calls(task.wanted, task.tools, self._llm.sleep, self._llm.random)
        task.results.extend(results)
        task.messages.extend(result.as_message() for result in results)
        return State.PLAN

    async def _reflect(self, task: Task) -> State:
        if task.reply is None:
            task.reply = await task.ask(offer_tools=False)
        return State.RESPOND

    def _respond(self, task: Task) -> Answer:
        if task.reply is None or not task.reply.text:
            raise LlmResponseError("The LLM answered with no text and asked for no tool that it was offered.")
        return task.answer(task.reply)
