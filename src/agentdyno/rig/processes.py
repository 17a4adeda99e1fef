"""Child processes of a run: started clean, pinned, logged, and ended without leaving anything behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from http.client import HTTPException
from pathlib import Path

LOG_TAIL_LINES = 15
_BACKLOG = 4096
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE")
_PR_SET_PDEATHSIG = 1
_SESSION_END_S = 1.0


class ChildFailed(RuntimeError):
    """A child process that did not start, died, or did not become ready; the text says which and shows its log."""

    def __init__(self, role: str, text: str) -> None:
        super().__init__(text)
        self.role = role


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment every child gets: a few harmless variables, no proxies, no Python switches, then `extra`."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    fixed = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "NO_PROXY": "*", "no_proxy": "*"}
    return {**kept, **fixed, **(extra or {})}


def listening_socket() -> socket.socket:
    """A socket that already listens on a free loopback port, to be inherited: no two runs can race for it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(_BACKLOG)
    return listener


def free_port() -> int:
    """A loopback port that is free now, for a program that cannot be given a socket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Child:
    """One child process that `Children` has just started. role: what it is called in messages. grace_s: what it needs
    to end in order.
    """

    def __init__(self, role: str, log: Path, process: subprocess.Popen[bytes], grace_s: float = 0.0) -> None:
        self.role = role
        self.log = log
        self.grace_s = grace_s
        self._process = process
        self.started_ns = time.monotonic_ns()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal, as subprocess has it."""
        return self._process.poll()

    def ended_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so now: what it was connected to notices that first."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.exit_code() is not None

    def wait_ready(self, url: str, timeout_s: float, check: Callable[[], None] = lambda: None) -> float:
        """Poll `url` until it answers 200; returns the seconds since the spawn.

        check: called between polls, may raise to give up. Raises ChildFailed when the child dies first or the time
        is up.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            check()
            if self.exit_code() is not None:
                raise ChildFailed(
                    self.role, f"The {self.role} {self.describe_exit()} before it was ready.{self.log_tail()}"
                )
            if answers(url, timeout_s=1.0):
                return (time.monotonic_ns() - self.started_ns) / 1e9
            if time.monotonic() > deadline:
                raise ChildFailed(self.role, f"The {self.role} was not ready within {timeout_s:g} s.{self.log_tail()}")
            time.sleep(0.02)

    def describe_exit(self) -> str:
        """How it ended, as the verb of a sentence."""
        code = self.exit_code()
        if code is None:
            return "is running"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def log_tail(self) -> str:
        """The last lines of its log, ready to follow a sentence; says so when there are none."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        except OSError as error:
            return f" Its log {self.log} cannot be read: {error.strerror}."
        if not lines:
            return f" It left nothing in its log ({self.log})."
        return f" Last lines of {self.log}:\n" + "\n".join(f"    {line}" for line in lines)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its whole session; nothing happens when it is gone."""
        with suppress(ProcessLookupError, PermissionError):  # gone; on macOS one that is not yet reaped is forbidden
            os.killpg(self.pid, number)

    def ask_to_end(self) -> None:
        """SIGTERM to its whole session, also when that is stopped."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def stop(self, grace_s: float) -> int:
        """SIGTERM, then after `grace_s` SIGKILL, to the whole session; returns its exit code."""
        if self.exit_code() is None:
            self.ask_to_end()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)
        code = self._process.wait()
        self._let_session_end()
        self.send(signal.SIGKILL)  # whatever it started and left behind in its session
        return code

    def _let_session_end(self) -> None:
        """A moment for what still puts things in order: Python's resource tracker removes shared memory last of all."""
        deadline = time.monotonic() + _SESSION_END_S
        while time.monotonic() < deadline:
            try:
                os.killpg(self.pid, 0)
            except OSError:
                return
            time.sleep(0.02)


class Children:
    """The child processes of one run. shield: entered while one is started, so that none is ever lost track of."""

    def __init__(self, shield: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._shield = shield
        self._started: list[Child] = []

    def start(
        self,
        role: str,
        command: Sequence[str],
        *,
        log: Path,
        cores: frozenset[int] | None = None,
        environment: Mapping[str, str] | None = None,
        inherit: tuple[socket.socket, ...] = (),
        folder: Path | None = None,
        orphaned: signal.Signals = signal.SIGKILL,
        grace_s: float = 0.0,
    ) -> Child:
        """Start one, in a session of its own, so that Ctrl-C reaches only the rig, which then ends it in order.

        role: what it is called in messages. cores: where it may run (None: anywhere). inherit: sockets it is given.
        folder: where it runs (None: where the rig does). On Linux it dies with the rig, even when that is killed:
        orphaned is the signal that it then gets, SIGTERM for one that has processes of its own to end. grace_s: it is
        never killed sooner than that after it was asked to end. Raises ChildFailed.
        """
        with self._shield(), log.open("ab") as out:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=clean_environment(environment),
                    cwd=folder,
                    pass_fds=tuple(listener.fileno() for listener in inherit),
                    start_new_session=True,
                    preexec_fn=_die_with_parent(orphaned),
                )
            except (OSError, subprocess.SubprocessError) as error:
                why = getattr(error, "strerror", None) or error
                raise ChildFailed(role, f"The {role} cannot be started: {command[0]}: {why}.") from error
            child = Child(role, log, process, grace_s)
            self._started.append(child)
            if cores and hasattr(os, "sched_setaffinity"):
                with suppress(ProcessLookupError):  # it has died already; whoever waits for it will say so
                    os.sched_setaffinity(child.pid, cores)
        return child

    def stop(self, grace_s: float) -> None:
        """Ask all to end at once, then wait, the last one started first, and kill what is left after `grace_s`, or
        after its own where that is longer.
        """
        asked = time.monotonic()
        for child in self._started:
            if child.exit_code() is None:
                child.ask_to_end()
        for child in reversed(self._started):
            child.stop(max(0.0, asked + max(grace_s, child.grace_s) - time.monotonic()))


class NoAnswer(OSError):
    """What came back is no HTTP answer, or not a whole one."""


def answers(url: str, timeout_s: float) -> bool:
    """Whether a GET of `url` gives 200 within the time."""
    try:
        fetch(url, timeout_s)
    except (OSError, ValueError):
        return False
    return True


def fetch(
    url: str,
    timeout_s: float,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The body of an answer with a status of 2xx. headers: more of them.

    Raises OSError when there is none; urllib's HTTPError, which is one, for another status.
    """
    content_type = {"content-type": "application/json"} if body is not None else {}
    request = urllib.request.Request(url, data=body, method=method, headers={**content_type, **(headers or {})})
    try:
        with _direct.open(request, timeout=timeout_s) as response:
            content: bytes = response.read()
            return content
    except HTTPException as error:
        raise NoAnswer(f"what came back is not a whole HTTP answer: {error!r:.200}") from error


def body_of(error: urllib.error.HTTPError) -> bytes:
    """The body that came with an error status; empty when it did not come whole."""
    try:
        return error.read()
    except (OSError, HTTPException):  # the status is what counts; a reader of the run sees the empty body
        return b""


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)

    return ask
