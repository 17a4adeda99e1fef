#!/usr/bin/env python3
"""The contract from nothing but the standard library, as its documentation tells another language to serve it."""

import json
import os
import sys
import threading
import urllib.request
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = bytes.fromhex(os.environ["AGENTDYNO_PROOF_KEY"])
LLM = os.environ["AGENTDYNO_LLM_URL"] + "/chat/completions"
MODEL = os.environ["AGENTDYNO_LLM_MODEL"]
ADMISSION = os.environ["AGENTDYNO_ADMISSION"]
SEATS = threading.BoundedSemaphore(10**6 if ADMISSION == "off" else int(ADMISSION))
PREFIXES = {"order_status": "ST", "refund_policy": "PO", "resolution": "RE"}
FAULT = sys.argv[1] if len(sys.argv) > 1 else ""


def run_tool(name, reference):
    tail = reference[4:] if reference.startswith("ORD-") else reference[3:-17]
    mac = blake2b(f"{name}|{reference}".encode(), key=KEY, digest_size=8).hexdigest()
    return f"{PREFIXES[name]}-{tail}-{mac}"


def offer(name):
    parameters = {"type": "object", "properties": {"reference": {"type": "string"}}, "required": ["reference"]}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


def answer(asked):
    messages = [*asked["history"], {"role": "user", "content": asked["input"]}]
    usage = dict.fromkeys(("llm_calls", "tool_calls", "prompt_bytes", "prompt_tokens", "completion_tokens"), 0)
    calls = []
    while True:
        body = {"model": MODEL, "messages": messages, "tools": [offer(name) for name in asked["tools"]]}
        data = json.dumps(body).encode()
        request = urllib.request.Request(LLM, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=asked["timeout_ms"] / 1000) as response:
            said = json.load(response)
        usage["llm_calls"] += 1
        usage["prompt_bytes"] += len(data)
        usage["prompt_tokens"] += said["usage"]["prompt_tokens"]
        usage["completion_tokens"] += said["usage"]["completion_tokens"]
        message = said["choices"][0]["message"]
        if not message.get("tool_calls"):
            break
        messages.append(message)
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            result = run_tool(name, arguments["reference"])
            usage["tool_calls"] += 1
            calls.append({"name": name, "arguments": arguments, "result": result})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return {
        "session_id": asked["session_id"],
        "output": message["content"],
        "tool_calls": calls,
        "usage": {**usage, "retries": 0},
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/healthz":
            self.reply(503 if FAULT == "unready" else 200, {"status": "ready"})
        else:
            self.reply(404, {"title": "Not found", "status": 404, "code": "not_found", "detail": self.path})

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["content-length"]))
        if FAULT == "noise":
            self.wfile.write(b"\x00\x01\x02 this is no HTTP\r\n\r\n")
            self.close_connection = True
        elif FAULT == "html":
            self.reply(200, "<!doctype html><title>Welcome</title>")
        elif not SEATS.acquire(blocking=False):
            self.reply(429, {"title": "Too many requests", "status": 429, "code": "admission", "detail": "Full."})
        else:
            try:
                self.reply(200, answer(json.loads(asked)))
            finally:
                SEATS.release()

    def reply(self, status, content):
        body = json.dumps(content).encode() if isinstance(content, dict) else content.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
