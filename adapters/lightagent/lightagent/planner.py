"""What a planner is, and the planner that lets the LLM choose the tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lightagent.calls import ToolCall
from lightagent.reply import Reply
from lightagent.task import Task


@dataclass(slots=True)
class Decision:
    """What to do next: run these calls, or, when there are none, reflect on what is known.

    said: the text that goes with the calls. reply: an answer that planning has brought already.
    """

    calls: tuple[ToolCall, ...] = ()
    said: str | None = None
    reply: Reply | None = None


class Plan(Protocol):
    """The planning of one request."""

    async def decide(self) -> Decision:
        """Decide what comes next, from the task as it is now."""


class Planner(Protocol):
    """A strategy for choosing tool calls. One planner serves all requests of an agent."""

    def begin(self, task: Task) -> Plan:
        """Start the planning of a request."""


class LlmPlanner:
    """Plans with the LLM's own tool calls, turn by turn, until it answers instead."""

    def begin(self, task: Task) -> Plan:
        """Start the planning of a request."""
        return _LlmPlan(task)


class _LlmPlan:
    __slots__ = ("_task",)

    def __init__(self, task: Task) -> None:
        self._task = task

    async def decide(self) -> Decision:
        reply = await self._task.ask(offer_tools=True)
        return Decision(reply.calls, reply.text) if reply.calls else Decision(reply=reply)
