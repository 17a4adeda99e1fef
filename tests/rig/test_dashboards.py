"""`make dashboards`: containers where there are some, else Prometheus alone, else a sentence."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentdyno.cli import run
from agentdyno.contract.run import ExitCode
from agentdyno.rig import dashboards as module
from agentdyno.rig.dashboards import PORTS
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.processes import answers, free_port
from tests.otel.test_collector import FILE as COLLECTOR
from tests.otel.test_collector import substituted
from tests.rig.listening import addresses


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of programs made up here; each notes what it was called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setattr(module, "OBSERVED", tmp_path / "runs" / ".observe")
    monkeypatch.setattr(module, "PORTS", {})  # this machine may have dashboards
    return folder


def add(folder: Path, name: str, fails: str = "") -> None:
    """fails: the first argument at which it exits with 1."""
    program = folder / name
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"called = [{name!r}, *sys.argv[1:], 'OPENAI_API_KEY' in os.environ]\n"
        "open(os.environ['CALLS'], 'a').write(json.dumps(called) + '\\n')\n"
        f"sys.exit(sys.argv[1] == {fails!r})\n"
    )
    program.chmod(0o755)


def calls(folder: Path) -> list[list[object]]:
    return [json.loads(line) for line in (folder.parent / "calls").read_text().splitlines()]


def test_containers_come_first(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(programs, "podman")
    add(programs, "prometheus")
    assert run(["dashboards"]) == ExitCode.VALID
    compose = ["podman", "compose", "-f", str(ROOT / "compose.yaml")]
    assert calls(programs)[-2:] == [[*compose, "up", False], [*compose, "down", False]]
    assert "http://127.0.0.1:3000" in capsys.readouterr().err
    assert (programs.parent / "runs" / ".observe").is_dir()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
def test_containers_are_refused_where_a_port_of_theirs_is_taken(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    """Also by what listens everywhere, as the service of Debian's Prometheus does."""
    add(programs, "podman")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("there is no IPv6 here")
    other = socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
    with other:
        port = other.getsockname()[1]
        monkeypatch.setattr(module, "PORTS", {"Grafana": (free_port(),), "Prometheus": (port,)})
        assert run(["dashboards"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith(f"agentdyno: Somebody else listens on port {port} (Prometheus) of this machine")
    assert len(said.splitlines()) == 1
    assert calls(programs)[-1][:2] == ["podman", "info"]
    assert run(["dashboards"]) == ExitCode.VALID
    assert [call[-2] for call in calls(programs)[-2:]] == ["up", "down"]


def test_containers_have_no_port_to_choose(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(programs, "podman")
    assert run(["dashboards", "--port", "9191"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("agentdyno: --port 9191 is for a Prometheus alone")
    assert calls(programs)[-1][:2] == ["podman", "info"]


def test_the_ports_are_those_of_the_containers_files() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert {service["network_mode"] for service in services.values()} == {"host"}
    (prometheus,) = [word for word in services["prometheus"]["command"] if word.startswith("--web.listen-address=")]
    tempo = yaml.safe_load((ROOT / "grafana" / "tempo.yaml").read_text())
    collector = substituted(COLLECTOR.read_text(), services["collector"]["environment"])
    assert "telemetry" not in collector["service"]  # its own metrics are at its default, 8888
    expected = {
        "prometheus": [prometheus],
        "grafana": [services["grafana"]["environment"]["GF_SERVER_HTTP_PORT"]],
        "tempo": [
            *(tempo["server"][f"{kind}_listen_port"] for kind in ("http", "grpc")),
            *endpoints(tempo["distributor"]["receivers"]),
        ],
        "collector": [
            "8888",
            *endpoints(collector["receivers"]),
            *endpoints({name: it for name, it in collector["exporters"].items() if name.startswith("prometheus")}),
            *endpoints(collector["extensions"]),
        ],
    }
    assert expected.keys() == services.keys()
    found = [sorted(int(str(place).rpartition(":")[2]) for place in places) for places in expected.values()]
    assert sorted(found) == sorted(sorted(ports) for ports in PORTS.values())


def endpoints(settings: dict[str, Any]) -> list[str]:
    """All that says `endpoint`, however deep."""
    found = []
    for name, value in settings.items():
        found += [value] if name == "endpoint" else endpoints(value) if isinstance(value, dict) else []
    return found


@pytest.mark.parametrize("fails", ["compose", "info"])
def test_an_engine_that_does_not_answer_is_none(programs: Path, capsys: pytest.CaptureFixture[str], fails: str) -> None:
    add(programs, "docker", fails=fails)
    add(programs, "prometheus")
    assert run(["dashboards", "--port", "9191"]) == ExitCode.VALID
    name, *arguments = calls(programs)[-1]
    assert name == "prometheus"
    assert "--web.listen-address=127.0.0.1:9191" in arguments
    assert f"--config.file={ROOT / 'grafana' / 'prometheus' / 'prometheus.yml'}" in arguments
    said = capsys.readouterr().err
    assert "what is missing is Grafana" in said
    assert "http://127.0.0.1:9191" in said


def test_with_nothing_it_says_what_to_install(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dashboards"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith("agentdyno: There is neither Docker nor Podman")
    assert "apt install prometheus" in said
    assert len(said.splitlines()) == 1


def test_what_fails_to_start_is_told(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configuration = f"--config.file={ROOT / 'grafana' / 'prometheus' / 'prometheus.yml'}"
    add(programs, "prometheus", fails=configuration)
    assert run(["dashboards"]) == ExitCode.GATE_FAILED
    assert "prometheus ended with exit code 1" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named_with_a_way_out(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configuration = f"--config.file={ROOT / 'grafana' / 'prometheus' / 'prometheus.yml'}"
    add(programs, "prometheus", fails=configuration)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert run(["dashboards", "--port", str(port)]) == ExitCode.GATE_FAILED
    assert f"Port {port} is taken" in capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (apt install prometheus)")
def test_a_real_prometheus_listens_on_loopback_alone_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    command = [str(Path(sys.executable).with_name("agentdyno")), "dashboards", "--port", str(port)]
    # No container engine, whatever this machine has.
    path = tmp_path / "bin"
    path.mkdir()
    (path / "prometheus").symlink_to(str(shutil.which("prometheus")))
    with subprocess.Popen(
        command, env={**os.environ, "PATH": str(path)}, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            end_s = time.monotonic() + 60
            while not answers(f"http://127.0.0.1:{port}/-/ready", 1.0):
                assert process.poll() is None
                assert time.monotonic() < end_s
                time.sleep(0.1)
            assert addresses(port) == {"0100007F"}
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert not answers(f"http://127.0.0.1:{port}/-/ready", 1.0)
