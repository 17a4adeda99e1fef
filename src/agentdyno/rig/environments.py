"""Environments: the rig's own (`.venv`) and one per adapter folder (`.venvs/<folder>`), each just what its lock says.

Standard library only, because this module builds the environment that everything else needs. An environment is
built in place and stamped last, so one without a stamp is half made and never used; a stamp that names another
lock, Python or place makes it built anew. An adapter's environment has nothing in it but its lock and a path
file to our sources: it is filled by the rig's pip from outside, so not even pip is importable there.
"""

from __future__ import annotations

import compileall
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from py_compile import PycInvalidationMode

ROOT = Path(__file__).resolve().parents[3]
RIG = "rig"

_STAMP_FORMAT = 1
_HEARTBEAT_S = 10.0
_LOG_TAIL_LINES = 12
# Settings that would make pip install elsewhere or from sources, whatever we ask of it.
_UNWANTED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_NO_BINARY",
    "PIP_CONSTRAINT",
)


class SetupError(RuntimeError):
    """An environment that could not be made; the text says what failed, where the log is and what to do."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where an environment and its lock are. sources: folders of ours that are compiled with it."""

    name: str
    path: Path
    lock: Path
    root: Path
    sources: tuple[Path, ...]

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


def adapter_environment(folder: Path, root: Path = ROOT) -> Environment:
    """The environment of an adapter folder."""
    path = root / ".venvs" / folder.name
    return Environment(folder.name, path, folder / "requirements.lock", root, (root / "src" / "agentdyno", folder))


def state(environment: Environment) -> State:
    """Whether `environment` can be used as it is, and why not. Raises SetupError when it has no lock."""
    if not environment.path.exists():
        return State.ABSENT
    stamp = read_stamp(environment)
    if stamp is None or not environment.python.exists():
        return State.HALF_MADE
    if stamp.lock_sha256 != lock_sha256(environment):
        return State.LOCK_CHANGED
    if (stamp.python, stamp.base) != _this_python():
        return State.OTHER_PYTHON
    if stamp.place != str(environment.path):
        return State.MOVED
    return State.READY


def ensure(environment: Environment) -> None:
    """Make `environment` ready: at once when it is, or else by building it anew, with progress on stderr.

    Safe to call from several processes at a time. Raises SetupError.
    """
    if state(environment) is not State.READY:
        environment.guard.parent.mkdir(exist_ok=True)
        with _alone(environment):
            found = state(environment)
            if found is not State.READY:
                _Build(environment).run(found)
    _compile_sources(environment)


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
        raise SetupError(
            f"The lock {environment.lock} cannot be read: {error.strerror}. Make it with: make lock FRAMEWORK={environment.name}"
        ) from error


def read_stamp(environment: Environment) -> Stamp | None:
    """The stamp, or None where there is none that this version understands."""
    try:
        raw = json.loads(environment.stamp.read_text(encoding="utf-8"))
        return Stamp(**raw) if raw.get("format") == _STAMP_FORMAT else None
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, AttributeError):
        return None


def say(text: str) -> None:
    """One line of progress on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _this_python() -> tuple[str, str]:
    return f"{platform.python_implementation()} {platform.python_version()}", sys.base_prefix


@contextmanager
def _alone(environment: Environment) -> Iterator[None]:
    """Hold the build lock, which the kernel releases with the process, however that ends."""
    with environment.guard.open("w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{environment.name}: another process is building this environment; waiting for it.")
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def _compile_sources(environment: Environment) -> None:
    """Compile our own sources where they changed.

    By timestamp: the shell may forbid Python to write bytecode on import, and unchecked bytecode would go stale.
    """
    for folder in environment.sources:
        compileall.compile_dir(folder, quiet=2, invalidation_mode=PycInvalidationMode.TIMESTAMP)


class _Build:
    """One build of an environment, from nothing to its stamp."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.began = time.monotonic()

    def run(self, found: State) -> None:
        environment = self.environment
        digest = lock_sha256(environment)
        if found is not State.ABSENT:
            self.tell(f"the environment is {found}; removing it")
            environment.stamp.unlink(missing_ok=True)
            shutil.rmtree(environment.path)
        environment.log.write_text("", encoding="utf-8")
        self.tell(f"making {self.shown(environment.path)} with Python {platform.python_version()}")
        self.create()
        self.install()
        self.tell("compiling to bytecode")
        self.compile()
        self.stamp(digest)

    def create(self) -> None:
        environment = self.environment
        pip = [] if environment.name == RIG else ["--without-pip"]
        self.command("make the virtual environment", [sys.executable, "-m", "venv", *pip, str(environment.path)])
        if environment.name != RIG:
            path_file = environment.site_packages / "agentdyno-source.pth"
            path_file.write_text(f"{environment.root / 'src'}\n", encoding="utf-8")

    def install(self) -> None:
        environment = self.environment
        pip = [str(environment.python), "-m", "pip"]
        if environment.name != RIG:
            pip = [sys.executable, "-m", "pip", "--python", str(environment.python)]
        quiet = ["--disable-pip-version-check", "--no-input", "--no-compile", "--progress-bar", "off"]
        exact = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
        count = len(re.findall(r"(?m)^[A-Za-z0-9].*==", environment.lock.read_text(encoding="utf-8")))
        self.tell(f"installing up to {count} distributions from {self.shown(environment.lock)}")
        self.command(
            f"install what {self.shown(environment.lock)} lists",
            [*pip, "install", *quiet, *exact, "-r", str(environment.lock)],
        )
        if environment.name == RIG:
            editable = ["--no-deps", "--no-build-isolation", "--no-index", "-e", str(environment.root)]
            self.command("install agentdyno itself", [*pip, "install", *quiet, *editable])

    def compile(self) -> None:
        # Some distributions ship files that are no Python of this version; they are in the log and do no harm.
        modes = ["-q", "-j", "0", "--invalidation-mode", "timestamp"]
        folder = str(self.environment.site_packages)
        self.command(
            "compile to bytecode", [str(self.environment.python), "-m", "compileall", *modes, folder], may_fail=True
        )

    def stamp(self, digest: str) -> None:
        environment = self.environment
        python, base = _this_python()
        megabytes = sum(file.lstat().st_size for file in environment.path.rglob("*") if file.is_file()) / 1e6
        seconds = time.monotonic() - self.began
        stamp = Stamp(
            format=_STAMP_FORMAT,
            lock_sha256=digest,
            python=python,
            base=base,
            place=str(environment.path),
            distributions=installed_distributions(environment),
            disk_mb=round(megabytes, 1),
            build_s=round(seconds, 1),
        )
        unfinished = environment.stamp.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(stamp), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(environment.stamp)
        self.tell(f"ready: {len(stamp.distributions)} distributions, {megabytes:.0f} MB")

    def command(self, what: str, command: Sequence[str], *, may_fail: bool = False) -> None:
        """Run a step with its output in the log and a sign of life now and then. Raises SetupError."""
        variables = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        with self.environment.log.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)
            try:
                while True:
                    try:
                        code = process.wait(timeout=_HEARTBEAT_S)
                        break
                    except subprocess.TimeoutExpired:
                        self.tell(f"still busy: {' '.join(self.log_tail(1))[:100].strip()}")
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if code != 0 and not may_fail:
            tail = "\n".join(f"  | {line}" for line in self.log_tail(_LOG_TAIL_LINES))
            again = "make setup" if self.environment.name == RIG else f"make env FRAMEWORK={self.environment.name}"
            raise SetupError(
                f"{self.environment.name}: could not {what} (exit {code}). The log's last lines:\n{tail}\n"
                f"The whole log: {self.environment.log}\n"
                f"Check the package index and the free disk space, then run again: {again}"
            )

    def log_tail(self, lines: int) -> list[str]:
        return self.environment.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]

    def shown(self, path: Path) -> str:
        return str(path.relative_to(self.environment.root)) if path.is_relative_to(self.environment.root) else str(path)

    def tell(self, text: str) -> None:
        say(f"[{time.monotonic() - self.began:6.1f} s] {self.environment.name}: {text}")
