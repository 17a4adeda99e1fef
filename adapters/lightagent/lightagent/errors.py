"""What can go wrong, as sentences. Every exception that LightAgent raises itself is a LightAgentError."""

from __future__ import annotations


class LightAgentError(Exception):
    """Base of all errors of this library."""


class ToolDefinitionError(LightAgentError):
    """A function that cannot become a tool; the text says which, why, and what to change."""


class UnknownToolError(LightAgentError):
    """A request or a removal names a tool that the agent does not have."""


class ArgumentError(LightAgentError):
    """Arguments that do not fit a tool's parameters. It is told to the LLM and never leaves the agent."""


class PlanError(LightAgentError):
    """A declared plan that cannot work: a step refers to one that does not exist, or steps wait for each other."""


class TurnLimitError(LightAgentError):
    """The LLM still asked for tools when the request's last LLM call was spent."""


class LlmError(LightAgentError):
    """A call to the LLM failed.

    retryable: another attempt may succeed. retry_after_s: the least wait that the server asked for, else None.
    """

    def __init__(self, message: str, *, retryable: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class LlmStatusError(LlmError):
    """The LLM's server answered with a status other than 200, kept in `status`."""

    def __init__(self, status: int, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message, retryable=status == 429 or status >= 500, retry_after_s=retry_after_s)
        self.status = status


class LlmConnectionError(LlmError):
    """The LLM's server could not be reached, or the connection broke."""


class LlmTimeoutError(LlmError):
    """The LLM did not finish its answer in time."""


class LlmResponseError(LlmError):
    """The LLM's server answered 200 with something that is no chat completion."""
