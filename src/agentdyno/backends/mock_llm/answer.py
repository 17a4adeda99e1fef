"""Answers on the wire: the whole chat completion, and the same cut into server-sent chunks."""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import Any

import msgspec
import orjson

from agentdyno.backends.mock_llm.request import BYTES_PER_TOKEN, ChatRequest, tokens_for
from agentdyno.backends.mock_llm.script import Turn, fill

DONE = b"data: [DONE]\n\n"


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One answer, ready to be encoded.

    tool_calls: (id, name, arguments) of each, empty for a text.
    """

    id: str
    model: str
    text: str
    tool_calls: tuple[tuple[str, str, str], ...]
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int

    @property
    def cut(self) -> bool:
        """Whether the text was cut at the request's token limit."""
        return self.finish_reason == "length"


def make_answer(request: ChatRequest, turn: Turn, answer_tokens: int) -> Answer:
    """The answer to `request` that says `turn`; `answer_tokens` is the length of the scenario's final answer.

    A text is cut at the request's token limit; tool calls are not, since half a call is no call. Ids are the
    same for the same request and differ between the turns of a conversation.
    """
    key = f"{turn.order}:{turn.number}:{request.message_count}:{request.prompt_tokens}"
    mark = blake2b(key.encode(), digest_size=12).hexdigest()
    answer_id = f"chatcmpl-{mark}"
    if turn.requests:
        calls = tuple((f"call_{mark}{index}", call.tool, call.arguments) for index, call in enumerate(turn.requests))
        size = sum(len(name) + len(arguments) for _, name, arguments in calls)
        return Answer(answer_id, request.model, "", calls, "tool_calls", request.prompt_tokens, tokens_for(size))
    text = fill(turn.text, answer_tokens * BYTES_PER_TOKEN) if turn.final else turn.text
    cut = request.max_tokens is not None and tokens_for(len(text)) > request.max_tokens
    if cut and request.max_tokens is not None:
        text = text[: request.max_tokens * BYTES_PER_TOKEN]
    reason = "length" if cut else "stop"
    return Answer(answer_id, request.model, text, (), reason, request.prompt_tokens, tokens_for(len(text)))


def whole(answer: Answer) -> bytes:
    """The body of a whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.tool_calls:
        message["content"] = None
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in answer.tool_calls
        ]
    return orjson.dumps(
        {
            "id": answer.id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": answer.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}],
            "usage": _usage(answer),
        }
    )


def chunks(answer: Answer, include_usage: bool) -> tuple[list[bytes], bytes]:
    """The answer as server-sent events: one a token, and the tail that goes out with the last of them.

    The first event also says the role; a tool call's first also says its id and name. The tail holds the
    finish reason, the usage if asked for, and the end mark.
    """
    head = orjson.dumps(
        {
            "id": answer.id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": answer.model,
        }
    )[:-1]
    usage_none = b',"usage":null' if include_usage else b""

    def event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return b'data: %b,"choices":[%b]%b}\n\n' % (head, orjson.dumps(choice), usage_none)

    events = [event(delta) for delta in _deltas(answer)]
    tail = event({}, answer.finish_reason)
    if include_usage:
        tail += b'data: %b,"choices":[],"usage":%b}\n\n' % (head, orjson.dumps(_usage(answer)))
    return events, tail + DONE


def _deltas(answer: Answer) -> list[dict[str, Any]]:
    if not answer.tool_calls:
        deltas: list[dict[str, Any]] = [{"content": piece} for piece in _pieces(answer.text)]
        deltas[0] = {"role": "assistant", **deltas[0]}
        return deltas
    deltas = []
    for index, (call_id, name, arguments) in enumerate(answer.tool_calls):
        opening = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in _pieces(arguments)]
    deltas[0] = {"role": "assistant", "content": None, **deltas[0]}
    return deltas


def _pieces(text: str) -> list[str]:
    """`text` (ASCII) in tokens, by the token rule."""
    return [text[at : at + BYTES_PER_TOKEN] for at in range(0, len(text), BYTES_PER_TOKEN)]


def _usage(answer: Answer) -> dict[str, int]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
