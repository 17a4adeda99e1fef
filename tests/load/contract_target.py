"""A small HTTP target that speaks the contract with real proof of work, and misbehaves when told to.

Run as a process: contract_target.py --port-file FILE [--mode ok|never|garbage|500|...] [--stall-file FILE --log FILE].
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import struct
import time
from pathlib import Path

import msgspec

from agentdyno.contract.invoke import InvokeRequest, InvokeResponse, ToolCall, Usage
from agentdyno.contract.proof import ORDER_PATTERN, chain, key_from_environment

ORDER = re.compile(ORDER_PATTERN)


def answer_of(request: InvokeRequest, key: bytes, *, parallel: bool = False) -> InvokeResponse:
    """What an agent that does its work answers."""
    found = ORDER.search(request.input)
    assert found is not None
    links = chain(key, found[0], parallel=parallel)
    quoted = [made for _, _, made in links] if parallel else [links[-1][2]]
    return InvokeResponse(
        session_id=request.session_id,
        output=f"We are sorry. Your resolution is filed as {', '.join(quoted)}.",
        tool_calls=tuple(ToolCall(tool, {"reference": ref}, f"Done: {made}") for tool, ref, made in links),
        usage=Usage(4, 3, 4000, 900, 120, 0),
    )


STALL_NS: list[int] = []


class Server(asyncio.Protocol):
    def __init__(self, modes: list[str], key: bytes) -> None:
        self.modes, self.key, self.buffer = modes, key, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            self.respond(rest[:length])

    def respond(self, body):
        order = ORDER.search(body.decode())[0]
        # Several modes take turns, by the index in the order id.
        mode = self.modes[int(order.split("-")[1][1:], 16) % len(self.modes)]
        status, content, extra = b"200 OK", b"{not json", b""
        if mode == "never":
            return
        if mode == "close":
            self.transport.close()
            return
        if mode == "reset":
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
            return
        if mode == "cut":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + content)
            self.transport.close()
            return
        if mode == "endless":
            self.transport.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2_000_000)
            return
        if mode == "noise":
            self.transport.write(b"\x00\x01 noise\r\n\r\n")
            return
        if mode == "ok":
            content = msgspec.json.encode(answer_of(msgspec.json.decode(body, type=InvokeRequest), self.key))
        elif mode.isdigit():
            status = mode.encode() + b" Told So"
        if mode == "302":
            extra = b"Location: http://127.0.0.1:1/\r\n"
        self.transport.write(b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, extra, len(content), content))


def write_log(path: Path) -> None:
    """When the stall was, on the machine's monotonic clock. Whole files only."""
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode({"stall_ns": STALL_NS}))
    part.rename(path)


def stall_when_told(loop, told: Path, duration_s: float) -> None:
    """Stop the whole process at once, as a collection or a blocking call would; everyone waits."""
    if told.exists():
        STALL_NS.append(time.monotonic_ns())
        time.sleep(duration_s)
        STALL_NS.append(time.monotonic_ns())
    else:
        loop.call_later(0.005, stall_when_told, loop, told, duration_s)


async def main(options) -> None:
    key = key_from_environment(os.environ)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(options.mode.split(","), key), "127.0.0.1", 0, backlog=2000)
    ready = Path(options.port_file)
    part = ready.with_suffix(".part")
    part.write_text(str(server.sockets[0].getsockname()[1]), encoding="ascii")
    part.rename(ready)
    if options.stall_file:
        loop.call_later(0.005, stall_when_told, loop, Path(options.stall_file), options.stall_for)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    if options.log:
        write_log(Path(options.log))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--mode", default="ok")
    parser.add_argument("--stall-file", default="")
    parser.add_argument("--log", default="")
    parser.add_argument("--stall-for", type=float, default=1.4)
    asyncio.run(main(parser.parse_args()))
