"""How many requests the mock LLM serves, and what core time one costs it.

The server gets one core to itself and the client, in a process of its own, another, where there are two. The
requests are the four turns of the chain scenario, with its system prompt, history and tools, over keep-alive
connections. The client only counts bytes, so that it is not what limits the rate.

`python -m agentdyno.selfcheck.mock_rate` prints the figures as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil
import uvloop

from agentdyno.contract.proof import STEPS, Stage, chain
from agentdyno.contract.scenario import SCENARIOS

_KEY = bytes(16)
_LEAD_S = 0.5


def measure(duration_s: float = 3.0, connections: int = 16, rate_rps: float = 800.0) -> dict[str, Any]:
    """Measure the mock LLM: first saturated, then at a steady `rate_rps`; `duration_s` each.

    Returns requests_per_s (saturated), requests_per_core_s (requests for each second of the server's CPU time),
    cpu_us_per_request, server_cpu_percent (saturated), request_bytes (mean), cpu_percent_at_rate and
    achieved_rate_rps, and pinned: whether client and server each had a core.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    pinned = len(cores) > 1
    server = subprocess.Popen(
        [sys.executable, "-m", "agentdyno.backends.mock_llm", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        watched = psutil.Process(server.pid)
        if pinned:
            watched.cpu_affinity(cores[:1])
        client_cores = cores[1:2] if pinned else []
        saturated = _drive(watched, client_cores, port, duration_s, connections, 0.0)
        steady = _drive(watched, client_cores, port, duration_s, connections, rate_rps)
    finally:
        server.terminate()
        server.wait(timeout=10)
        if server.stdout is not None:
            server.stdout.close()
    bodies = [len(body) for body in chain_requests(0)]
    return {
        "requests_per_s": round(saturated["requests"] / saturated["elapsed_s"]),
        "requests_per_core_s": round(saturated["requests"] / saturated["cpu_s"]),
        "cpu_us_per_request": round(saturated["cpu_s"] / saturated["requests"] * 1e6, 1),
        "server_cpu_percent": round(100 * saturated["cpu_s"] / saturated["elapsed_s"], 1),
        "request_bytes": round(sum(bodies) / len(bodies)),
        "achieved_rate_rps": round(steady["requests"] / steady["elapsed_s"], 1),
        "cpu_percent_at_rate": round(100 * steady["cpu_s"] / steady["elapsed_s"], 1),
        "pinned": pinned,
    }


def _drive(
    server: psutil.Process, cores: list[int], port: int, duration_s: float, connections: int, rate_rps: float
) -> dict[str, float]:
    """Run one client process; the requests, seconds and server CPU seconds of its measured part."""
    command = [sys.executable, "-m", "agentdyno.selfcheck.mock_rate", str(port), str(duration_s)]
    client = subprocess.Popen(
        [*command, str(connections), str(rate_rps)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    if cores:
        psutil.Process(client.pid).cpu_affinity(cores)
    assert client.stdout is not None
    client.stdout.readline()  # warmed up: the measured part begins
    before = server.cpu_times()
    found: dict[str, float] = json.loads(client.stdout.readline())
    after = server.cpu_times()
    client.communicate()
    found["cpu_s"] = after.user + after.system - before.user - before.system
    return found


def chain_requests(index: int) -> list[bytes]:
    """The four requests of one chain conversation, as HTTP."""
    scenario = SCENARIOS["chain"]
    asked = scenario.request(1, Stage.MEASURE, index, 10_000)
    order = "ORD-" + asked.session_id.removeprefix("sess-")
    messages: list[dict[str, Any]] = [{"role": "system", "content": scenario.system_prompt}]
    messages += [{"role": message.role, "content": message.content} for message in scenario.history]
    messages.append({"role": "user", "content": asked.input})
    requests = [_http(messages)]
    for tool, reference, token in chain(_KEY, order):
        function = {"name": tool, "arguments": json.dumps({"reference": reference})}
        call = {"id": f"call_{tool}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"reference": token})})
        requests.append(_http(messages))
    return requests


def _http(messages: list[dict[str, Any]]) -> bytes:
    reference = {"type": "string", "description": "The order id, or the reference the step before returned."}
    parameters = {"type": "object", "properties": {"reference": reference}, "required": ["reference"]}
    tools = [
        {
            "type": "function",
            "function": {"name": step.tool, "description": f"Customer service: {step.tool}.", "parameters": parameters},
        }
        for step in STEPS
    ]
    body = json.dumps({"model": "agentdyno-mock", "messages": messages, "tools": tools, "stream": False}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
        "Authorization: Bearer none\r\nContent-Type: application/json\r\nUser-Agent: agentdyno\r\n"
        f"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Client(asyncio.Protocol):
    """Sends requests one after the other; an answer is complete when as many bytes came as the first time."""

    def __init__(self, requests: Sequence[bytes], sizes: dict[int, int], by_itself: bool) -> None:
        self._requests = requests
        self._sizes = sizes
        self._by_itself = by_itself
        self._turn = 0
        self._missing = 0
        self.done = 0
        self.free = True
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is one in all but name

    def send(self) -> None:
        """Send the next request."""
        assert self.transport is not None
        self.free = False
        self._missing = self._sizes[self._turn]
        self.transport.write(self._requests[self._turn])

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing > 0:
            return
        if self._missing < 0:
            raise RuntimeError("The mock LLM answered one request with answers of different lengths.")
        self.done += 1
        self.free = True
        self._turn = (self._turn + 1) % len(self._requests)
        if self._by_itself:
            self.send()


async def _client(port: int, duration_s: float, connections: int, rate_rps: float) -> None:
    loop = asyncio.get_running_loop()
    clients: list[_Client] = []
    for index in range(connections):
        requests = chain_requests(index)
        sizes = {turn: await _answer_size(port, request) for turn, request in enumerate(requests)}
        _, client = await loop.create_connection(
            lambda requests=requests, sizes=sizes: _Client(requests, sizes, rate_rps == 0),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        clients.append(client)
    if rate_rps == 0:
        for client in clients:
            client.send()
    pace = asyncio.create_task(_pace(clients, rate_rps)) if rate_rps else None
    await asyncio.sleep(_LEAD_S)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    start_s, before = time.monotonic(), sum(client.done for client in clients)
    await asyncio.sleep(duration_s)
    found = {"requests": sum(client.done for client in clients) - before, "elapsed_s": time.monotonic() - start_s}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    if pace is not None:
        pace.cancel()


async def _pace(clients: Sequence[_Client], rate_rps: float) -> None:
    """Send on an absolute schedule, each time over a connection that is free."""
    start_s, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - start_s) * rate_rps)
        for client in clients:
            if sent < due and client.free:
                client.send()
                sent += 1
        await asyncio.sleep(0.001)


async def _answer_size(port: int, request: bytes) -> int:
    """How many bytes the answer to `request` has; it must be a 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"The mock LLM answered {head.splitlines()[0].decode()!r}.")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    writer.close()
    return len(head) + int(length.split(b":")[1])


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.stdout.write(json.dumps(measure(), indent=2) + "\n")
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_client(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
