"""One request on its way through the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightagent.calls import ToolCall, ToolResult
from lightagent.errors import TurnLimitError
from lightagent.llm import ChatClient, OnText
from lightagent.reply import Reply
from lightagent.tools import ToolSet

Message = Mapping[str, Any]
"""A chat completion message: `{"role": ..., "content": ...}`."""


@dataclass(slots=True)
class Answer:
    """The end of a request. Token counts are sums over the LLM calls, None when the server gave none."""

    text: str
    results: list[ToolResult]
    finish_reason: str | None
    llm_calls: int
    retries: int
    prompt_tokens: int | None
    completion_tokens: int | None


class Task:
    """What is known of a request: its input, the conversation so far, and the tools that it began with."""

    __slots__ = (
        "_llm",
        "_max_llm_calls",
        "_on_text",
        "completion_tokens",
        "history",
        "input",
        "llm_calls",
        "messages",
        "prompt_tokens",
        "reply",
        "results",
        "retries",
        "tools",
        "wanted",
    )

    def __init__(
        self,
        llm: ChatClient,
        text: str,
        history: Sequence[Message],
        tools: ToolSet,
        max_llm_calls: int,
        on_text: OnText | None,
    ) -> None:
        self._llm = llm
        self._max_llm_calls = max_llm_calls
        self._on_text = on_text
        self.input = text
        self.history = history
        self.tools = tools
        self.messages: list[Message] = []
        self.wanted: tuple[ToolCall, ...] = ()
        self.results: list[ToolResult] = []
        self.reply: Reply | None = None
        self.llm_calls = 0
        self.retries = 0
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None

    async def ask(self, *, offer_tools: bool) -> Reply:
        """Let the LLM go on with the conversation. Raises TurnLimitError when no LLM call is left, and LlmError."""
        if self.llm_calls >= self._max_llm_calls:
            raise TurnLimitError(f"There is no answer after {self.llm_calls} LLM calls, which is the limit.")
        self.llm_calls += 1
        reply = await self._llm.complete(self.messages, self.tools.encoded if offer_tools else None, self._on_text)
        self.retries += reply.retries
        self.prompt_tokens = _sum(self.prompt_tokens, reply.prompt_tokens)
        self.completion_tokens = _sum(self.completion_tokens, reply.completion_tokens)
        return reply

    def answer(self, reply: Reply) -> Answer:
        """The answer that `reply` gives, with the account of what it took."""
        return Answer(
            reply.text or "",
            self.results,
            reply.finish_reason,
            self.llm_calls,
            self.retries,
            self.prompt_tokens,
            self.completion_tokens,
        )


def _sum(total: int | None, more: int | None) -> int | None:
    return total if more is None else more + (total or 0)
