"""The sampler in a container of its own, on real processes: it finds the host by what it runs, and its successor."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentdyno.record.sidecar import CGROUP_FILE, RESOURCES_FILE, processes_of

MOCK = "agentdyno.backends.mock_llm"


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(30)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def seen(folder: Path) -> set[int]:
    file = folder / RESOURCES_FILE
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    samples = [json.loads(line) for line in lines if line.endswith(b"\n")]
    assert {sample["role"] for sample in samples} <= {"host"}
    return {sample["pid"] for sample in samples if sample["reading"]["rss_bytes"]}


def test_it_samples_the_process_and_the_one_that_takes_its_place(tmp_path: Path) -> None:
    with process("agentdyno.record.sidecar", "--folder", str(tmp_path), "--find", MOCK) as sidecar:
        with process(MOCK, "--port", "0") as first:
            until(lambda: first.pid in seen(tmp_path), "the process was not sampled")
        with process(MOCK, "--port", "0") as second:
            until(lambda: second.pid in seen(tmp_path), "its successor was not sampled")
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.wait(30) == 0
    assert sidecar.pid not in seen(tmp_path)
    assert (tmp_path / CGROUP_FILE).exists()


def test_only_what_runs_the_module_is_found() -> None:
    with process(MOCK, "--port", "0") as child:
        until(lambda: child.pid in processes_of(MOCK), "the process was not found")
        assert child.pid not in processes_of("agentdyno.host")
        assert os.getpid() not in processes_of(MOCK)


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agentdyno.record.sidecar", "--folder", str(tmp_path / "none"), "--find", MOCK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("The sampler could not go on: ")
    assert "Traceback" not in done.stderr
