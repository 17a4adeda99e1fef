"""Running the tool calls of one turn: checked, timed out, retried, several at once.

A failure is a result like any other: it is told to the LLM, which may try otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from lightagent.errors import ArgumentError
from lightagent.retry import NO_RETRY, Random, Sleep
from lightagent.tools import Tool, ToolSet


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a planner asks for.

    text: the arguments as JSON, as they stand in the messages. arguments: the same decoded, None when they
    are no JSON object; then `problem` says what is wrong.
    """

    id: str
    name: str
    text: str
    arguments: dict[str, Any] | None
    problem: str | None = None

    def as_message_part(self) -> dict[str, Any]:
        """The call as an entry of an assistant message's `tool_calls`."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.text}}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call.

    text: what the LLM is told. ok: the tool ran to its end. attempts: how often it was begun.
    """

    call: ToolCall
    text: str
    ok: bool
    attempts: int = 0

    def as_message(self) -> dict[str, Any]:
        """The result as a message of the conversation."""
        return {"role": "tool", "tool_call_id": self.call.id, "content": self.text}


def parse_call(call_id: str, name: str, text: str) -> ToolCall:
    """A call as an LLM wrote it. Malformed arguments make a call that fails, not an error here."""
    try:
        arguments = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        problem = f"The arguments are not valid JSON ({error}): {text[:200]}"
    else:
        if isinstance(arguments, dict):
            return ToolCall(call_id, name, text if text.strip() else "{}", arguments)
        problem = f"The arguments must be a JSON object, not: {text[:200]}"
    # Some servers parse the arguments of earlier turns and refuse the whole request when one is malformed.
    return ToolCall(call_id, name, "{}", None, problem)


async def run_calls(calls: Sequence[ToolCall], tools: ToolSet, sleep: Sleep, random: Random) -> list[ToolResult]:
    """Run the calls, several at once, and return their results in the same order.

    When this is cancelled, so is every call.
    """
    if len(calls) == 1:
        return [await _run(calls[0], tools, sleep, random)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_run(call, tools, sleep, random)) for call in calls]
    return [task.result() for task in running]


async def _run(call: ToolCall, tools: ToolSet, sleep: Sleep, random: Random) -> ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        offered = ", ".join(tools.names) or "none"
        return _failed(call, f"There is no tool {call.name[:80]!r}; the tools are: {offered}.")
    if call.arguments is None:
        return _failed(call, call.problem or "The arguments cannot be read.")
    try:
        arguments = tool.check(call.arguments)
    except ArgumentError as error:
        return _failed(call, f"{error}.")
    retry = tool.retry or NO_RETRY
    attempts = 0
    while True:
        attempts += 1
        done, text = await _attempt(tool, arguments)
        if done:
            return ToolResult(call, text, True, attempts)
        wait_s = retry.wait_s(attempts, random)
        if wait_s is None:
            return _failed(call, text, attempts)
        await sleep(wait_s)


async def _attempt(tool: Tool, arguments: dict[str, Any]) -> tuple[bool, str]:
    """Whether the tool ran to its end, and its result or what went wrong."""
    try:
        async with asyncio.timeout(tool.timeout_s) as timeout:
            value = await tool.function(**arguments)
        return True, value if isinstance(value, str) else orjson.dumps(value).decode()
    except Exception as error:  # whatever a tool raises is the LLM's to deal with
        if timeout.expired():
            return False, f"{tool.name} was stopped because it took longer than {tool.timeout_s:g} s."
        return False, f"{tool.name} failed: {type(error).__name__}: {str(error)[:500]}"


def _failed(call: ToolCall, text: str, attempts: int = 0) -> ToolResult:
    return ToolResult(call, orjson.dumps({"error": text}).decode(), False, attempts)
