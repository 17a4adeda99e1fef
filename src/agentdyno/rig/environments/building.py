"""Building environments: in place, stamped last, compiled to bytecode, by one builder at a time.

An environment without a stamp is half made and never used; a stamp that names another lock, Python or place makes
it built anew. An adapter's environment holds its lock's distributions and a path file to our sources, and nothing
else: the rig's pip fills it from outside, so not even pip is importable there. Standard library only.
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
from dataclasses import asdict
from pathlib import Path
from py_compile import PycInvalidationMode

from agentdyno.rig.environments.environment import (
    RIG,
    STAMP_FORMAT,
    Environment,
    SetupError,
    Stamp,
    State,
    installed_distributions,
    lock_sha256,
    shown,
    state,
    this_python,
)

_HEARTBEAT_S = 10.0
_LOG_TAIL_LINES = 12
# A third of the compiler's time for the rig: distributions' own tests, and a second copy of a large client.
_NEVER_IMPORTED = "/site-packages/(.+/tests|kubernetes/aio)/"
# Settings that would make pip install elsewhere, or something else than the lock, whatever we ask of it.
_UNWANTED = {"PYTHONPATH", "PYTHONHOME"} | {
    f"PIP_{name}" for name in ("TARGET", "PREFIX", "ROOT", "USER", "CONSTRAINT")
}


def ensure(environment: Environment, bytecode: PycInvalidationMode = PycInvalidationMode.TIMESTAMP) -> None:
    """Make `environment` ready: at once when it is, or else by building it anew, with progress on stderr.

    bytecode: when it is made anew beside its source; by timestamp where sources may change. Safe to call from several
    processes at a time: one builds, the others wait. Raises SetupError.
    """
    try:
        if state(environment) is not State.READY:
            environment.guard.parent.mkdir(exist_ok=True)
            with _alone(environment) as guard:
                found = state(environment)
                if found is not State.READY:
                    _Build(environment, guard, bytecode).run(found)
        _compile_sources(environment, bytecode)
    except OSError as error:
        raise SetupError(f"{environment.name}: the environment could not be made: {error}.") from error


def say(text: str) -> None:
    """One line of progress on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def _alone(environment: Environment) -> Iterator[int]:
    """Hold the build lock; yields its descriptor. The kernel releases it when the last process that has it ends."""
    with environment.guard.open("w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{environment.name}: another process is building this environment; waiting for it.")
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield guard.fileno()


def _compile_sources(environment: Environment, bytecode: PycInvalidationMode) -> None:
    """Compile our own sources where they changed.

    By timestamp: the shell may forbid Python to write bytecode on import, and unchecked bytecode would go stale.
    """
    for folder in environment.sources:
        compileall.compile_dir(folder, quiet=2, invalidation_mode=bytecode)


class _Build:
    """One build of an environment, from nothing to its stamp. guard: the build lock's descriptor."""

    def __init__(self, environment: Environment, guard: int, bytecode: PycInvalidationMode) -> None:
        self.environment = environment
        self.guard = guard
        self.bytecode = bytecode
        # Resolved now, because we may be running in the very environment that is to be removed.
        self.python = Path(sys.executable).resolve()
        self.began = time.monotonic()

    def run(self, found: State) -> None:
        environment = self.environment
        digest = lock_sha256(environment)
        if found is not State.ABSENT:
            self.tell(f"the environment is there but {found}; removing it")
            environment.stamp.unlink(missing_ok=True)
            shutil.rmtree(environment.path)
        environment.log.write_text("", encoding="utf-8")
        self.create()
        self.install()
        self.name_alias()
        self.compile()
        self.stamp(digest)

    def create(self) -> None:
        environment = self.environment
        pip = [] if environment.name == RIG else ["--without-pip"]
        self.tell(f"making {self.shown(environment.path)} with Python {platform.python_version()}")
        self.step("make the virtual environment", [str(self.python), "-m", "venv", *pip, str(environment.path)])
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
        lock = self.shown(environment.lock)
        count = len(re.findall(r"(?m)^[A-Za-z0-9].*==", environment.lock.read_text(encoding="utf-8")))
        self.tell(f"installing up to {count} distributions from {lock}")
        self.step(f"install what {lock} lists", [*pip, "install", *quiet, *exact, "-r", str(environment.lock)])
        if environment.name == RIG:
            editable = ["--no-deps", "--no-build-isolation", "--no-index", "-e", str(environment.root)]
            self.step("install agentdyno itself", [*pip, "install", *quiet, *editable])

    def name_alias(self) -> None:
        """Metadata of the alias and nothing else: no file of the distribution is touched, so the hashes hold."""
        environment = self.environment
        if environment.alias is None:
            return
        alias, distribution, ending = environment.alias
        version = installed_distributions(environment)[distribution] + ending
        folder = environment.site_packages / f"{alias}-{version}.dist-info"
        folder.mkdir()
        metadata = (
            f"Metadata-Version: 2.1\nName: {alias}\nVersion: {version}\nSummary: Another name of {distribution}.\n"
        )
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
        (folder / "INSTALLER").write_text("agentdyno\n", encoding="utf-8")

    def compile(self) -> None:
        self.tell("compiling to bytecode")
        modes = ["-q", "-j", "0", "-x", _NEVER_IMPORTED, "--invalidation-mode", self.mode]
        command = [str(self.environment.python), "-m", "compileall", *modes, str(self.environment.site_packages)]
        # Some distributions ship files that are no Python of this version; the log names them and they do no harm.
        self.step("compile to bytecode", command, may_fail=True)

    @property
    def mode(self) -> str:
        """As compileall names it."""
        return self.bytecode.name.lower().replace("_", "-")

    def stamp(self, digest: str) -> None:
        environment = self.environment
        python, base = this_python()
        megabytes = sum(file.lstat().st_size for file in environment.path.rglob("*") if file.is_file()) / 1e6
        stamp = Stamp(
            format=STAMP_FORMAT,
            lock_sha256=digest,
            python=python,
            base=base,
            place=str(environment.path),
            distributions=installed_distributions(environment),
            disk_mb=round(megabytes, 3),
            build_s=round(time.monotonic() - self.began, 1),
        )
        unfinished = environment.stamp.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(stamp), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(environment.stamp)
        self.tell(f"ready: {len(stamp.distributions)} distributions, {megabytes:.0f} MB")

    def step(self, what: str, command: Sequence[str], *, may_fail: bool = False) -> None:
        """Run one command with its output in the log and a sign of life now and then. Raises SetupError.

        The command inherits the build lock: should we be killed, nobody builds here before it has ended too.
        """
        variables = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        with self.environment.log.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, pass_fds=[self.guard]
            )
            try:
                while (code := self.wait(process)) is None:
                    self.tell(f"still at it: {what} (log: {self.shown(self.environment.log)})")
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if code != 0 and not may_fail:
            raise SetupError(self.failure(what, code))

    def wait(self, process: subprocess.Popen[bytes]) -> int | None:
        try:
            return process.wait(timeout=_HEARTBEAT_S)
        except subprocess.TimeoutExpired:
            return None

    def failure(self, what: str, code: int) -> str:
        environment = self.environment
        tail = environment.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        quoted = "".join(f"  | {line}\n" for line in tail)
        again = "make setup" if environment.name == RIG else f"make env FRAMEWORK={environment.name}"
        return (
            f"{environment.name}: could not {what} (exit {code}). The last lines of {environment.log}:\n{quoted}"
            f"Check the package index, the lock and the free disk space, then run again: {again}"
        )

    def shown(self, path: Path) -> str:
        return str(shown(path, self.environment.root))

    def tell(self, text: str) -> None:
        say(f"[{time.monotonic() - self.began:6.1f} s] {self.environment.name}: {text}")
