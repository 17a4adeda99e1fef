"""The HTTP contract: bodies of `POST /agent/invoke`, its server-sent events and its problems."""

from __future__ import annotations

from typing import Any

import msgspec

INVOKE_PATH = "/agent/invoke"
PROBLEM_TYPE = "application/problem+json"


class Message(msgspec.Struct, frozen=True):
    """One earlier turn of the conversation."""

    role: str
    content: str


class InvokeRequest(msgspec.Struct, frozen=True):
    """One request to an agent.

    tools: names of the tools the agent may call; empty means all that the host offers.
    timeout_ms: after this the host cancels the framework's task and answers 504.
    """

    session_id: str
    input: str
    history: tuple[Message, ...] = ()
    tools: tuple[str, ...] = ()
    timeout_ms: int = 10_000
    stream: bool = False


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call as the host's tool border saw it (never as a framework reports it).

    `result` is None and `error` says why when the call failed.
    """

    name: str
    arguments: dict[str, Any]
    result: str | None
    error: str | None = None


class Usage(msgspec.Struct, frozen=True):
    """Work done for one request, counted at the host's LLM and tool borders.

    prompt_bytes: bodies sent to the LLM, summed. Token counts are as the backend reported them, None
    when it reported none. retries: LLM calls that failed (an
    error status, or no whole answer), each of which a framework may have made again.
    connections: opened to the LLM for this request, None when the border could not see them.
    """

    llm_calls: int
    tool_calls: int
    prompt_bytes: int
    prompt_tokens: int | None
    completion_tokens: int | None
    retries: int
    connections: int | None = None


class InvokeResponse(msgspec.Struct, frozen=True):
    """The answer of a finished request."""

    session_id: str
    output: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457 problem details; `code` is stable and machine-readable, `detail` is a sentence."""

    title: str
    status: int
    code: str
    detail: str
    type: str = "about:blank"
