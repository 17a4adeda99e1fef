"""The border to the LLM: every HTTP call on its way to the backend, whichever client makes it.

One rule for every framework: a call starts when the HTTP client is asked to send it and ends when the last byte
of its body was taken. The clients are wrapped at the one method through which all their requests go, so nothing
depends on a framework. What the answer says (tool calls or not, token counts) is read from a copy of its bytes.
"""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from agentdyno.host.trace import CURRENT, LlmCall, now_ns


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


class Observer:
    """Follows the body of one LLM answer: feed it each piece, then `finish`."""

    __slots__ = ("_compressed", "_pieces", "call")

    def __init__(self, call: LlmCall) -> None:
        self.call = call
        self._pieces: list[bytes] = []
        self._compressed = False

    def begin(self, status: int, content_type: str, content_encoding: str) -> None:
        """The answer's head is there. content_encoding: of the bytes that will be fed, "" when they are plain."""
        self.call.status = status
        self.call.streamed = content_type.startswith("text/event-stream")
        self._compressed = content_encoding in ("gzip", "deflate")

    def feed(self, data: bytes) -> None:
        """Take note of a piece of the body, in order."""
        if data:
            if self.call.first_byte_ns is None:
                self.call.first_byte_ns = now_ns()
            self._pieces.append(data)

    def finish(self) -> None:
        """The body was read to its end, or the client needs no more of it."""
        if self.call.end_ns is not None:
            return
        self.call.end_ns = now_ns()
        body = b"".join(self._pieces)
        self._pieces.clear()
        if self.call.status == 200:
            try:
                read_answer(self.call, zlib.decompress(body, _GZIP_OR_ZLIB) if self._compressed else body)
            except zlib.error as error:
                self.call.error = f"unreadable answer: {error}"

    def fail(self, error: BaseException) -> None:
        """The call broke before its end."""
        if self.call.end_ns is None:
            self.call.end_ns = now_ns()
            self.call.error = type(error).__name__


def read_answer(call: LlmCall, body: bytes) -> None:
    """Fill `call` with what an OpenAI-style answer, whole or as server-sent events, says of itself."""
    try:
        if call.streamed:
            _read_events(call, body)
        else:
            _take(call, _decoder.decode(body))
            call.wants_tools = bool(call.wants_tools)
    except msgspec.MsgspecError as error:
        call.error = f"unreadable answer: {error}"


def _read_events(call: LlmCall, body: bytes) -> None:
    call.wants_tools = False
    for line in body.splitlines():
        # Most events carry a piece of text: decode only those that say what is looked for.
        if line.startswith(b"data:") and (b'"tool_calls"' in line or b'"usage"' in line):
            _take(call, _decoder.decode(line[5:]))


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
        parts = urlsplit(base_url)
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.text = f"{parts.scheme}://{parts.netloc}/"

    def matches(self, host: str | None, port: int | None, scheme: str) -> bool:
        """Whether an address given in parts (port None: the scheme's own) is the LLM's."""
        return host == self.host and (port or (443 if scheme == "https" else 80)) == self.port


@contextmanager
def planning() -> Iterator[None]:
    """Marks planning that is done without an LLM, for a framework whose planner is its own code."""
    trace = CURRENT.get()
    if trace is None:
        yield
        return
    start_ns = now_ns()
    try:
        yield
    finally:
        trace.plannings.append((start_ns, now_ns()))


def install(base_url: str) -> list[str]:
    """Wrap every HTTP client library that is installed; returns their names. Call once, before the adapter loads."""
    origin = Origin(base_url)
    wrapped = []
    if importlib.util.find_spec("aiohttp"):
        from agentdyno.host import border_aiohttp

        border_aiohttp.install(origin)
        wrapped.append("aiohttp")
    for name in ("httpx", "httpx2"):
        if importlib.util.find_spec(name):
            from agentdyno.host import border_httpx

            border_httpx.install(name, origin)
            wrapped.append(name)
    return wrapped
