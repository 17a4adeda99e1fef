"""`agentdyno dashboards`: what watches runs, from compose.yaml, or Prometheus alone where there are no containers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.foreground import until_ended
from agentdyno.rig.options import OBSERVED

CONFIGURATION = ROOT / "grafana" / "prometheus" / "prometheus.yml"
DEFAULT_PORT = 9090
# What the containers listen on, all on the host's own network, from compose.yaml and the files that it mounts. A
# container whose port is taken ends and stays away, and Grafana would show what somebody else's Prometheus has.
PORTS = {
    "Prometheus": (9090,),
    "Grafana": (3000,),
    "Tempo": (3200, 9095, 14317),
    "the collector": (4317, 4318, 8888, 8889, 13133),
}
_COMPOSE = ROOT / "compose.yaml"
_ENGINES = (("docker", "compose"), ("podman", "compose"), ("podman-compose",))
_ASK_S = 10.0


class NothingToWatchWith(UserError):
    """Neither containers nor a Prometheus; the text says what to install."""


class PortError(UserError):
    """A port that is taken, or that cannot be chosen; the text says which and what to do."""


def dashboards(port: int | None) -> ExitCode:
    """Start it and stay until Ctrl-C. port: of a Prometheus alone; None: the usual one.

    Raises NothingToWatchWith or PortError.
    """
    OBSERVED.mkdir(parents=True, exist_ok=True)
    compose = working_compose()
    if compose is not None:
        _refuse_ports(port)
        sys.stderr.write(
            "Grafana: http://127.0.0.1:3000. Prometheus: http://127.0.0.1:9090. Ctrl-C ends them.\n"
            "Send a run to them: make bench FRAMEWORK=... OBSERVE=1\n"
        )
        return _up_and_down([*compose, "-f", str(_COMPOSE)])
    return _prometheus_alone(DEFAULT_PORT if port is None else port)


def _refuse_ports(port: int | None) -> None:
    """Raises PortError where containers cannot listen as they must, or were asked to listen elsewhere."""
    if port is not None:
        raise PortError(
            f"--port {port} is for a Prometheus alone; here there are containers, whose ports compose.yaml says. "
            "Leave it out."
        )
    taken = [f"{each} ({name})" for name, ports in PORTS.items() for each in ports if _taken(each)]
    if taken:
        raise PortError(
            f"Somebody else listens on port {', '.join(taken)} of this machine, where the dashboards' containers must. "
            "End that first: dashboards that are running already, or at 9090 the service that Debian's package "
            "prometheus starts (systemctl disable --now prometheus)."
        )


def _prometheus_alone(port: int) -> ExitCode:
    program = shutil.which("prometheus")
    if program is None:
        raise NothingToWatchWith(
            "There is neither Docker nor Podman with compose and a running engine here, nor a `prometheus` in PATH. "
            "Install one of them (Debian: apt install prometheus), or watch with `agentdyno top`, which needs neither."
        )
    sys.stderr.write(
        "There is no Docker or Podman with compose and a running engine here, so what is missing is Grafana and its "
        "dashboards, Tempo and the collector with the traces.\n"
        f"Prometheus alone, with its rules and alerts: http://127.0.0.1:{port}. Ctrl-C ends it.\n"
        "Send a run to it: make bench FRAMEWORK=... OBSERVE=1\n"
    )
    data = OBSERVED.parent / ".prometheus"
    code = _until_ended(prometheus_command(program, CONFIGURATION, data, port))
    if code is not ExitCode.VALID and _taken(port):
        sys.stderr.write(
            f"agentdyno: Port {port} is taken, perhaps by the service that Debian's package starts (systemctl disable "
            "--now prometheus). To take another one: .venv/bin/agentdyno dashboards --port 9191\n"
        )
    return code


def _up_and_down(compose: list[str]) -> ExitCode:
    """Not every podman-compose ends its containers with itself, so that in the end what is left of them is removed."""
    try:
        return _until_ended([*compose, "up"])
    finally:
        subprocess.run([*compose, "down"], cwd=ROOT, env=_environment(), check=False)


def prometheus_command(program: str, configuration: Path, data: Path, port: int) -> list[str]:
    """A Prometheus of ours, on loopback, with exemplars. data: the folder that it keeps."""
    return [
        program,
        f"--config.file={configuration}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=7d",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    ]


def working_compose() -> list[str] | None:
    """The command of a compose whose engine answers; None where there is none."""
    for command in _ENGINES:
        if shutil.which(command[0]) is None:
            continue
        if _answers([*command, "version"]) and _answers(["podman" if "podman" in command[0] else "docker", "info"]):
            return list(command)
    return None


def _taken(port: int) -> bool:
    """Whether somebody else listens there."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _answers(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=_environment(), timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _until_ended(command: Sequence[str]) -> ExitCode:
    code = until_ended(command, ROOT, _environment())
    if code:
        sys.stderr.write(f"agentdyno: {Path(command[0]).name} ended with exit code {code}; its own words are above.\n")
        return ExitCode.GATE_FAILED
    return ExitCode.VALID


def _environment() -> dict[str, str]:
    """Everything but keys: whatever watches needs none."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
