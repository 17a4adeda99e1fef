"""HTTP/1.1 on a raw asyncio protocol: keep-alive, pipelining, server-sent events, an orderly end.

One `Connection` hands one request at a time to its handler, in order; the handler answers through the same
connection, now or later. When the client goes away first, `Connection.on_gone` is called.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol, cast

from agentdyno.backends.mock_llm.http_reader import Request, RequestReader

DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024
JSON_TYPE = "application/json"
_LINGER_S = 1.0
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

Handler = Callable[[Request, "Connection"], None]


class Counter(Protocol):
    """Told of connections: opened, used for the so-manieth request, closed after so many."""

    def connection_opened(self) -> None:
        """It was accepted."""

    def connection_used(self, times: int) -> None:
        """A request has come on it."""

    def connection_closed(self, requests: int) -> None:
        """It has ended."""


class Connections:
    """The open connections of a server, its handler and its limits. Make it on a running event loop or before."""

    def __init__(self, handler: Handler, counter: Counter, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> None:
        self.handler = handler
        self.counter = counter
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
        self.counter.connection_opened()

    def closed(self, connection: Connection) -> None:
        """Forget a closed one."""
        self._open.discard(connection)
        self.counter.connection_closed(connection.requests)
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
    """One client's connection. Everything runs on the event loop; nothing blocks.

    requests: how many were handed to the handler. calls: how many of them it has taken for LLM calls.
    """

    def __init__(self, owner: Connections) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader(self, owner.max_body_bytes)
        self._waiting: deque[Request] = deque()  # received, behind the one at work
        self._current: Request | None = None  # at work
        self._owes_continue = False
        self._refused = False
        self._write_blocked = False
        self._advancing = False
        self.requests = 0
        self.calls = 0
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
            self._write(b"%x\r\n%b\r\n%b" % (len(data), data, b"0\r\n\r\n" if last else b""))
        if last:
            self._answered()

    # --- the life of the connection ---

    def close_when_idle(self) -> None:
        """Close now, or after the answer that is being made."""
        self._waiting.clear()
        if self._current is not None:
            self._current.keep_alive = False
        elif self._transport is not None:
            self._transport.close()

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
        self._advance()
        self._regulate()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._reader.feed(data)
        self._regulate()

    def received(self, request: Request) -> None:
        """See Receiver. A refusal waits its turn like any request."""
        self._owes_continue = False
        self._refused = request.refused is not None
        self._waiting.append(request)
        self._advance()

    def body_awaited(self) -> None:
        """See Receiver. While another answer is being made the client has to wait for it."""
        self._owes_continue = True
        self._advance()

    # --- inside ---

    def _at_work(self) -> Request:
        if self._current is None:
            raise RuntimeError("An answer was given on a connection that has no request to answer.")
        return self._current

    def _is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _advance(self) -> None:
        """Hand the requests received to the handler, one at a time and in order; not recursive."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._waiting and self._current is None and not self._write_blocked and not self._is_closed():
                self._current = self._waiting.popleft()
                self.requests += 1
                self._owner.counter.connection_used(self.requests)
                self._owner.handler(self._current, self)
        finally:
            self._advancing = False
        if self._owes_continue and self._current is None and not self._waiting and not self._is_closed():
            self._owes_continue = False
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answered(self) -> None:
        request = self._at_work()
        self._current = None
        self.on_gone = None
        transport = self._transport
        if request.refused is not None and transport is not None and transport.can_write_eof():
            # Closing at once, with input unread, would reset the connection and could lose the answer.
            transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, transport.close)
        elif request.keep_alive and not self._owner.closing:
            self._advance()
            self._regulate()
        elif transport is not None:
            self._waiting.clear()
            transport.close()

    def _head(self, request: Request, status: int, lines: str) -> bytes:
        keep = request.keep_alive and not self._owner.closing
        state = "" if keep and not request.http_1_0 else f"Connection: {'keep-alive' if keep else 'close'}\r\n"
        return f"{_STATUS_LINES[status]}{self._owner.date_line()}{lines}{state}\r\n".encode("latin-1")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _regulate(self) -> None:
        """Stop reading while requests pile up behind the one at work, or answers behind a slow reader."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = not (self._waiting or self._write_blocked) or (self._refused and self._current is None)
        if wanted and not transport.is_reading():
            transport.resume_reading()
        elif not wanted and transport.is_reading():
            transport.pause_reading()
