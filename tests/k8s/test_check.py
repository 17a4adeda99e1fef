"""`helm test`'s script against real processes: a host that works, one with another key, and nothing at all."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from agentdyno.contract.proof import KEY_VARIABLE
from agentdyno.rig.environments.environment import ROOT
from tests.k8s.conftest import KEY

SCRIPT = ROOT / "k8s" / "chart" / "files" / "check.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(key: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    return {**kept, KEY_VARIABLE: key, "PYTHONPATH": str(ROOT / "src")}


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[str, str]]:
    """Addresses of the control's host and of the mock, run by the words that the images are started with."""
    mock, host = free_port(), free_port()
    commands = [
        ["agentdyno.backends.mock_llm", "--host", "127.0.0.1", "--port", str(mock)],
        [
            *("agentdyno.host", "--adapter", str(ROOT / "adapters" / "bare"), "--variant", "bare"),
            *("--llm", f"http://127.0.0.1:{mock}/v1", "--host", "127.0.0.1", "--port", str(host)),
        ],
    ]
    children = [subprocess.Popen([sys.executable, "-m", *words], env=environment(KEY)) for words in commands]
    try:
        deadline = time.monotonic() + 60
        for url in (f"http://127.0.0.1:{mock}/health", f"http://127.0.0.1:{host}/healthz"):
            while not answers(url):
                assert time.monotonic() < deadline, url
                time.sleep(0.05)
        yield f"http://127.0.0.1:{host}", f"http://127.0.0.1:{mock}"
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=1):
            return True
    except OSError:
        return False


def check(key: str, host: str, *urls: str) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), "--invoke", host, *urls]
    done = subprocess.run(command, env=environment(key), capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_good_installation_passes(started: tuple[str, str]) -> None:
    host, mock = started
    code, said = check(KEY, host, f"{host}/healthz", f"{mock}/health")
    assert (code, said) == (0, "One request was answered with its proof of work.\n")


def test_an_answer_without_proof_is_found(started: tuple[str, str]) -> None:
    code, said = check("0" * 32, started[0])
    assert code == 1
    assert re.search(r"answered wrongly \(wrong_\w+\): status 200", said)


def test_what_does_not_answer_is_named() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    code, said = check(KEY, nobody, f"{nobody}/healthz")
    assert code == 1
    assert said.startswith(f"{nobody}/healthz does not answer: ")
