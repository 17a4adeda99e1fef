"""The phases of a request, and the raw events from which the phase clock tiles it."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a request's time goes. The six tile it: they never overlap and their sum is the whole.

    parse: request read to first LLM call (or first planning). plan: an LLM call that returns tool calls, or
    planning that a framework without an LLM planner marks. tool: at least one tool body runs. reflect: an LLM
    call that returns the answer. respond: end of that call to the last byte. framework: all that lies between.
    """

    PARSE = "parse"
    PLAN = "plan"
    TOOL = "tool"
    REFLECT = "reflect"
    RESPOND = "respond"
    FRAMEWORK = "framework"


class EventKind(StrEnum):
    """What the clock records at the borders that the host owns."""

    LLM = "llm"
    TOOL = "tool"
    PLANNING = "planning"
