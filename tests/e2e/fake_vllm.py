"""A server that answers as vLLM does, with the mock LLM behind it: its counters, and what it tells of its settings."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.backends.mock_process import MODEL, MockServer

_COUNTERS = {"request_success_total": "requests", "prompt_tokens_total": "prompt", "generation_tokens_total": "answer"}
_ZEROS = ("num_preemptions_total", "request_queue_time_seconds_sum", "request_prefill_time_seconds_sum")
_ZEROS += ("request_decode_time_seconds_sum", "time_to_first_token_seconds_sum", "e2e_request_latency_seconds_sum")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, mock: MockServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mock = mock
        self.lock = threading.Lock()
        self.counted = {"requests": 0, "prompt": 0, "answer": 0}

    def completion(self, path: str, body: bytes) -> tuple[bytes, str]:
        """The whole answer, streamed or not, and its content type."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.mock.port}{path}", data=body)
        with urllib.request.urlopen(request, timeout=20) as answer:
            said: bytes = answer.read()
            kind: str = answer.headers["content-type"]
        # That of a stream is in the last event but `[DONE]`.
        chunks = [json.loads(line) for line in said.replace(b"data: ", b"").splitlines() if line.startswith(b"{")]
        usage = chunks[-1]["usage"]
        with self.lock:
            self.counted["requests"] += 1
            self.counted["prompt"] += usage["prompt_tokens"]
            self.counted["answer"] += usage["completion_tokens"]
        return said, kind

    def told(self, path: str) -> bytes | None:
        if path == "/metrics":
            counts = [f"vllm:{name} {self.counted[key]}" for name, key in _COUNTERS.items()]
            counts += [f"vllm:{name} 0" for name in _ZEROS]
            cache = 'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="9000",sliding_window="None"} 1.0'
            return "\n".join([*counts, cache, ""]).encode()
        documents: dict[str, Any] = {
            "/version": {"version": "0.31.0"},
            "/v1/models": {"data": [{"id": MODEL, "root": "Qwen/weights", "max_model_len": 8192}]},
        }
        return json.dumps(documents[path]).encode() if path in documents else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer(self.server.told(self.path.partition("?")[0]))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self._answer(*self.server.completion(self.path, body))

    def _answer(self, body: bytes | None, kind: str = "application/json") -> None:
        self.send_response(200 if body is not None else 404)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def fake_vllm() -> Iterator[tuple[str, ...]]:
    """The options that ask for it."""
    mock = MockServer()
    server = _Server(mock)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield ("--backend", "vllm", "--url", url, "--model", MODEL)
    finally:
        server.shutdown()
        server.server_close()
        mock.stop()
