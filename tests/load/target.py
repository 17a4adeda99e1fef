"""A small HTTP target that speaks the contract with real proof of work, and misbehaves when told to.

Run as a process: python target.py --port-file FILE [--mode ok|never|garbage|...] [--stall-at S --stall-for S]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import time
from pathlib import Path

import msgspec

from agentdyno.contract.invoke import InvokeRequest, InvokeResponse, ToolCall, Usage
from agentdyno.contract.proof import ORDER_PATTERN, chain, key_from_environment

ORDER = re.compile(ORDER_PATTERN)


def answer_of(request: InvokeRequest, key: bytes) -> InvokeResponse:
    found = ORDER.search(request.input)
    assert found is not None
    links = chain(key, found[0])
    return InvokeResponse(
        session_id=request.session_id,
        output=f"We are sorry. Your resolution is filed as {links[-1][2]}.",
        tool_calls=tuple(ToolCall(tool, {"reference": ref}, f"Done: {made}") for tool, ref, made in links),
        usage=Usage(4, 3, 4000, 900, 120, 0),
    )


class Server(asyncio.Protocol):
    stalled_until_s = 0.0

    def __init__(self, mode: str, key: bytes) -> None:
        self.mode, self.key, self.buffer = mode, key, b""

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
        if self.mode == "never":
            return
        if self.mode == "close":
            self.transport.close()
            return
        if self.mode == "reset":
            self.transport.abort()
            return
        status, content = b"200 OK", b"{not json"
        if self.mode == "ok":
            content = msgspec.json.encode(answer_of(msgspec.json.decode(body, type=InvokeRequest), self.key))
        elif self.mode.isdigit():
            status = self.mode.encode() + b" Told So"
        extra = b"Location: http://127.0.0.1:1/\r\n" if self.mode == "302" else b""
        if self.mode == "cut":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + content)
            self.transport.close()
            return
        if self.mode == "noise":
            self.transport.write(b"\x00\x01 noise\r\n\r\n")
            return
        self.transport.write(b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, extra, len(content), content))


def stall_when_told(loop, told: Path, duration_s: float) -> None:
    """Stop the whole process at once, as a collection or a blocking call would; everyone waits."""
    if told.exists():
        time.sleep(duration_s)
    else:
        loop.call_later(0.005, stall_when_told, loop, told, duration_s)


async def main(options) -> None:
    key = key_from_environment(os.environ)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(options.mode, key), "127.0.0.1", 0, backlog=2000)
    ready = Path(options.port_file)
    part = ready.with_suffix(".part")
    part.write_text(str(server.sockets[0].getsockname()[1]), encoding="ascii")
    part.rename(ready)
    if options.stall_file:
        loop.call_later(0.005, stall_when_told, loop, Path(options.stall_file), options.stall_for)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--mode", default="ok")
    parser.add_argument("--stall-file", default="")
    parser.add_argument("--stall-for", type=float, default=1.4)
    asyncio.run(main(parser.parse_args()))
