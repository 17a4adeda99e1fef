"""The golden server: answers the contract rightly after a delay that is known beforehand, and keeps what it did.

Each order's delay follows from the seed and the order id alone. The server waits by an absolute timer of the
kernel, and records when each request had come and when its answer was written, so that the truth is not what it
meant to do but what it did. It can also stand still once, as a collection or a blocking call would make it.

`python -m agentdyno.selfcheck.golden_server --fd N --log FILE`; it ends on SIGTERM and then writes its log.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import os
import re
import signal
import socket
import sys
import time
from itertools import count
from pathlib import Path

import msgspec

from agentdyno.contract.invoke import InvokeRequest, InvokeResponse, ToolCall, Usage
from agentdyno.contract.proof import ORDER_PATTERN, chain, key_from_environment
from agentdyno.contract.timing import Distribution, parse
from agentdyno.load.timer_descriptor import TimerDescriptor

_ORDER = re.compile(ORDER_PATTERN)
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_READY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
_decode = msgspec.json.Decoder(InvokeRequest).decode
_encode = msgspec.json.encode
_USAGE = Usage(4, 3, 4000, 900, 120, 0)


class Served(msgspec.Struct, frozen=True, array_like=True):
    """One answer: the order, and when its request had come and its answer was written, on the monotonic clock."""

    order: str
    received_ns: int
    written_ns: int


class Log(msgspec.Struct, frozen=True):
    """What the server did. stall_ns: from when to when it stood still, if it did."""

    served: list[Served]
    stall_ns: tuple[int, int] | None


class GoldenServer:
    """Answers after each order's own delay. delays: in ms."""

    def __init__(self, delays: Distribution, key: bytes) -> None:
        self.served: list[Served] = []
        self._delays = delays
        self._key = key
        self._due: list[tuple[int, int, Connection, bytes, str, int]] = []
        self._number = count()  # so that two that are due at once need not be compared further
        self._timer = TimerDescriptor()
        asyncio.get_running_loop().add_reader(self._timer.descriptor, self._on_timer)

    def on_request(self, connection: Connection, body: bytes, received_ns: int) -> None:
        """Make the answer now and write it when it is due."""
        request = _decode(body)
        found = _ORDER.search(request.input)
        if found is None:
            raise ValueError("the request names no order")
        order = found[0]
        links = chain(self._key, order)
        calls = tuple(ToolCall(tool, {"reference": reference}, f"Done: {made}") for tool, reference, made in links)
        text = f"We are sorry. Your resolution is filed as {links[-1][2]}."
        content = _encode(InvokeResponse(request.session_id, text, calls, _USAGE))
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
        due_ns = received_ns + int(self._delays.draw(order) * 1e6)
        if due_ns <= time.monotonic_ns():
            self._write(connection, answer + content, order, received_ns)
            return
        heapq.heappush(self._due, (due_ns, next(self._number), connection, answer + content, order, received_ns))
        self._timer.set(self._due[0][0])

    def _on_timer(self) -> None:
        self._timer.acknowledge()
        while self._due and self._due[0][0] <= time.monotonic_ns():
            _, _, connection, answer, order, received_ns = heapq.heappop(self._due)
            self._write(connection, answer, order, received_ns)
        if self._due:
            self._timer.set(self._due[0][0])

    def _write(self, connection: Connection, answer: bytes, order: str, received_ns: int) -> None:
        connection.transport.write(answer)
        self.served.append(Served(order, received_ns, time.monotonic_ns()))


class Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time on it."""

    transport: asyncio.Transport

    def __init__(self, server: GoldenServer) -> None:
        self._server = server
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """A request is served when all of it is there."""
        received_ns = time.monotonic_ns()
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or (length is not None and len(body) < int(length[1])):
            return
        self._buffer = b""
        if head.startswith(b"GET "):
            self.transport.write(_READY)
        else:
            self._server.on_request(self, body, received_ns)


class _Stall:
    """Stands still once: `after_s` after the first request, for `for_s`."""

    def __init__(self, server: GoldenServer, after_s: float, for_s: float) -> None:
        self.at_ns: tuple[int, int] | None = None
        self._server = server
        self._after_s = after_s
        self._for_s = for_s
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(0.01, self._wait_for_first)

    def _wait_for_first(self) -> None:
        if self._server.served:
            self._loop.call_later(self._after_s, self._stand_still)
        else:
            self._loop.call_later(0.01, self._wait_for_first)

    def _stand_still(self) -> None:
        begin = time.monotonic_ns()
        time.sleep(self._for_s)
        self.at_ns = begin, time.monotonic_ns()


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    server = GoldenServer(parse(options.delays, seed=options.seed), key_from_environment(os.environ))
    stall = _Stall(server, options.stall_after, options.stall_for) if options.stall_for else None
    listener = socket.socket(fileno=options.fd)
    listening = await loop.create_server(lambda: Connection(server), sock=listener, backlog=4096)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    gc.collect()
    gc.disable()  # a golden server makes no pauses of its own
    await ended.wait()
    listening.close()
    log = Log(server.served, stall.at_ns if stall is not None else None)
    await asyncio.to_thread(Path(options.log).write_bytes, _encode(log))


def main(argv: list[str] | None = None) -> int:
    """The server's process."""
    parser = argparse.ArgumentParser(prog="python -m agentdyno.selfcheck.golden_server", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="an inherited listening socket")
    parser.add_argument("--log", required=True, help="where to write what was done")
    parser.add_argument("--delays", default="const:0", help="a distribution in ms, see contract/timing.py")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stall-after", type=float, default=1.0, help="s after the first request")
    parser.add_argument("--stall-for", type=float, default=0.0, help="s to stand still; 0: never")
    asyncio.run(_serve(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
