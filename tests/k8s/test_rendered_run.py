"""The rendered words really run: every process of a run as its pod starts it, on this machine, to the last record.

Service names become loopback addresses and /records a folder; nothing else is changed. What containers add (images,
limits, probes) is not seen here.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentdyno.record.ledger import read_ledger
from agentdyno.rig.environments.environment import ROOT
from tests.k8s.conftest import KEY
from tests.k8s.pods import pods
from tests.k8s.programs import Programs

pytestmark = pytest.mark.e2e
SETTINGS = (
    f"framework=bare,proof.key={KEY},run.id=a,load.enabled=true,load.workers=2,load.rate=10,"
    "load.warmup=1s,load.duration=5s,load.cooldown=1s,collector.enabled=false"
)
SERVERS = ("recorder/recorder", "backend/mock", "sut/host", "sut/sampler")
HEALTH = {"recorder": (4318, "/healthz"), "backend": (8001, "/health"), "sut": (8000, "/healthz")}


class Machine:
    """This one, as the cluster. folder: a folder for each container's /records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports: dict[str, int] = {}
        self._children: list[subprocess.Popen[bytes]] = []

    def port(self, port: int) -> int:
        """A free one that stands for a port of the chart."""
        if str(port) not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[str(port)] = probe.getsockname()[1]
        return self._ports[str(port)]

    def start(self, name: str, container: dict[str, Any]) -> subprocess.Popen[bytes]:
        # The master tells its workers its own --records: one path, which is a volume of its own in each pod.
        records = self.folder / ("load" if name.startswith("load-") else name.replace("/", "-"))
        records.mkdir(exist_ok=True)
        words = [sys.executable, *container["command"][1:], *(self._here(word, records) for word in container["args"])]
        variables = {v["name"]: v.get("value", KEY) for v in container["env"]}
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        child = subprocess.Popen(words, env={**kept, **variables, "PYTHONPATH": str(ROOT / "src")})
        self._children.append(child)
        return child

    def _here(self, word: str, records: Path) -> str:
        word = word.replace("/opt/agentdyno", str(ROOT))
        if word == "/records":
            return str(records)
        for port in (4318, 4319, 5557, 8000, 8001, 9646):
            word = word.replace(f":{port}", f":{self.port(port)}")
            word = str(self.port(port)) if word == str(port) else word
        for service in ("sut", "backend", "recorder", "load-master"):
            word = word.replace(f"dyno-{service}", "127.0.0.1")
        return word.replace("0.0.0.0", "127.0.0.1")

    def ready(self, component: str) -> None:
        port, path = HEALTH[component]
        deadline = time.monotonic() + 60
        while True:
            try:
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(f"http://127.0.0.1:{self.port(port)}{path}", timeout=2):
                    return
            except OSError:
                assert time.monotonic() < deadline, component
                time.sleep(0.1)

    def stop(self) -> None:
        for child in reversed(self._children):
            child.terminate()
            child.wait(30)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def lines(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(line) for file in folder.glob(pattern) for line in file.read_text().splitlines()]


def test_a_run_of_the_rendered_pods(tools: Programs, machine: Machine) -> None:
    found = {
        f"{pod.component}/{c['name']}": c for pod in pods(tools.objects("--set", SETTINGS)) for c in pod.containers
    }
    servers = {}
    for name in SERVERS:
        servers[name] = machine.start(name, found[name])
        if name.partition("/")[0] in HEALTH and name != "sut/sampler":
            machine.ready(name.partition("/")[0])
    load = [machine.start("load-master/locust", found["load-master/locust"])]
    for worker in range(2):  # the pods of an indexed Job differ in nothing that Locust reads
        load.append(machine.start(f"load-worker/locust{worker}", found["load-worker/locust"]))
    assert [child.wait(120) for child in load] == [0, 0, 0]
    machine.stop()

    # Each arrival once, by one of the two, and every answer verified with the Secret's key.
    requests = [lines(machine.folder / "load", f"requests-{worker}.jsonl") for worker in range(2)]
    assert sorted(record["index"] for part in requests for record in part) == list(range(70))
    assert [{record["index"] % 2 for record in part} for part in requests] == [{0}, {1}]
    assert {record["outcome"] for part in requests for record in part} == {"ok"}
    # The spans of host and mock are with the recorder, the host's resources with the sampler beside it.
    assert read_ledger(machine.folder / "recorder-recorder").frames > 2
    samples = lines(machine.folder / "sut-sampler", "resources.jsonl")
    assert {sample["role"] for sample in samples} == {"host"}
    assert servers["sut/host"].pid in {sample["pid"] for sample in samples}
    assert all(child.returncode == 0 for child in servers.values())
