"""`python -m agentdyno.host` as the rig starts it: how it begins, how it ends, and what it says."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
ADAPTER = """
import asyncio, os, sys

class Made:
    async def start(self, llm, tools, system_prompt):
        {start}
    async def invoke(self, request):
        {invoke}
    async def close(self):
        {close}
"""
DECLARED = """
[[variant]]
name = "mine"
title = "Mine"
entry = "adapter:Made"
"""


def folder(path: Path, *, start: str = "pass", invoke: str = "return 'hello'", close: str = "pass") -> Path:
    bodies = {"start": start, "invoke": invoke, "close": close}
    indented = {name: textwrap.indent(body, " " * 8).lstrip() for name, body in bodies.items()}
    return write(path, DECLARED, ADAPTER.format(**indented))


def write(path: Path, declared: str, adapter: str | None) -> Path:
    (path / "adapter.toml").write_text(declared)
    if adapter is not None:
        (path / "adapter.py").write_text(adapter)
    return path


def command(path: Path, *options: str, variant: str = "mine", llm: str = "http://127.0.0.1:1/v1") -> list[str]:
    return [
        *(sys.executable, "-m", "agentdyno.host", "--adapter", str(path), "--variant", variant, "--llm", llm),
        *options,
    ]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}


def run(path: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A host that is expected to end by itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        given = () if {"--fd", "--port"} & set(options) else ("--fd", str(listener.fileno()))
        return subprocess.run(
            command(path, *given, *options, **more),
            env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False, pass_fds=[listener.fileno()],
        )  # fmt: skip


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", body, timeout=60) as response:
            return response.status, response.read()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@pytest.fixture
def started(tmp_path: Path) -> Iterator:
    processes: list[subprocess.Popen[str]] = []

    def start(*options: str, ready: bool = True, **code: str) -> Running:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            process = subprocess.Popen(
                command(folder(tmp_path, **code), "--fd", str(listener.fileno()), *options),
                env=ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                pass_fds=[listener.fileno()],
            )  # fmt: skip
        processes.append(process)
        running = Running(process, port)
        if ready:
            assert running.ask("/healthz")[0] == 200
        return running

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def invoke_body(**fields: object) -> bytes:
    return json.dumps({"session_id": "s", "input": "x", **fields}).encode()


@pytest.mark.parametrize("options", [(), ("--offline",)])
def test_a_host_serves_and_sigterm_ends_it_with_0_after_its_adapter_is_closed(started, options):
    host = started(*options, close="sys.stderr.write('closed\\n')")
    status, body = host.ask("/agent/invoke", invoke_body())
    assert (status, json.loads(body)["output"]) == (200, "hello")
    assert host.end() == (0, "closed\n")


def test_sigint_ends_it_too(started):
    host = started(close="sys.stderr.write('closed\\n')")
    assert host.end(signal.SIGINT) == (0, "closed\n")


def test_a_switchable_host_stops_and_starts_watching_by_signal_while_it_serves(started):
    host = started("--switchable")

    def watched() -> tuple[bool, int]:
        """Whether the loop's probe ticks, and how many requests' phases were counted."""
        looks = []
        for _ in range(2):
            looks.append(len(json.loads(host.ask("/debug/probes")[1])["loop"]))
            time.sleep(0.15)
        assert host.ask("/agent/invoke", invoke_body())[0] == 200
        line = 'agentdyno_phase_duration_seconds_count{framework="mine",phase="plan"} '
        found = [text for text in host.ask("/metrics")[1].decode().splitlines() if text.startswith(line)]
        return looks[1] > looks[0], int(float(found[0].removeprefix(line)))

    assert watched() == (True, 1)
    host.process.send_signal(signal.SIGUSR2)
    while (found := watched())[0]:  # the signal is on its way
        pass
    assert watched() == found
    host.process.send_signal(signal.SIGUSR1)
    while not watched()[0]:
        pass
    assert watched()[1] > found[1]
    assert host.end()[0] == 0


def test_it_listens_on_a_port_of_its_own(tmp_path):
    with closing(socket.socket()) as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        port = placeholder.getsockname()[1]
    process = subprocess.Popen(command(folder(tmp_path), "--port", str(port)), env=ENVIRONMENT)
    try:
        assert eventually(lambda: Running(process, port).ask("/healthz")[0]) == 200
    finally:
        process.terminate()
    assert process.wait(60) == 0


def eventually(ask):
    for _ in range(600):
        try:
            return ask()
        except OSError:
            time.sleep(0.05)
    return ask()


HOLDS = """
sys.stderr.write('begun\\n')
sys.stderr.flush()
while not os.path.exists(request.input):
    await asyncio.sleep(0.01)
return 'finished'
"""


def test_a_request_under_way_finishes_and_new_connections_are_refused(started, tmp_path):
    gate = tmp_path / "gate"
    host = started(invoke=HOLDS, close="sys.stderr.write('closed\\n')")
    with socket.create_connection(("127.0.0.1", host.port)) as connection:
        body = invoke_body(input=str(gate), timeout_ms=60_000)
        connection.sendall(b"POST /agent/invoke HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert host.process.stderr.readline() == "begun\n"
        host.process.send_signal(signal.SIGTERM)
        assert refused(host.port)
        assert host.process.poll() is None
        gate.touch()
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"output":"finished"' in answer
    assert host.ended() == (0, "closed\n")


def refused(port: int) -> bool:
    """Waits until nothing listens there any more."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.02)
    return False


def test_a_start_that_fails_ends_the_process_with_its_traceback(started):
    code, log = started(start="raise LookupError('no such model')", ready=False).ended()
    assert code not in (0, None)
    assert code > 0
    assert "Traceback (most recent call last)" in log
    assert "adapter.py" in log
    assert "LookupError: no such model" in log


@pytest.mark.parametrize("never", ["await asyncio.Event().wait()", "import time; time.sleep(600)"])
def test_a_start_that_never_ends_does_not_outlive_sigterm(started, never):
    host = started(start=f"sys.stderr.write('starting\\n'); sys.stderr.flush()\n{never}", ready=False)
    assert host.process.stderr.readline() == "starting\n"
    code, _ = host.end()
    assert code == -signal.SIGTERM


STUBBORN = """
while True:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        pass
"""


def test_a_task_that_swallows_its_cancellation_does_not_outlive_the_host(started):
    host = started(invoke=STUBBORN)
    with pytest.raises(urllib.error.HTTPError, match="504"):
        host.ask("/agent/invoke", invoke_body(timeout_ms=20))
    assert host.end() == (0, "")


def test_a_close_that_fails_is_in_the_log(started):
    code, log = started(close="raise OSError('still open')").end()
    assert code == 0
    assert "OSError: still open" in log


IMPOSSIBLE = {
    "no folder": (None, None, "adapter.toml cannot be read: No such file or directory."),
    "not TOML": ("[[variant", ADAPTER, "adapter.toml is not valid TOML: "),
    "an unknown field": (DECLARED + "colour = 'red'\n", ADAPTER, "is not a valid adapter description: "),
    "no title": ("[[variant]]\nname = 'mine'\nentry = 'adapter:Made'\n", ADAPTER, "is not a valid adapter description"),
    "no such variant": (DECLARED.replace("mine", "yours"), ADAPTER, "declares no variant named 'mine'."),
    "entry and command": (DECLARED + "command = ['x']\n", ADAPTER, "needs either an entry or a command, and not both."),
    "a command": (DECLARED.replace('entry = "adapter:Made"', 'command = ["x"]'), ADAPTER, "is a program of its own"),
    "no file": (DECLARED, None, "adapter.py, which is not there."),
    "no class in the entry": (DECLARED.replace(":Made", ""), ADAPTER, "adapter.py has no class named ''."),
    "no class": (DECLARED, "x = 1\n", "adapter.py has no class named 'Made'."),
    "no invoke": (
        DECLARED,
        ADAPTER.replace("def invoke", "def call"),
        "has no `async def invoke`; see adapters/README",
    ),
    "invoke not async": (DECLARED, ADAPTER.replace("async def invoke", "def invoke"), "has no `async def invoke`"),
    "not importable": (DECLARED, "import no_such_library\n", "could not be imported: ModuleNotFoundError: No module"),
    "broken syntax": (DECLARED, "def (:\n", "adapter.py could not be imported: SyntaxError: "),
    "a ValueError of its own": (DECLARED, "int('x')\n", "adapter.py could not be imported: ValueError: invalid lit"),
    "a constructor that fails": (
        DECLARED,
        "class Made:\n    def __init__(self):\n        raise OSError('no disk')\n",
        "adapter.py:Made could not be made: OSError: no disk",
    ),
}


@pytest.mark.parametrize("fault", IMPOSSIBLE)
def test_an_adapter_that_cannot_be_loaded_is_a_sentence_and_exit_2(fault, tmp_path):
    declared, adapter, sentence = IMPOSSIBLE[fault]
    if declared is not None:
        plain = adapter.format(start="pass", invoke="pass", close="pass") if adapter else None
        write(tmp_path, declared, plain)
    done = run(tmp_path)
    assert done.returncode == 2
    *before, last = done.stderr.splitlines()
    assert last.startswith("The host cannot start: ")
    assert sentence in last
    # Only the adapter's own code is worth a traceback.
    assert bool(before) == ("could not be" in sentence), done.stderr
    assert done.stdout == ""


OPTIONS = {
    "no scenario of that name": (("--workload", '{"scenario": "chian"}'), "There is no scenario 'chian'; there are"),
    "no workload": (("--workload", "{"), "The host cannot start: "),
    "an unknown field": (("--workload", '{"sed": 1}'), "unknown field `sed`"),
    "no distribution": (
        ("--workload", '{"timing": {"tool_latency_ms": {"resolution": "soon"}}}'),
        "'soon' names no distribution",
    ),
    "no such tool": (("--workload", '{"timing": {"tool_latency_ms": {"resolve": "const:1"}}}'), "names 'resolve'"),
    "admission 0": (("--admission", "0"), "the admission limit is '0'; it must be at least 1, or `off`"),
    "admission in words": (("--admission", "ten"), "the admission limit is 'ten'; it must be at least 1, or `off`"),
    "no socket": (("--fd", "999"), "the inherited socket 999 cannot be listened on: Bad file descriptor."),
    "no such port": (("--port", "70000"), "127.0.0.1:70000 cannot be listened on: "),
    "no such address": (("--host", "192.0.2.1", "--port", "1234"), "192.0.2.1:1234 cannot be listened on: Cannot"),
}


@pytest.mark.parametrize("fault", OPTIONS)
def test_an_option_that_cannot_be_is_a_sentence_and_exit_2(fault, tmp_path):
    options, sentence = OPTIONS[fault]
    done = run(folder(tmp_path), *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_key_that_no_header_can_carry_is_a_sentence_without_it_and_exit_2(tmp_path, monkeypatch):
    """On a cluster it comes from a Secret, which the rig does not read."""
    monkeypatch.setitem(ENVIRONMENT, "AGENTDYNO_LLM_API_KEY", "sk-se\ncret")
    done = run(folder(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("The host cannot start: The key in AGENTDYNO_LLM_API_KEY (not shown here) cannot be")
    assert "sk-" not in done.stderr


def test_an_adapter_is_given_its_key_without_the_line_end_of_a_secrets_file(started, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "AGENTDYNO_LLM_API_KEY", "sk-1\n")
    _, log = started(start="sys.stderr.write(repr(llm.api_key))").end()
    assert log == "'sk-1'"


def test_a_base_url_without_a_scheme_is_a_sentence_and_exit_2(tmp_path):
    done = run(folder(tmp_path), llm="localhost:8001/v1")
    assert done.returncode == 2
    assert "The LLM's base URL is 'localhost:8001/v1'; write it in full" in done.stderr


def test_a_port_that_is_taken_is_a_sentence_and_exit_2(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run(folder(tmp_path), "--port", str(port))
    assert done.returncode == 2
    assert done.stderr == f"The host cannot start: 127.0.0.1:{port} cannot be listened on: Address already in use.\n"


def test_a_proof_key_that_is_none_is_a_sentence_that_does_not_quote_it(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "AGENTDYNO_PROOF_KEY", "secret")
    done = run(folder(tmp_path))
    assert done.returncode == 2
    assert "AGENTDYNO_PROOF_KEY must be 32 hex digits; it has 6 characters." in done.stderr
    assert "secret" not in done.stderr


TRIES = {
    "socket.getaddrinfo('telemetry.invalid', 443)": "telemetry.invalid",
    "await asyncio.wait_for(asyncio.open_connection('192.0.2.1', 443), 2)": "192.0.2.1",  # uvloop would not say so
}


@pytest.mark.parametrize("attempt", TRIES)
def test_offline_names_who_an_adapter_tried_to_reach(started, attempt):
    host = started("--offline", start=f"import socket\ntry:\n    {attempt}\nexcept OSError:\n    pass")
    assert host.ask("/agent/invoke", invoke_body())[0] == 200
    code, log = host.end()
    assert code == 0
    assert log == f"OFFLINE-GUARD: an outbound connection to '{TRIES[attempt]}' was refused.\n"
