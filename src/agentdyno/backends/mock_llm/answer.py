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

    text: None beside tool calls, but empty where the request required them, as vLLM has it. tool_calls: (id, name,
    arguments) of each, empty for a text.
    """

    id: str
    model: str
    text: str | None
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
        beside = "" if request.must_call else None
        return Answer(answer_id, request.model, beside, calls, "tool_calls", request.prompt_tokens, tokens_for(size))
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

    As with vLLM the role comes in an event of its own, sent with the first token and no sooner; a tool call's id and
    name come without arguments, before them; and the finish reason comes in an event of its own, but for a text that
    was cut, whose last token says it. The tail holds the rest: the usage if asked for, and the end mark.
    """
    head = b"data: " + orjson.dumps(
        {
            "id": answer.id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": answer.model,
        }
    )
    # All events but the last differ only in their delta and finish reason: the rest is made once.
    before = head[:-1] + b',"choices":[{"index":0,"delta":'
    after = b',"logprobs":null,"finish_reason":null}]}\n\n'
    finish = b',"logprobs":null,"finish_reason":"%b"}]}\n\n' % answer.finish_reason.encode()
    events = _calls(answer, before, after) if answer.tool_calls else _texts(answer.text or "", before, after)
    events[0] = b'%b{"role":"assistant","content":""}%b%b' % (before, after, events[0])
    tail = DONE
    if include_usage:
        tail = b'%b,"choices":[],"usage":%b}\n\n%b' % (head[:-1], orjson.dumps(_usage(answer)), DONE)
    if answer.cut:
        events[-1] = events[-1].removesuffix(after) + finish
        return events, tail
    return events, b"%b{}%b%b" % (before, finish, tail)


def _texts(text: str, before: bytes, after: bytes) -> list[bytes]:
    before += b'{"content":'
    after = b"}" + after
    return [before + orjson.dumps(piece) + after for piece in _pieces(text)]


def _calls(answer: Answer, before: bytes, after: bytes) -> list[bytes]:
    before += b'{"content":null,"tool_calls":['
    after = b"]}" + after
    events = []
    for index, (call_id, name, arguments) in enumerate(answer.tool_calls):
        opening = {"id": call_id, "type": "function", "index": index, "function": {"name": name}}
        events.append(before + orjson.dumps(opening) + after)
        part = b'%b{"index":%d,"function":{"arguments":' % (before, index)
        events += [b"%b%b}}%b" % (part, orjson.dumps(piece), after) for piece in _pieces(arguments)]
    return events


def _pieces(text: str) -> list[str]:
    """`text` (ASCII) in tokens, by the token rule."""
    return [text[at : at + BYTES_PER_TOKEN] for at in range(0, len(text), BYTES_PER_TOKEN)]


def _usage(answer: Answer) -> dict[str, int]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
