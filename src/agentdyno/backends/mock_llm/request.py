"""Reading a chat completion request: its text, the tools it offers, and how many tokens that is.

The token rule, for prompts and completions alike: **tokens = ceil(UTF-8 bytes / 4)**, over the text and
nothing else. A prompt's text is every message's content plus its tool calls' names and arguments, plus the
tools' JSON minified; a completion's text is its content, or its tool calls' names and arguments. White space
and escapes in the request's JSON do not count, so the same prompt has the same tokens from every client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

BYTES_PER_TOKEN = 4
REFUSED = "BadRequestError"
_UNREADABLE = "Bad Request"
_CACHED_TOOL_LISTS = 64
_LONGEST_CACHED_BYTES = 64 * 1024


def tokens_for(size_bytes: int) -> int:
    """The token rule: a fourth of the UTF-8 bytes, rounded up."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def utf8_bytes(text: str) -> int:
    """How many bytes `text` takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: str = ""


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function


class _Part(msgspec.Struct, gc=False):
    type: str
    text: str | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = None


class _StreamOptions(msgspec.Struct, gc=False):
    include_usage: bool | None = None


class _Body(msgspec.Struct, gc=False):
    model: str
    messages: list[_Message]
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None


_AT = re.compile(r" - at `\$([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_DECODER = msgspec.json.Decoder(_Body)


class _OfferedFunction(msgspec.Struct):
    name: str


class _OfferedTool(msgspec.Struct):
    function: _OfferedFunction


class Unparsable(ValueError):
    """A body that is no UTF-8, or nested too deep: vLLM's web framework refuses it before vLLM sees it."""


class BadRequest(ValueError):
    """A request that no OpenAI-compatible server would take; the text is the sentence for the client.

    parameter: the field that is at fault, as vLLM names it; None where that is no single one. kind: the error's type
    in vLLM's words, which has one for what it refuses itself and another for what its web framework finds unreadable.
    """

    def __init__(self, text: str, parameter: str | None = None, kind: str = REFUSED) -> None:
        super().__init__(text)
        self.parameter = parameter
        self.kind = kind


class OfferedTools(msgspec.Struct, frozen=True, gc=False):
    """What a request's `tools` come to: the names, and the size of their minified JSON."""

    names: frozenset[str]
    minified_bytes: int


_NO_TOOLS = OfferedTools(frozenset(), 0)


class ToolReader:
    """Reads a request's `tools`; remembers the last few lists by their raw bytes, as they hardly ever change."""

    def __init__(self) -> None:
        self._known: dict[bytes, OfferedTools] = {}

    def read(self, raw: bytes) -> OfferedTools:
        """Raises BadRequest when `raw` is not a list of tools."""
        known = self._known.get(raw)
        if known is None:
            known = self._parse(raw)
            if len(raw) <= _LONGEST_CACHED_BYTES:
                if len(self._known) >= _CACHED_TOOL_LISTS:
                    self._known.pop(next(iter(self._known)))
                self._known[raw] = known
        return known

    @staticmethod
    def _parse(raw: bytes) -> OfferedTools:
        try:
            offered = msgspec.json.decode(raw, type=list[_OfferedTool] | None)
            size = len(orjson.dumps(orjson.loads(raw)))
        except (ValueError, RecursionError) as error:
            place = f"body.tools{_path(error)}"
            raise BadRequest(f"`tools` is not a list of function tools: {error}", place, _UNREADABLE) from error
        return OfferedTools(frozenset(tool.function.name for tool in offered), size) if offered else _NO_TOOLS


class ChatRequest(msgspec.Struct, frozen=True, gc=False):
    """What the mock needs to know of a request.

    text: everything in the messages, in their order, one piece a line. must_call: the request says that tools are
    required; whether there is one to call is the script's to say. max_tokens: None for no limit.
    """

    model: str
    text: str
    prompt_tokens: int
    message_count: int
    offered: frozenset[str]
    may_call: bool
    must_call: bool
    one_call: bool
    stream: bool
    include_usage: bool
    max_tokens: int | None


def read_request(body: bytes, tools: ToolReader) -> ChatRequest:
    """Decode and check a request's body. Raises BadRequest or Unparsable with a sentence."""
    try:
        raw = _DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        sentence = f"The request's body is not a valid chat completion request: {error}"
        raise BadRequest(sentence, _place(body, error), _UNREADABLE) from error
    if not raw.messages:
        raise BadRequest("`messages` is empty; send at least one message.")
    if raw.n is not None and raw.n != 1:
        raise BadRequest(f"`n` is {raw.n}, but this server answers with one choice only.")
    limit = raw.max_completion_tokens if raw.max_completion_tokens is not None else raw.max_tokens
    if limit is not None and limit < 1:
        raise BadRequest(f"The limit on completion tokens is {limit}, but it must be at least 1.", "max_tokens")
    pieces = _pieces(raw.messages)
    text = "\n".join(pieces)
    offered = tools.read(bytes(raw.tools)) if raw.tools else _NO_TOOLS
    size = utf8_bytes(text) - (len(pieces) - 1 if pieces else 0) + offered.minified_bytes
    return ChatRequest(
        model=raw.model,
        text=text,
        prompt_tokens=tokens_for(size),
        message_count=len(raw.messages),
        offered=offered.names,
        may_call=raw.tool_choice != "none",
        must_call=raw.tool_choice == "required",
        one_call=raw.parallel_tool_calls is False,
        stream=raw.stream is True,
        include_usage=raw.stream_options is not None and raw.stream_options.include_usage is True,
        max_tokens=limit,
    )


def _place(body: bytes, error: Exception) -> str:
    """Where vLLM's web framework sees the fault in a body: the character at which the JSON ends to be JSON, or the
    path of the field. It looks at fields only when all is JSON. Raises Unparsable.
    """
    if not body:
        return "body"
    try:
        json.loads(body)
    except json.JSONDecodeError as broken:
        return f"body.{broken.pos}"
    except (ValueError, RecursionError) as broken:
        raise Unparsable(f"The request's body is no text with JSON in it: {broken}") from error
    return f"body{_path(error)}"


def _path(error: Exception) -> str:
    """The field that msgspec complains of, in the web framework's way to write it: `.tools.0.function`.

    Within a message vLLM also says for which kinds of message it took it, which is not imitated.
    """
    at, missing = _AT.search(str(error)), _MISSING.search(str(error))
    path = at[1].replace("[", ".").replace("]", "") if at else ""
    return f"{path}.{missing[1]}" if missing else path


def _pieces(messages: Sequence[_Message]) -> list[str]:
    """The messages' texts: content, then tool calls' names and arguments, in order."""
    pieces: list[str] = []
    for message in messages:
        content = message.content
        if isinstance(content, str):
            pieces.append(content)
        elif content:
            pieces.extend(part.text for part in content if part.text is not None)
        if message.tool_calls:
            for call in message.tool_calls:
                pieces += (call.function.name, call.function.arguments)
    return pieces
