"""Environments: the rig's own (`.venv`) and one per adapter folder (`.venvs/<folder>`), each just what its lock says.

Standard library only, like `building`, because these two make the environment that everything else needs. What is
said here of an environment is read from its files and its stamp, without starting a process.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from agentdyno.contract.errors import UserError

ROOT = Path(__file__).resolve().parents[4]
RIG = "rig"
PROFILER = "profiler"
VLLM_CPU = "vllm-cpu"

NATIVE_SUFFIX = "-native"

STAMP_FORMAT = 1


class SetupError(UserError):
    """An environment or lock that could not be made; the text says what failed, where to look and what to do."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where an environment and its lock are. sources: folders of ours that are compiled with it.

    alias: (the name that a program asks for, the distribution that it is in, what the program expects after the
    version), where the two differ.
    """

    name: str
    path: Path
    lock: Path
    root: Path
    sources: tuple[Path, ...]
    alias: tuple[str, str, str] | None = None

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.path / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """Written when everything else is done."""
        return self.path / "agentdyno-stamp.json"

    @property
    def log(self) -> Path:
        """The output of the last build; outside, so that it outlives a failed environment."""
        return self.root / ".venvs" / f"{self.name}.log"

    @property
    def guard(self) -> Path:
        """The file that a builder holds locked."""
        return self.root / ".venvs" / f"{self.name}.guard"

    @property
    def site_packages(self) -> Path:
        """Where its distributions are."""
        return self.path / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a finished environment was made of. disk_mb: all its files, bytecode included, in 10^6 bytes."""

    format: int
    lock_sha256: str
    python: str
    base: str
    place: str
    distributions: dict[str, str]
    disk_mb: float
    build_s: float


class State(StrEnum):
    """What is to be said of an environment before it is used."""

    READY = "ready"
    ABSENT = "not built"
    HALF_MADE = "half made"
    LOCK_CHANGED = "lock changed"
    OTHER_PYTHON = "other Python"
    MOVED = "moved"


def rig_environment(root: Path = ROOT) -> Environment:
    """The rig's own environment, with the command line in it."""
    return Environment(RIG, root / ".venv", root / "requirements.lock", root, (root / "src" / "agentdyno",))


def profiler_environment(root: Path = ROOT) -> Environment:
    """The heap profiler's environment: what it holds goes to the end of a profiled host's path, and nowhere else."""
    return Environment(PROFILER, root / ".venvs" / PROFILER, root / PROFILER / "requirements.lock", root, ())


def vllm_cpu_environment(root: Path = ROOT) -> Environment:
    """The environment of vLLM without a GPU. Its program asks for the version of `vllm` and takes its platform from
    the end of it; the distribution that holds it is named after the processor.
    """
    lock = root / VLLM_CPU / "requirements.lock"
    return Environment(VLLM_CPU, root / ".venvs" / VLLM_CPU, lock, root, (), alias=("vllm", "vllm-cpu", "+cpu"))


def adapter_environment(folder: Path, root: Path = ROOT) -> Environment:
    """The environment of an adapter folder: its own, or the one that its adapter.toml names."""
    owner = _owner(folder, root)
    path = root / ".venvs" / owner.name
    sources = tuple(dict.fromkeys((root / "src" / "agentdyno", owner, folder)))
    return Environment(owner.name, path, owner / "requirements.lock", root, sources)


def native_environment(folder: Path, root: Path = ROOT) -> Environment:
    """The environment of a framework's own instrumentation: it goes to the end of the path of a host that is asked
    for native spans, behind the framework's environment, and nowhere else.
    """
    owner = _owner(folder, root)
    name = f"{owner.name}{NATIVE_SUFFIX}"
    return Environment(name, root / ".venvs" / name, owner / "native.lock", root, ())


def _owner(folder: Path, root: Path) -> Path:
    try:
        described = tomllib.loads((folder / "adapter.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not written yet, or broken: whoever reads the adapter itself says so
        return folder
    name = described.get("environment")
    return root / "adapters" / name if isinstance(name, str) else folder


def state(environment: Environment) -> State:
    """Whether `environment` can be used as it is, and why not. Raises SetupError when it has no lock."""
    if not environment.path.exists():
        return State.ABSENT
    stamp = read_stamp(environment)
    if stamp is None or not environment.python.exists():
        return State.HALF_MADE
    if stamp.lock_sha256 != lock_sha256(environment):
        return State.LOCK_CHANGED
    if (stamp.python, stamp.base) != this_python():
        return State.OTHER_PYTHON
    if stamp.place != str(environment.path):
        return State.MOVED
    return State.READY


def check(environment: Environment) -> list[str]:
    """How `environment` differs from its lock, a sentence for each difference; empty when it does not.

    The stamp holds what pip installed from the lock under `--require-hashes`, so the lock's markers need not be
    evaluated again here. Raises SetupError when there is no lock.
    """
    name = environment.name
    found = state(environment)
    stamp = read_stamp(environment)
    if found is not State.READY or stamp is None:
        return [f"The environment of {name} ({environment.path}) is not usable: {found}."]
    differences = []
    installed = installed_distributions(environment)
    for distribution, version in stamp.distributions.items():
        now = installed.get(distribution)
        if now is None:
            differences.append(f"{distribution} {version} is in the lock of {name} but no longer installed.")
        elif now != version:
            differences.append(f"{distribution} {now} is installed for {name} where the lock has {version}.")
    differences += [
        f"{distribution} {version} is installed for {name} but not in its lock."
        for distribution, version in installed.items()
        if distribution not in stamp.distributions
    ]
    return differences


@dataclass(frozen=True, slots=True)
class Facts:
    """What a manifest says about an environment. disk_mb: in 10^6 bytes, bytecode included."""

    python: str
    lock_sha256: str
    distribution_count: int
    disk_mb: float
    distributions: dict[str, str]


def facts(environment: Environment) -> Facts:
    """The facts of a ready environment, with the distributions as they are now. Raises SetupError when not ready."""
    stamp = read_stamp(environment)
    if stamp is None:
        raise SetupError(
            f"The environment of {environment.name} is not built. Run: make env FRAMEWORK={environment.name}"
        )
    installed = installed_distributions(environment)
    return Facts(stamp.python, stamp.lock_sha256, len(installed), stamp.disk_mb, installed)


def installed_distributions(environment: Environment) -> dict[str, str]:
    """Version by normalised name of each distribution in `environment`, from the names of its metadata folders."""
    found = {}
    for folder in sorted(environment.site_packages.glob("*.dist-info")):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        found[normalised(name)] = version
    return found


def normalised(name: str) -> str:
    """A distribution's name in its one comparable form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_sha256(environment: Environment) -> str:
    """The hash of the lock file. Raises SetupError when it cannot be read."""
    try:
        return sha256(environment.lock.read_bytes()).hexdigest()
    except OSError as error:
        make = f"make lock FRAMEWORK={environment.name}"
        raise SetupError(
            f"The lock {environment.lock} cannot be read: {error.strerror}. Make it with: {make}"
        ) from error


def read_stamp(environment: Environment) -> Stamp | None:
    """The stamp, or None where there is none that this version understands."""
    try:
        raw = json.loads(environment.stamp.read_text(encoding="utf-8"))
        return Stamp(**raw) if raw.get("format") == STAMP_FORMAT else None
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, AttributeError):
        return None


def shown(path: Path, root: Path) -> Path:
    """`path` as a person who works in `root` would write it."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def this_python() -> tuple[str, str]:
    """What an environment made now would be bound to: implementation and version, and where that Python is."""
    return f"{platform.python_implementation()} {platform.python_version()}", sys.base_prefix
