"""What the LLM answered: read from a whole chat completion, or put together from a stream of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from lightagent.calls import ToolCall, parse_call
from lightagent.errors import LlmResponseError


@dataclass(slots=True)
class Reply:
    """One answer of the LLM: text, or calls, or both. Token counts are None when the server gave none.

    retries: how many attempts failed before this one.
    """

    text: str | None
    calls: tuple[ToolCall, ...]
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    retries: int = 0


def read_reply(body: bytes) -> Reply:
    """Read a whole completion. Raises LlmResponseError when the body is none."""
    try:
        completion = orjson.loads(body)
        choice = completion["choices"][0]
        message = choice["message"]
        text = message.get("content") or message.get("refusal")
        calls = tuple(_call(part, position) for position, part in enumerate(message.get("tool_calls") or ()))
        usage = completion.get("usage") or {}
        return Reply(
            text,
            calls,
            choice.get("finish_reason"),
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        start = body[:200].decode(errors="replace")
        raise LlmResponseError(f"The LLM's answer is no chat completion ({type(error).__name__}): {start}") from error


def _call(part: dict[str, Any], position: int) -> ToolCall:
    function = part["function"]
    return parse_call(part.get("id") or f"call_{position}", function["name"], function["arguments"] or "")


class ReplyBuilder:
    """Puts a reply together from a stream's events; passes each piece of text on at once."""

    __slots__ = ("_calls", "_finish_reason", "_on_text", "_text", "_usage", "ended")

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._text: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] = {}
        self.ended = False

    @property
    def has_text(self) -> bool:
        """Whether text was passed on already; then the call can no longer be repeated."""
        return bool(self._text)

    def add(self, event: bytes) -> None:
        """Take one event's data. Raises LlmResponseError when it is no part of a completion."""
        if event == b"[DONE]":
            self.ended = True
            return
        try:
            part = orjson.loads(event)
            if part.get("error"):
                raise LlmResponseError(f"The LLM reported an error in its stream: {str(part['error'])[:200]}")
            if part.get("usage"):
                self._usage = part["usage"]
            if part.get("choices"):
                self._take(part["choices"][0])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            start = event[:200].decode(errors="replace")
            raise LlmResponseError(f"An event of the LLM's stream cannot be read: {start}") from error

    def _take(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        text = delta.get("content") or delta.get("refusal")
        if text:
            self._text.append(text)
            self._on_text(text)
        for part in delta.get("tool_calls") or ():
            call = self._calls.setdefault(part.get("index", 0), {"id": "", "name": "", "arguments": ""})
            call["id"] = part.get("id") or call["id"]
            function = part.get("function") or {}
            call["name"] = function.get("name") or call["name"]
            call["arguments"] += function.get("arguments") or ""
        if choice.get("finish_reason"):
            self._finish_reason = choice["finish_reason"]
            self.ended = True

    def build(self) -> Reply:
        """The whole reply. Raises LlmResponseError when the stream broke off before its end."""
        if not self.ended:
            raise LlmResponseError("The LLM's stream ended before the answer did.")
        return Reply(
            "".join(self._text) or None,
            tuple(
                parse_call(call["id"] or f"call_{index}", call["name"], call["arguments"])
                for index, call in sorted(self._calls.items())
            ),
            self._finish_reason,
            self._usage.get("prompt_tokens"),
            self._usage.get("completion_tokens"),
        )
