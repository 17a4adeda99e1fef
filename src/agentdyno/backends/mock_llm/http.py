"""HTTP/1.1 on a raw asyncio protocol: keep-alive, pipelining, chunked bodies, limits, server-sent events.

One `Connection` hands one request at a time to its handler, in order; the handler answers through the same
connection, now or later. When the client goes away first, `Connection.on_gone` is called.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools
import msgspec

MAX_HEAD_BYTES = 64 * 1024
DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024
JSON_TYPE = "application/json"
_LINGER_S = 1.0
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class Request(msgspec.Struct, eq=False):
    """One request, read to its end.

    refused: (status, sentence) when the connection itself found it unacceptable; the handler answers that.
    traceparent: the W3C header as received.
    """

    method: str = ""
    target: bytes = b""
    body: bytes = b""
    traceparent: str | None = None
    keep_alive: bool = False
    http_1_0: bool = False
    received_s: float = 0.0
    refused: tuple[int, str] | None = None

    @property
    def path(self) -> str:
        """The path of the target, without its query."""
        target = self.target
        if not target.startswith(b"/") or b"?" in target or b"#" in target:
            # An odd target is no path of ours: it will not be found.
            with suppress(httptools.HttpParserInvalidURLError):
                target = httptools.parse_url(target).path or b"/"
        return target.decode("latin-1")


Handler = Callable[[Request, "Connection"], None]


class Connections:
    """The open connections of a server, its handler and its limits."""

    def __init__(self, handler: Handler, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> None:
        self.handler = handler
        self.max_body_bytes = max_body_bytes
        self.closing = False
        self._open: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._date_s = 0
        self._date_line = ""

    def connect(self) -> Connection:
        """The protocol factory for a listening socket."""
        return Connection(self)

    def opened(self, connection: Connection) -> None:
        """Remember an open connection."""
        self._open.add(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a closed one."""
        self._open.discard(connection)
        if self.closing and not self._open:
            self._all_closed.set()

    def date_line(self) -> str:
        """The Date header, made once a second."""
        now_s = int(time.time())
        if now_s != self._date_s:
            self._date_s = now_s
            self._date_line = f"Date: {formatdate(now_s, usegmt=True)}\r\n"
        return self._date_line

    async def drain(self, grace_s: float) -> bool:
        """Close every connection, those at work after their answer. False when some took longer than `grace_s`."""
        self.closing = True
        if not self._open:
            return True
        for connection in tuple(self._open):
            connection.close_when_idle()
        try:
            await asyncio.wait_for(self._all_closed.wait(), grace_s)
        except TimeoutError:
            for connection in tuple(self._open):
                connection.abort()
            return False
        return True


class Connection(asyncio.Protocol):
    """One client's connection. Everything runs on the event loop; nothing blocks."""

    def __init__(self, owner: Connections) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._reading: Request | None = None  # being received
        self._waiting: deque[Request] = deque()  # received, behind the one at work
        self._current: Request | None = None  # at work
        self._in_head = True
        self._head_bytes = 0  # of a head that is not complete yet
        self._heads_read = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._expects_continue = False
        self._finished = False  # nothing more will be read or answered
        self._write_blocked = False
        self._advancing = False
        self.on_gone: Callable[[], None] | None = None

    # --- what a handler calls ---

    def respond(self, status: int, body: bytes, content_type: str = JSON_TYPE, extra: str = "") -> None:
        """Answer the current request as a whole. extra: more header lines, each with its line end."""
        request = self._at_work()
        head = self._head(request, status, f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}")
        self._write(head if request.method == "HEAD" else head + body)
        self._answered()

    def begin_events(self) -> None:
        """Answer the current request with a stream of server-sent events."""
        request = self._at_work()
        framing = "" if request.http_1_0 else "Transfer-Encoding: chunked\r\n"
        if request.http_1_0:
            request.keep_alive = False  # HTTP/1.0 knows no chunks: the end of the connection ends the answer
        kind = "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
        self._write(self._head(request, 200, kind + framing))

    def send_events(self, data: bytes, last: bool = False) -> None:
        """Send one or more whole events; with `last`, also end the answer."""
        if self._at_work().http_1_0:
            self._write(data)
        else:
            end = b"0\r\n\r\n" if last else b""
            self._write(b"%x\r\n%b\r\n%b" % (len(data), data, end))
        if last:
            self._answered()

    # --- the life of the connection ---

    def close_when_idle(self) -> None:
        """Close now, or after the answer that is being made."""
        if self._current is None:
            self._finished = True
            if self._transport is not None:
                self._transport.close()
        else:
            self._current.keep_alive = False
            self._waiting.clear()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio's
        self._owner.opened(self)
        if self._owner.closing:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._owner.closed(self)
        self._finished = True
        self._transport = None
        self._waiting.clear()
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()

    def pause_writing(self) -> None:
        """See asyncio.Protocol: a client that does not read its answers is not read from either."""
        self._write_blocked = True
        self._regulate()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._write_blocked = False
        self._regulate()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._finished:
            return  # lingering after a refusal: what still comes is thrown away
        heads_read = self._heads_read
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # We offer no other protocol: the request was delivered, go on in HTTP/1.1 behind it.
            self._parser = httptools.HttpRequestParser(self)
            rest = data[upgrade.args[0] :]
            if rest:
                self.data_received(rest)
            return
        except httptools.HttpParserError as error:
            if not self._finished:
                self._refuse(400, f"The request is not valid HTTP/1.1: {error}.")
            return
        if self._heads_read != heads_read or not self._in_head:
            self._head_bytes = 0
        else:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self._finished:
                self._refuse(431, f"The request's head is longer than {MAX_HEAD_BYTES} bytes.")
        self._regulate()

    # --- httptools' callbacks ---

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._reading = None if self._finished else Request()
        self._body = []
        self._body_bytes = 0
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        """The target, or the next part of it."""
        if self._reading is not None:
            self._reading.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer (ignored)."""
        if self._reading is None or not self._in_head:
            return
        size = len(name)
        if size == 11 and name.lower() == b"traceparent":
            self._reading.traceparent = value.decode("latin-1")
        elif size == 6 and name.lower() == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        elif size == 14 and name.lower() == b"content-length" and value.isdigit():
            self._check_size(int(value))

    def on_headers_complete(self) -> None:
        """The head is read."""
        self._in_head = False
        self._heads_read += 1
        request = self._reading
        if request is None:
            return
        request.method = self._parser.get_method().decode("latin-1")
        request.http_1_0 = self._parser.get_http_version() == "1.0"
        if self._expects_continue and not request.http_1_0:
            self._invite_body()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._reading is not None:
            self._body.append(body)
            self._body_bytes += len(body)
            self._check_size(self._body_bytes)

    def on_message_complete(self) -> None:
        """A request's last byte."""
        self._in_head = True
        request, self._reading = self._reading, None
        if request is None or self._finished:
            return
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request.keep_alive = self._parser.should_keep_alive()
        request.received_s = time.monotonic()
        self._expects_continue = False
        self._waiting.append(request)
        self._advance()

    # --- inside ---

    def _at_work(self) -> Request:
        if self._current is None:
            raise RuntimeError("An answer was given on a connection that has no request to answer.")
        return self._current

    def _advance(self) -> None:
        """Hand the requests received to the handler, one at a time and in order; not recursive."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._waiting and self._current is None and not self._closed_or_closing():
                self._current = self._waiting.popleft()
                self._owner.handler(self._current, self)
        finally:
            self._advancing = False
        if self._expects_continue and self._current is None and not self._in_head:
            self._invite_body()

    def _answered(self) -> None:
        request = self._at_work()
        self._current = None
        self.on_gone = None
        if request.refused is not None:
            self._linger()
            return
        if not request.keep_alive or self._owner.closing:
            self._finished = True
            self._waiting.clear()
            if self._transport is not None:
                self._transport.close()
            return
        self._advance()
        self._regulate()

    def _invite_body(self) -> None:
        """Say 100 Continue, unless an answer is being written: then `_advance` says it after that."""
        if self._current is None and not self._waiting and not self._closed_or_closing():
            self._expects_continue = False
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_size(self, size_bytes: int) -> None:
        limit = self._owner.max_body_bytes
        if size_bytes > limit and not self._finished:
            self._refuse(413, f"The request's body is longer than {limit} bytes.")

    def _refuse(self, status: int, sentence: str) -> None:
        """Read no further; the refusal is answered in its turn, behind the requests before it."""
        self._finished = True
        self._reading = None
        self._body = []
        self._expects_continue = False
        self._waiting.append(Request(method="?", refused=(status, sentence), received_s=time.monotonic()))
        self._advance()

    def _closed_or_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _head(self, request: Request, status: int, lines: str) -> bytes:
        keep = request.keep_alive and not self._owner.closing
        state = "" if keep and not request.http_1_0 else f"Connection: {'keep-alive' if keep else 'close'}\r\n"
        return f"{_STATUS_LINES[status]}{self._owner.date_line()}{lines}{state}\r\n".encode("latin-1")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _linger(self) -> None:
        """Close after a refusal: closing at once, with input unread, would reset the connection under the answer."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._regulate()
        if transport.can_write_eof():
            transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, transport.close)
        else:
            transport.close()

    def _regulate(self) -> None:
        """Stop reading while requests pile up behind the one at work, or answers behind a slow reader."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = self._finished or not (self._waiting or self._write_blocked)
        if wanted and not transport.is_reading():
            transport.resume_reading()
        elif not wanted and transport.is_reading():
            transport.pause_reading()
