"""Reading HTTP/1.1 requests from a connection's bytes, with limits; httptools does the parsing."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Protocol

import httptools
import msgspec

MAX_HEAD_BYTES = 64 * 1024


class Request(msgspec.Struct, eq=False):
    """One request, read to its end.

    refused: (status, sentence) when the reader itself found it unacceptable; the handler answers that.
    received_s: when its last byte was read, on the monotonic clock. traceparent, authorization: the
    headers as received.
    """

    method: str = ""
    target: bytes = b""
    body: bytes = b""
    traceparent: str | None = None
    authorization: str | None = None
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


class Receiver(Protocol):
    """What a reader reports to."""

    def received(self, request: Request) -> None:
        """A request is complete, or (`refused` is set) cannot be accepted; after a refusal nothing else comes."""

    def body_awaited(self) -> None:
        """The client waits for `100 Continue` before it sends the body."""


class RequestReader:
    """Turns a connection's bytes into requests, in order. on_...: called by httptools."""

    def __init__(self, receiver: Receiver, max_body_bytes: int) -> None:
        self._receiver = receiver
        self._max_body_bytes = max_body_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._request: Request | None = None  # None between requests, and for good after a refusal
        self._refused = False
        self._in_head = True
        self._head_bytes = 0  # of a head that is not complete yet
        self._marks = 0  # heads and messages completed
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._expects_continue = False
        self._framing: list[bytes] = []
        self._upgrade_offered = False

    def feed(self, data: bytes) -> None:
        """Read on. What comes after a refusal is thrown away."""
        if self._refused:
            return
        marks = self._marks
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(400, f"The request is not valid HTTP/1.1: {error}.")
            return
        if self._marks != marks or not self._in_head:
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"The request's head is longer than {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._request = None if self._refused else Request()
        self._body = []
        self._body_bytes = 0
        self._framing = []
        self._expects_continue = False
        self._upgrade_offered = False

    def on_url(self, url: bytes) -> None:
        """The target, or the next part of it."""
        if self._request is not None:
            self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer (ignored). Most are none of ours, so that their length is looked at first."""
        size = len(name)
        if size not in (6, 11, 13, 14, 17) or self._request is None or not self._in_head:
            return
        lower = name.lower()
        if lower == b"traceparent":
            self._request.traceparent = value.decode("latin-1")
        elif lower == b"authorization":
            self._request.authorization = value.decode("latin-1")
        elif lower == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        elif lower in (b"content-length", b"transfer-encoding"):
            self._framing.append(b"%b: %b\r\n" % (name, value))
            if value.isdigit():
                self._check_size(int(value))

    def on_headers_complete(self) -> None:
        """The head is read."""
        self._in_head = False
        self._marks += 1
        request = self._request
        if request is None:
            return
        request.method = self._parser.get_method().decode("latin-1")
        request.http_1_0 = self._parser.get_http_version() == "1.0"
        self._upgrade_offered = self._parser.should_upgrade()
        if self._expects_continue and not request.http_1_0 and not self._upgrade_offered:
            self._receiver.body_awaited()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._request is not None:
            self._body.append(body)
            self._body_bytes += len(body)
            self._check_size(self._body_bytes)

    def on_message_complete(self) -> None:
        """A request's last byte."""
        self._in_head = True
        self._marks += 1
        request = self._request
        if request is None or self._upgrade_offered:
            return
        self._request = None
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request.keep_alive = self._parser.should_keep_alive()
        request.received_s = time.monotonic()
        self._receiver.received(request)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the same request again without its offer to upgrade.

        A server may ignore the offer, but httptools then takes the body for the other protocol's first bytes.
        Some clients offer HTTP/2 with every request (Java's does).
        """
        request = self._request
        if request is None:
            return
        if request.method == "CONNECT":
            self._refuse(405, "This server is no proxy: CONNECT is not possible.")
            return
        version = b"1.0" if request.http_1_0 else b"1.1"
        head = [b"%b %b HTTP/%b\r\n" % (request.method.encode("latin-1"), request.target, version), *self._framing]
        if request.traceparent is not None:
            head.append(b"traceparent: %b\r\n" % request.traceparent.encode("latin-1"))
        if request.authorization is not None:
            head.append(b"authorization: %b\r\n" % request.authorization.encode("latin-1"))
        if self._expects_continue:
            head.append(b"Expect: 100-continue\r\n")
        self._parser = httptools.HttpRequestParser(self)
        self.feed(b"".join((*head, b"\r\n", rest)))

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_body_bytes:
            self._refuse(413, f"The request's body is longer than {self._max_body_bytes} bytes.")

    def _refuse(self, status: int, sentence: str) -> None:
        if self._refused:
            return
        self._refused = True
        self._request = None
        self._body = []
        self._receiver.received(Request(method="?", refused=(status, sentence), received_s=time.monotonic()))
