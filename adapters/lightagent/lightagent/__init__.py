"""LightAgent: a minimal agent framework. An explicit state machine, two planners, plain async functions as tools."""

from lightagent.agent import TRANSITIONS, Agent, State
from lightagent.calls import ToolCall, ToolResult
from lightagent.errors import (
    ArgumentError,
    LightAgentError,
    LlmConnectionError,
    LlmError,
    LlmResponseError,
    LlmStatusError,
    LlmTimeoutError,
    PlanError,
    ToolDefinitionError,
    TurnLimitError,
    UnknownToolError,
)
from lightagent.llm import ChatClient
from lightagent.planner import Decision, LlmPlanner, Plan, Planner
from lightagent.retry import Retry
from lightagent.steps import Constant, FromInput, FromStep, StateMachinePlanner, Step
from lightagent.task import Answer, Message, Task
from lightagent.tools import Tool, ToolSet

__all__ = [
    "TRANSITIONS",
    "Agent",
    "Answer",
    "ArgumentError",
    "ChatClient",
    "Constant",
    "Decision",
    "FromInput",
    "FromStep",
    "LightAgentError",
    "LlmConnectionError",
    "LlmError",
    "LlmPlanner",
    "LlmResponseError",
    "LlmStatusError",
    "LlmTimeoutError",
    "Message",
    "Plan",
    "PlanError",
    "Planner",
    "Retry",
    "State",
    "StateMachinePlanner",
    "Step",
    "Task",
    "Tool",
    "ToolCall",
    "ToolDefinitionError",
    "ToolResult",
    "ToolSet",
    "TurnLimitError",
    "UnknownToolError",
]
