"""The HTTP client of the load side: keep-alive connections on which nothing waits and nothing is retried.

geventhttpclient does the parsing. Its connection pool is not used, because an open-loop generator cannot have
what it does: wait for a free slot, resolve the host's name for each connection, keep a slot for ever when a
time-out strikes during the send, and check idle connections with select(), which fails above descriptor 1023.
"""

from __future__ import annotations

import errno
import resource
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

import gevent.socket
import gevent.ssl
from geventhttpclient.response import HTTPParseError, HTTPResponse

# Below the keep-alive time-out of common servers (uvicorn: 5 s), so that a request is not sent into a connection
# that the server is just closing: without retries that would be a failed request that the framework did not cause.
MAX_IDLE_S = 4.0
# A hundred times what an answer has: a target that sends without end must not fill the generator's memory.
MAX_ANSWER_BYTES = 1 << 20
_RECEIVE_BYTES = 65536
# Standard streams, Locust's own sockets, records, and connections that are being closed.
_OTHER_DESCRIPTORS = 200


class HostUrlError(ValueError):
    """The --host cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed --host: where to connect, and what the request line and the Host header say."""

    scheme: str
    host: str
    port: int
    authority: str
    path: str

    @classmethod
    def parse(cls, url: str, path: str) -> Target:
        """Raises HostUrlError unless `url` is http(s)://host[:port][/prefix]."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise HostUrlError(f"--host {url!r} is not a URL: {error}.") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise HostUrlError(f"--host {url!r} must have the form http://name:port or https://name:port.")
        full_path = parts.path.rstrip("/") + path
        return cls(
            parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), parts.netloc, full_path
        )

    def head(self) -> str:
        """The part of a POST's head that all requests share, without the blank line at its end."""
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.authority}\r\nUser-Agent: agentdyno\r\n"
            "Accept: application/json\r\nContent-Type: application/json\r\n"
        )


class AnswerTooLongError(Exception):
    """An answer has more than MAX_ANSWER_BYTES."""


EXCHANGE_ERRORS = (OSError, EOFError, HTTPParseError, AnswerTooLongError)


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP response."""

    status: int
    body: bytes


class Connections:
    """Idle connections to one target, the most recently used first. There is no limit and no waiting."""

    def __init__(self, target: Target) -> None:
        """Raises HostUrlError when the target's name cannot be resolved. Resolves it once, here."""
        self.target = target
        self._idle: list[tuple[gevent.socket.socket, float]] = []
        self._tls = gevent.ssl.create_default_context() if target.scheme == "https" else None
        try:
            found = gevent.socket.getaddrinfo(target.host, target.port, 0, gevent.socket.SOCK_STREAM)
        except OSError as error:
            raise HostUrlError(f"The name {target.host!r} in --host cannot be resolved: {error.strerror}.") from error
        # A name with several addresses (localhost: ::1, 127.0.0.1) may be served on one of them only.
        self._addresses = [(family, address) for family, _, _, _, address in found]

    def exchange(self, request: bytes, seen: Callable[[HTTPResponse], None] | None = None) -> Answer:
        """Send one request and read its whole answer. No redirect, no retry, no proxy.

        seen: shown the answer as it is so far, whenever more of it has come.

        Raises one of EXCHANGE_ERRORS (see `reason_of`). Whatever is raised into it, a gevent.Timeout too, throws its
        connection away.
        """
        connection = self._take() or self._connect()
        try:
            connection.sendall(request)
            response = _read(connection, seen)
        except BaseException:
            connection.close()
            raise
        if response.should_close():
            connection.close()
        else:
            self._idle.append((connection, monotonic()))
        return Answer(response.get_code(), bytes(response._body_buffer))

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop()[0].close()

    def _take(self) -> gevent.socket.socket | None:
        """The idle connection that was used last, if there is one that the server has kept open."""
        while self._idle:
            connection, since_s = self._idle.pop()
            if monotonic() - since_s < MAX_IDLE_S and _is_quiet(connection):
                return connection
            connection.close()
        return None

    def _connect(self) -> gevent.socket.socket:
        failure: OSError | None = None
        for position, (family, address) in enumerate(self._addresses):
            connection = gevent.socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.connect(address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_hostname=self.target.host)
            except OSError as error:
                connection.close()
                failure = failure or error
            except BaseException:
                connection.close()
                raise
            else:
                if position:
                    self._addresses.insert(0, self._addresses.pop(position))
                return connection
        raise failure or OSError("the host has no address")


def reason_of(error: BaseException) -> str:
    """A failure of `exchange` in one of a few stable words."""
    if isinstance(error, HTTPParseError):
        return "malformed"
    if isinstance(error, AnswerTooLongError):
        return "too_long"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, EOFError):
        return "closed"
    if isinstance(error, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)):
        return "reset"
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT):
        return "unreachable"
    return "connection"


def check_descriptors(max_in_flight: int) -> None:
    """Raises ValueError when this process may not open as many connections as may be in flight."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and max_in_flight > limit - _OTHER_DESCRIPTORS:
        raise ValueError(
            f"{max_in_flight} requests in flight need more open files than this process may have ({limit}); "
            "raise `ulimit -n` or lower --max-in-flight."
        )


def _is_quiet(connection: gevent.socket.socket) -> bool:
    """Is there nothing to read? An idle connection with something to read has been closed, or is out of step."""
    if isinstance(connection, ssl.SSLSocket):
        return True  # TLS 1.3 sends session tickets after the handshake, and a TLS socket cannot be peeked into
    try:
        connection._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _read(connection: gevent.socket.socket, seen: Callable[[HTTPResponse], None] | None) -> HTTPResponse:
    """Read until one final response is complete. Raises EOFError when the server closes before it."""
    response = HTTPResponse(method="POST")
    while not (response.message_complete and response.get_code() >= 200):
        data = connection.recv(_RECEIVE_BYTES)
        if not data:
            _finish(response)
            break
        response.feed(data)
        if seen is not None:
            seen(response)
        if len(response._body_buffer) > MAX_ANSWER_BYTES:
            raise AnswerTooLongError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
    return response


def _finish(response: HTTPResponse) -> None:
    """Tell the parser that the server has closed: a body without a length ends so, all else is cut short."""
    try:
        response.feed(b"")
    except HTTPParseError as error:
        raise EOFError("the server closed the connection before its answer was complete") from error
    if not response.message_complete or response.get_code() < 200:
        raise EOFError("the server closed the connection before its answer was complete")
