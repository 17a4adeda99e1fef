"""A mock LLM process for tests, and a client that says exactly the bytes it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agentdyno

MODEL = "agentdyno-mock"
ORDER = "ORD-m1f4-5d0c2a9b"
MODULE = "agentdyno.backends.mock_llm"


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"reference": {"type": "string"}}, "required": ["reference"]}
    return {"type": "function", "function": {"name": name, "description": f"{name}.", "parameters": parameters}}


TOOLS = [tool(name) for name in ("order_status", "refund_policy", "resolution")]


def token(prefix: str, order: str = ORDER, mac: str = "0123456789abcdef") -> str:
    return f"{prefix}-{order[4:]}-{mac}"


def chat(*texts: str, **more: Any) -> bytes:
    """A chat completion's body with one user message a text."""
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"model": MODEL, "messages": messages, "tools": TOOLS, **more}).encode()


def post(body: bytes, path: str = "/v1/chat/completions", headers: str = "", version: str = "1.1") -> bytes:
    head = f"POST {path} HTTP/{version}\r\nHost: test\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def get(path: str, method: str = "GET", headers: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n".encode()


def chunked(body: bytes, size: int, headers: str = "") -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{headers}\r\n".encode()
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class Response:
    """One answer as it was on the wire."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The data of each server-sent event."""
        blocks = self.body.decode().split("\n\n")
        assert blocks[-1] == ""
        assert all(block.startswith("data: ") for block in blocks[:-1])
        return [block.removeprefix("data: ") for block in blocks[:-1]]


class RawClient:
    """A connection over which any bytes can be sent, and answers read one by one."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, *, head_only: bool = False) -> Response:
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), f"not a status line: {line!r}"
        status = int(line.split()[1])
        headers: dict[str, str] = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if head_only or status == 100:
            return Response(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Response(status, headers, b"".join(self._chunks()))
        if "content-length" in headers:
            body = self._file.read(int(headers["content-length"]))
            assert len(body) == int(headers["content-length"])
            return Response(status, headers, body)
        return Response(status, headers, self._file.read())

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._file.readline(), 16):
            yield self._file.read(size)
            assert self._file.readline() == b"\r\n"
        assert self._file.readline() == b"\r\n"

    def ask(self, data: bytes) -> Response:
        self.send(data)
        return self.read()

    def at_end(self) -> bool:
        """Whether the server closes the connection with nothing more to say (waits for either)."""
        return self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class MockServer:
    """A running mock LLM."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(agentdyno.__file__).parents[1])}
        command = [sys.executable, "-m", MODULE, "--port", "0", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listening on" in line, (line, self.process.stderr and self.process.stderr.read())
        self.port = int(line.rsplit(":", 1)[1])
        self._clients: list[RawClient] = []
        self._signalled = False

    def client(self) -> RawClient:
        client = RawClient(self.port)
        self._clients.append(client)
        return client

    def ask(self, data: bytes) -> Response:
        """Ask over a connection of its own."""
        client = self.client()
        answer = client.ask(data)
        client.close()
        return answer

    def stats(self) -> Any:
        return self.ask(get("/stats")).json

    def metric(self, name: str) -> float:
        """The value of the one series of this name."""
        lines = self.ask(get("/metrics")).body.decode().splitlines()
        return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Poll; a condition that never comes true fails the test."""
        deadline = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < deadline, f"it never came true; stats: {self.stats()}"
            time.sleep(0.005)

    def signal(self) -> None:
        self._signalled = True
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> tuple[int, str]:
        """Stop it; its exit code and what it wrote to stderr."""
        if not self._signalled:
            self.signal()
        _, errors = self.process.communicate(timeout=20)
        for client in self._clients:
            client.close()
        return self.process.returncode, errors
