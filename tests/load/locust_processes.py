"""Real Locust processes on real targets, for the tests that say e2e."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from agentdyno.rig.processes import free_port

ROOT = Path(__file__).parents[2]
# A proxy that nothing listens on: whoever heeds it fails.
PROXY = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9")


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCUST", "AGENTDYNO"))}
    return {**kept, **PROXY, "PYTHONPATH": str(ROOT / "src")}


def wait_for(condition, what: str, timeout_s: float = 60.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.02)


@dataclass
class Ended:
    """A Locust process that has ended, and what it left."""

    code: int
    output: str
    records: Path

    def workers(self) -> list[int]:
        return sorted(int(path.stem.partition("-")[2]) for path in self.records.glob("requests-*.jsonl"))

    def requests(self) -> list[dict]:
        files = [self.records / f"requests-{worker}.jsonl" for worker in self.workers()]
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def outcomes(self) -> Counter:
        return Counter((record["outcome"], record["reason"]) for record in self.requests())

    def seconds(self, worker: int = 0) -> list[dict]:
        file = self.records / f"seconds-{worker}.jsonl"
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def end(self, worker: int = 0) -> dict:
        return json.loads((self.records / f"end-{worker}.json").read_text(encoding="utf-8"))


class Processes:
    """Starts targets and Locusts, and ends them all at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = folder / "records"
        self.started: list[subprocess.Popen] = []

    def start(self, command: list[str], output: Path) -> subprocess.Popen:
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment())
        self.started.append(process)
        return process

    def target(self, *options: str) -> str:
        """The URL of a new target."""
        port_file = self.folder / f"port-{len(self.started)}"
        script = Path(__file__).with_name("contract_target.py")
        self.start([sys.executable, str(script), "--port-file", str(port_file), *options], self.folder / "target.log")
        wait_for(port_file.exists, "the target")
        return f"http://127.0.0.1:{port_file.read_text(encoding='ascii')}"

    def end_target(self) -> None:
        """Let the target, the first process started, end and write its log."""
        self.started[0].terminate()
        self.started[0].wait(timeout=30)

    def locust(self, host: str, *options: str, file: str = "constant.py") -> subprocess.Popen:
        command = [sys.executable, "-m", "locust", "-f", str(ROOT / "locustfiles" / file), "--headless"]
        # Locust's own port, 5557, is one for the whole machine: two masters on it would share each other's workers.
        port = str(free_port())
        command += ["--master-port", port, "--master-bind-port", port]
        return self.start([*command, "--host", host, "--records", str(self.records), *options], self.folder / "log")

    def wait(self, process: subprocess.Popen) -> Ended:
        code = process.wait(timeout=120)
        return Ended(code, (self.folder / "log").read_text(encoding="utf-8"), self.records)

    def run(self, host: str, *options: str, file: str = "constant.py") -> Ended:
        return self.wait(self.locust(host, *options, file=file))

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
