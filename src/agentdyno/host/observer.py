"""What the LLM border reads of an answer, and which addresses are the LLM's, whatever the client library."""

from __future__ import annotations

import zlib
from contextvars import ContextVar
from urllib.parse import urlsplit

import msgspec

from agentdyno.contract.trace import LlmCall
from agentdyno.host.trace import now_ns


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Message(msgspec.Struct):
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    model: str | None = None


_GZIP_OR_ZLIB = 47  # zlib's window bits for "detect the header"
_decoder = msgspec.json.Decoder(_Completion)
# The call that is being sent: whoever opens a connection then opens it for that call.
SENDING: ContextVar[LlmCall | None] = ContextVar("agentdyno_sending", default=None)


class Observer:
    """Follows the body of one LLM answer: feed it each piece, then `finish`, `stop` or `fail`."""

    __slots__ = ("_encoding", "_pieces", "call")

    def __init__(self, call: LlmCall) -> None:
        self.call = call
        self._pieces: list[bytes] = []
        self._encoding = ""

    def begin(self, status: int, content_type: str, content_encoding: str) -> None:
        """The answer's head is there. content_encoding: of the bytes that will be fed, "" when they are plain."""
        if self.call.end_ns is not None:  # the request ended while the call was under way
            return
        self.call.status = status
        self.call.streamed = content_type.startswith("text/event-stream")
        self._encoding = content_encoding.strip().lower()

    def feed(self, data: bytes) -> None:
        """Take note of a piece of the body, in order."""
        if data and self.call.end_ns is None:
            if self.call.first_byte_ns is None:
                self.call.first_byte_ns = now_ns()
            self._pieces.append(data)

    def finish(self) -> None:
        """The body was read to its end."""
        if self.call.end_ns is None:
            self._end()

    def stop(self) -> None:
        """The client wants no more of the body: a good call when the answer was complete by then, else abandoned."""
        if self.call.end_ns is None and not self._end() and self.call.status == 200:
            self.call.error = "abandoned"

    def fail(self, error: BaseException) -> None:
        """The call broke before its end."""
        if self.call.end_ns is None:
            self.call.end_ns = now_ns()
            self.call.error = type(error).__name__

    def _end(self) -> bool:
        """Stamp the end and read the answer; returns whether it says itself that it is complete."""
        self.call.end_ns = now_ns()
        body = b"".join(self._pieces)
        self._pieces.clear()
        if self.call.status != 200:
            return False
        if self._encoding in ("gzip", "deflate"):
            try:
                # As far as it goes: a client may leave before the compressed stream's own trailer.
                body = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body)
            except zlib.error as error:
                self.call.error = f"unreadable answer: {error}"
                return False
        elif self._encoding not in ("", "identity"):
            return False  # the client reads it and we cannot: what it says stays unknown, which is no error
        return read_answer(self.call, body)


def read_answer(call: LlmCall, body: bytes) -> bool:
    """Fill `call` with what an OpenAI-style answer, whole or as server-sent events, says of itself.

    Returns whether it is complete: the whole document, or events up to `[DONE]`.
    """
    try:
        if call.streamed:
            return _read_events(call, body)
        _take(call, _decoder.decode(body))
        call.wants_tools = bool(call.wants_tools)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        call.error = f"unreadable answer: {error}"
        return False
    return True


def _read_events(call: LlmCall, body: bytes) -> bool:
    call.wants_tools = False
    for line in body.splitlines():
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return True
        # Most events carry a piece of text: decode only the first and those that say what is looked for.
        if data and (call.model is None or b'"tool_calls"' in data or b'"usage"' in data):
            _take(call, _decoder.decode(data))
    return False


def _take(call: LlmCall, part: _Completion) -> None:
    for choice in part.choices:
        said = choice.message or choice.delta
        if said is not None and said.tool_calls:
            call.wants_tools = True
    if part.usage is not None:
        call.prompt_tokens = part.usage.prompt_tokens
        call.completion_tokens = part.usage.completion_tokens
    call.model = part.model or call.model


class Origin:
    """Which addresses are the LLM's: scheme, host and port of its base URL."""

    __slots__ = ("host", "port", "text")

    def __init__(self, base_url: str) -> None:
        """Raises ValueError with a sentence when `base_url` is no http(s) address, for then no call would match."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"The LLM's base URL is {base_url!r}; write it in full, as http://127.0.0.1:8001/v1.")
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.text = f"{parts.scheme}://{parts.netloc}/"

    def matches(self, host: str | None, port: int | None, scheme: str) -> bool:
        """Whether an address given in parts (port None: the scheme's own) is the LLM's."""
        return host == self.host and (port or (443 if scheme == "https" else 80)) == self.port
