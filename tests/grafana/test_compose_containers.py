"""Prometheus of compose.yaml really runs, started and ended by `agentdyno dashboards`, and sees a run on this machine.

podman-compose reads the file as it is. Only the image is another, for the real one cannot be pulled everywhere: it has
what matters of prom/prometheus (nobody, /prometheus, the entrypoint) around this machine's own program. The "host"
whose network it shares is a network namespace of the test's, so that ports are free and nothing of the machine's is
seen. Grafana, Tempo and the collector are left out.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from agentdyno.rig.environments.environment import ROOT
from tests.e2e.benches import wait_for
from tests.golden.run import manifest
from tests.k8s.engine import Engine, why_not
from tests.k8s.programs import NotToBeHad, podman_compose

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (Debian: apt install prometheus)"),
]
IMAGE = "localhost/agentdyno-test/prometheus-of-compose:1"
URL = "http://127.0.0.1:9090"
NOBODY = 65534
RULES = ROOT / "grafana" / "prometheus" / "rules"
# The command with its checkout in another place.
DASHBOARDS = """
import sys
from pathlib import Path
from agentdyno.cli import main
from agentdyno.rig import dashboards as module
module.ROOT = Path(sys.argv.pop())
module._COMPOSE, module.OBSERVED = module.ROOT / "compose.yaml", module.ROOT / "runs" / ".observe"
main()
"""
# What `make bench OBSERVE=1` tells a Prometheus, and serves it, until its input ends.
BENCH = """
import sys
from pathlib import Path
from agentdyno.rig.observation import Observation
from tests.golden.run import manifest
with Observation(manifest(), Path(sys.argv[1]), Path(sys.argv[2])):
    sys.stdin.read()
"""


@dataclass
class Watching:
    """`agentdyno dashboards` at work. checkout: what it takes for the repository."""

    engine: Engine
    process: subprocess.Popen[bytes]
    checkout: Path

    def get(self, path: str, **parameters: str) -> Any:
        said = self.engine.ask(f"{URL}/api/v1/{path}?{urlencode(parameters)}", timeout_s=10)
        assert said is not None, path
        return json.loads(said)["data"]

    def container(self) -> Any:
        (found,) = self.engine.json("inspect", *self.engine("ps", "--quiet").stdout.split())
        return found


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(Path(tempfile.mkdtemp(prefix="agentdyno-"))) as made:
        import_image(made, Path(str(PROMETHEUS)))
        yield made


def import_image(engine: Engine, program: Path) -> None:
    """The program, the libraries that it is linked to, and what the real image has around it."""
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    files = {f"bin/{program.name}": program, **{name[1:]: Path(name) for name in re.findall(r"(/\S+) \(0x", linked)}}
    packed = engine.folder / "image.tar"
    with tarfile.open(packed, "w", dereference=True) as tar:
        for name, file in files.items():
            tar.add(file, name)
        data = tarfile.TarInfo("prometheus")
        data.type, data.mode, data.uid, data.gid = tarfile.DIRTYPE, 0o755, NOBODY, NOBODY
        tar.addfile(data)
        users = f"nobody:x:{NOBODY}:{NOBODY}:nobody:/:/bin/false\n".encode()
        file_of_users = tarfile.TarInfo("etc/passwd")
        file_of_users.size = len(users)
        tar.addfile(file_of_users, io.BytesIO(users))
    lines = ("USER nobody", "WORKDIR /prometheus", "VOLUME /prometheus", f'ENTRYPOINT ["/bin/{program.name}"]')
    engine("import", *(word for line in lines for word in ("--change", line)), str(packed), IMAGE)


def make_programs(folder: Path, override: Path, cgroup: str) -> None:
    """No Docker; a podman without compose of its own, whose containers are in the engine's control group, which alone
    is the engine's to remove; podman-compose with one file more.
    """
    folder.mkdir()
    podman, compose = shutil.which("podman"), podman_compose()
    own = f'create) shift; set -- create --cgroup-parent /{cgroup} "$@" ;;'
    for name, text in {
        "docker": "exit 1",
        "podman": f'case "$1" in compose) exit 125 ;; {own} esac\nexec {podman} "$@"',
        "podman-compose": f'[ "$1" = -f ] || exec {compose} "$@"\nexec {compose} -f "$2" -f {override} "$3"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


@pytest.fixture(scope="module")
def watching(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    folder = tmp_path_factory.mktemp("compose")
    checkout = folder / "checkout"
    shutil.copytree(ROOT / "grafana" / "prometheus", checkout / "grafana" / "prometheus")
    shutil.copy(ROOT / "compose.yaml", checkout)
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    changes = {name: {"profiles": ["left-out"]} for name in services} | {"prometheus": {"image": IMAGE}}
    override = folder / "override.yaml"
    override.write_text(yaml.safe_dump({"services": changes}))
    try:
        make_programs(folder / "bin", override, engine.cgroup)
    except NotToBeHad as error:
        pytest.skip(f"podman-compose is not here and could not be downloaded: {error}")
    environment = engine.environment | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = [*engine.inside, sys.executable, "-c", DASHBOARDS, "dashboards", str(checkout)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            wait_for(lambda: engine.ask(f"{URL}/-/ready") or process.poll() is not None, "Prometheus")
            assert process.poll() is None, (folder / "log").read_text()
            yield Watching(engine, process, checkout)
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


def test_its_rules_are_those_of_the_files_and_are_evaluated(watching: Watching) -> None:
    written = [
        rule.get("alert") or rule["record"]
        for file in RULES.iterdir()
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]

    def rules() -> list[Any]:
        return [rule for group in watching.get("rules")["groups"] for rule in group["rules"]]

    assert sorted(rule["name"] for rule in rules()) == sorted(written)
    wait_for(lambda: all(rule["health"] == "ok" for rule in rules()), "each rule's first evaluation")


def test_a_bench_on_this_machine_is_scraped_from_the_container(watching: Watching, tmp_path: Path) -> None:
    raw, observed = tmp_path / "runs" / "golden" / "raw", watching.checkout / "runs" / ".observe"
    raw.mkdir(parents=True)
    command = [*watching.engine.inside, sys.executable, "-c", BENCH, str(raw), str(observed)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as bench:
        (series,) = wait_for(lambda: watching.get("query", query="agentdyno_run_info")["result"], "a scrape")
        (up,) = watching.get("query", query='up{job="agentdyno"}')["result"]
        assert bench.stdin is not None
        bench.stdin.close()
    assert bench.returncode == 0
    run = manifest()
    labels = {"run": run.run_id, "framework": run.framework.name, "scenario": run.plan.scenario, "role": "rig"}
    assert labels.items() <= series["metric"].items()
    assert labels.items() <= up["metric"].items()
    assert up["value"][1] == "1"
    assert up["metric"]["instance"].startswith("127.0.0.1:")


def test_it_is_nobody_who_may_nothing_and_writes_to_its_volume_alone(watching: Watching) -> None:
    container = watching.container()
    text = Path("/proc", str(container["State"]["Pid"]), "status").read_text()
    status = dict(line.split(":\t", 1) for line in text.splitlines())
    assert set(status["Uid"].split()) == {str(NOBODY)}
    assert {name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == dict.fromkeys(
        ("CapEff", "CapPrm", "CapBnd"), 0
    )
    assert status["NoNewPrivs"] == "1"
    mounts = {mount["Destination"]: (mount["Type"], mount["RW"]) for mount in container["Mounts"]}
    assert mounts == {
        "/etc/agentdyno/grafana/prometheus": ("bind", False),
        "/etc/agentdyno/runs/.observe": ("bind", False),
        "/prometheus": ("volume", True),
    }


def test_nothing_listens_beyond_loopback(watching: Watching) -> None:
    tables = Path("/proc", str(watching.container()["State"]["Pid"]), "net")
    lines = [line.split() for name in ("tcp", "tcp6") for line in (tables / name).read_text().splitlines()[1:]]
    listening = {local for _, local, _, state, *_ in lines if state == "0A"}
    assert listening == {f"0100007F:{9090:04X}"}


def test_ctrl_c_ends_it_and_leaves_its_data_alone(watching: Watching) -> None:
    """The last one here: there is no Prometheus after it."""
    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(60) == 0
    assert watching.engine("ps", "--all", "--quiet").stdout == ""
    assert watching.engine("volume", "ls", "--quiet").stdout == "checkout_prometheus\n"
