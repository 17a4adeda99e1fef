"""What vLLM answers to a fixed list of requests: recorded once by `make record-vllm`, read by everyday tests.

`python -m tests.golden.vllm_recording` records anew; on a quiet machine, for a server that is behind sends several
steps of decoding as one event. What /metrics has counted are the requests before it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("vllm")
MODEL = "MODEL"  # stands for the server's own name of its model
ORDER = "ORD-m1f4-5d0c2a9b"
CONTEXT_TOKENS = 8192
_MAC = "0123456789abcdef"
# What differs with every answer of the same server, or is no business of the interface.
HEADERS = ("content-type", "transfer-encoding", "allow", "www-authenticate", "retry-after")


def _tool(name: str) -> dict[str, Any]:
    reference = {"type": "string", "enum": [ORDER, f"ST-{ORDER[4:]}-{_MAC}"]}
    parameters = {
        "type": "object",
        "properties": {"reference": reference},
        "required": ["reference"],
        "additionalProperties": False,
    }
    function = {"name": name, "description": f"{name}.", "parameters": parameters, "strict": True}
    return {"type": "function", "function": function}


TOOLS = [_tool(name) for name in ("order_status", "refund_policy", "resolution")]
_ASKED = [{"role": "system", "content": "You serve customers."}, {"role": "user", "content": f"{ORDER} is late."}]
_CALL = {"id": "call_1", "type": "function", "function": {"name": "order_status", "arguments": '{"reference":"x"}'}}
DONE = [
    *_ASKED,
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": f"RE-{ORDER[4:]}-{_MAC}"},
]
_STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
_REQUIRED: dict[str, Any] = {"tool_choice": "required", "max_tokens": 200, "temperature": 0}


@dataclass(frozen=True)
class Case:
    """One request. body: JSON, or bytes as they are. key: whether it says the server's key."""

    method: str
    path: str
    body: Any = None
    key: bool = True

    def content(self, model: str) -> bytes:
        """The body for a server whose model has that name."""
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).replace(MODEL, model).encode()


def chat(messages: Any, **more: Any) -> Case:
    """A completion of these messages."""
    return Case("POST", "/v1/chat/completions", {"model": MODEL, "messages": messages, **more})


CASES = {
    "call": chat(_ASKED, tools=TOOLS),
    "call-streamed": chat(_ASKED, tools=TOOLS, **_STREAM),
    "call-required": chat(_ASKED, tools=TOOLS, **_REQUIRED),
    "text": chat(DONE, tools=TOOLS),
    "text-streamed": chat(DONE, tools=TOOLS, **_STREAM),
    "text-streamed-without-usage": chat(DONE, tools=TOOLS, stream=True),
    "text-cut": chat(DONE, tools=TOOLS, max_tokens=5),
    "text-without-tools": chat(DONE),
    "models": Case("GET", "/v1/models"),
    "metrics": Case("GET", "/metrics"),
    "health": Case("GET", "/health"),
    "call-required-streamed": chat(_ASKED, tools=TOOLS, **_REQUIRED, **_STREAM),
    "text-cut-streamed": chat(DONE, tools=TOOLS, max_tokens=5, **_STREAM),
    "400-no-json": Case("POST", "/v1/chat/completions", b"{"),
    "400-no-text": Case("POST", "/v1/chat/completions", b'{"model": "\xff"}'),
    "400-no-messages": Case("POST", "/v1/chat/completions", {"model": MODEL}),
    "400-empty-messages": chat([]),
    "400-messages-of-another-type": chat("hello"),
    "400-limit-of-nothing": chat(DONE, max_tokens=0),
    "400-prompt-too-long": chat([{"role": "user", "content": "word " * (2 * CONTEXT_TOKENS)}]),
    "401": Case("POST", "/v1/chat/completions", {"model": MODEL, "messages": _ASKED}, key=False),
    "404-model": Case("POST", "/v1/chat/completions", {"model": "no-such-model", "messages": _ASKED}),
    "404-path": Case("GET", "/v1/no-such-path"),
    "405": Case("GET", "/v1/chat/completions"),
}


@dataclass(frozen=True)
class Recorded:
    """One answer. events: of a stream, as JSON; `[DONE]` as it is."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def events(self) -> list[Any]:
        """The data of each server-sent event."""
        data = [block.removeprefix("data: ") for block in self.body.split("\n\n") if block]
        return [text if text == "[DONE]" else json.loads(text) for text in data]


def recorded(name: str) -> Recorded:
    """The answer that was recorded to a case."""
    return Recorded(**json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def ask(port: int, case: Case, model: str, key: str) -> Recorded:
    """Send the request to a server and keep what comes back."""
    from tests.backends.mock_process import RawClient

    content = case.content(model)
    head = [f"{case.method} {case.path} HTTP/1.1", "Host: test", f"Content-Length: {len(content)}"]
    head += [f"Authorization: Bearer {key}"] if case.key else []
    head += ["Content-Type: application/json"] if content else []
    client = RawClient(port)
    client.socket.settimeout(120)
    answer = client.ask("\r\n".join([*head, "", ""]).encode() + content)
    client.close()
    headers = {name: value for name, value in answer.headers.items() if name in HEADERS}
    return Recorded(answer.status, headers, answer.body.decode())


def main() -> int:
    """Record all cases from a vLLM that is started for it."""
    from agentdyno.backends.vllm.copying_model import NAME
    from agentdyno.rig.vllm_cpu import model_folder
    from tests.vllm.server import API_KEY, served

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, served(Path(scratch) / "vllm.log", api_key=API_KEY) as port:
        for name, case in CASES.items():
            answer = ask(port, case, NAME, API_KEY)
            # Where the model lies is of this machine.
            body = answer.body.replace(str(model_folder()), "/model")
            kept = {"status": answer.status, "headers": answer.headers, "body": body}
            text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
            (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
            sys.stderr.write(f"{name}: {answer.status}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
