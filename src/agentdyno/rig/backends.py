"""The LLM side of a run: the scripted mock, a vLLM without a GPU, a vLLM elsewhere, or any OpenAI-compatible URL."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agentdyno.backends.vllm.counters import read_counters, since
from agentdyno.backends.vllm.guard import GRACE_S
from agentdyno.backends.vllm.serving import SOCKETS, arguments, environment, program
from agentdyno.backends.vllm.told import facts_told, server_facts
from agentdyno.contract.run import BackendStats, ServerCounters
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.contract.summary import BackendFacts
from agentdyno.record.manifest import Backend as BackendRecord
from agentdyno.rig.backend_options import MOCK, VLLM
from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.environment import VLLM_CPU
from agentdyno.rig.options import BenchOptions
from agentdyno.rig.processes import Child, ChildFailed, Children, answers, fetch, free_port, listening_socket
from agentdyno.rig.vllm_cpu import cache_folder, model_folder, python, threads

BACKEND_READY_S = 30.0
VLLM_READY_S = 300.0
_FETCH_TIMEOUT_S = 10.0
_HEALTH_EVERY_S = 1.0
_HEALTH_TIMEOUT_S = 1.0
_HEALTH_MISSES = 3
_SAY_EVERY_S = 10.0


@dataclass(slots=True)
class Backend:
    """A server of the user's own, which keeps no count for us. child None: it is no process of this run.

    api_key: what it is asked with.
    """

    kind: str
    url: str
    model: str
    child: Child | None
    api_key: str | None = field(default=None, repr=False)
    _misses: int = 0
    _next_check: float = 0.0

    @property
    def metrics_url(self) -> str | None:
        """Where its /metrics are; None for a server of which it is not known that it has any."""
        return None

    def stalled(self) -> bool:
        """True once, when a child has missed several health checks in a row; at most one check a second."""
        if self.child is None or self._misses >= _HEALTH_MISSES or time.monotonic() < self._next_check:
            return False
        alive = answers(self._root + "/health", _HEALTH_TIMEOUT_S)
        self._next_check = time.monotonic() + _HEALTH_EVERY_S
        self._misses = 0 if alive else self._misses + 1
        return self._misses == _HEALTH_MISSES

    def begin(self) -> None:
        """The load begins: what was served before it is not to be counted. Raises ChildFailed where that is unknown."""

    def told(self) -> BackendFacts:
        """For the manifest: `told`, what it tells of its settings now; empty where it tells nothing."""
        return {}

    def record(self) -> BackendRecord:
        """What it says of itself now. Raises OSError when it does not answer."""
        return BackendRecord(kind=self.kind, model=self.model)

    @property
    def _root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def _patience_s(self) -> float:
        return _FETCH_TIMEOUT_S if self._misses < _HEALTH_MISSES else _HEALTH_TIMEOUT_S


@dataclass(slots=True)
class MockBackend(Backend):
    """The scripted mock, which counts what it served by stage."""

    @property
    def metrics_url(self) -> str:
        """See Backend."""
        return self._root + "/metrics"

    def record(self) -> BackendRecord:
        """See Backend."""
        try:
            stats = msgspec.json.decode(fetch(self._root + "/stats", self._patience_s), type=BackendStats)
        except msgspec.MsgspecError as error:
            raise OSError(f"its /stats cannot be read: {error}") from error
        return BackendRecord(kind=self.kind, model=self.model, stats=stats)


@dataclass(slots=True)
class VllmBackend(Backend):
    """A vLLM, ours or the user's: its counters are those of its /metrics, less what they were when the load began."""

    _before: ServerCounters | None = None

    @property
    def metrics_url(self) -> str:
        """See Backend."""
        return self._root + "/metrics"

    def begin(self) -> None:
        """See Backend."""
        try:
            self._before = self._counters()
        except OSError as error:
            raise ChildFailed("backend", self._uncounted(error)) from error

    def _uncounted(self, error: OSError) -> str:
        text = f"{self._root} does not say what it has served, as vLLM does at /metrics ({error})."
        if self.child is not None:
            return text + self.child.log_tail()
        return f"{text} BACKEND={VLLM} is for a vLLM; another server's address is BACKEND itself: BACKEND={self.url}"

    def record(self) -> BackendRecord:
        """See Backend."""
        if self._before is None:
            return BackendRecord(kind=self.kind, model=self.model)
        counters = since(self._before, self._counters())
        server = server_facts(self._ask, self.model)
        return BackendRecord(kind=self.kind, model=self.model, counters=counters, server=server)

    def told(self) -> BackendFacts:
        """See Backend."""
        return facts_told(self._ask, self.model)

    def _ask(self, path: str) -> bytes:
        key = {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}
        return fetch(self._root + path, self._patience_s, headers=key)

    def _counters(self) -> ServerCounters:
        try:
            return read_counters(fetch(self.metrics_url, self._patience_s).decode())
        except ValueError as error:
            raise OSError(f"of its /metrics: {error}") from error


def start_backend(
    options: BenchOptions,
    cores: frozenset[int] | None,
    log: Path,
    children: Children,
    spans: str | None = None,
    traces_url: str | None = None,
) -> Backend:
    """The backend that the options ask for, ready. Raises ChildFailed.

    spans: the recorder's address, host:port, for the mock's own spans. traces_url: its OTLP endpoint, for vLLM's.
    """
    if options.backend == MOCK:
        return _start_mock(options, cores, log, children, spans)
    if options.backend == VLLM_CPU:
        return _start_vllm(options, cores, log, children, traces_url)
    kind = VllmBackend if options.backend == VLLM else Backend
    return kind(options.backend, options.backend_url or "", options.model, None, options.api_key)


def _start_mock(
    options: BenchOptions, cores: frozenset[int] | None, log: Path, children: Children, spans: str | None
) -> Backend:
    with listening_socket() as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "agentdyno.backends.mock_llm", "--fd", str(listener.fileno())]
        command += ["--scenario", options.plan.scenario, "--seed", str(options.plan.seed)]
        command += ["--model", options.model, "--timing", msgspec.json.encode(options.workload.timing).decode()]
        command += ["--spans", spans] if spans is not None else []
        child = children.start("backend", command, log=log, cores=cores, inherit=(listener,))
    url = f"http://127.0.0.1:{port}"
    child.wait_ready(f"{url}/health", BACKEND_READY_S)
    return MockBackend(MOCK, f"{url}/v1", options.model, child)


def _start_vllm(
    options: BenchOptions, cores: frozenset[int] | None, log: Path, children: Children, traces_url: str | None
) -> Backend:
    port = free_port()
    parallel = SCENARIOS[options.plan.scenario].parallel
    settings = arguments(model_folder(), port=port, seed=options.plan.seed, parallel=parallel, traces_url=traces_url)
    variables = environment(cache_folder(), threads(cores))
    command = [*program(python()), *settings]
    child = children.start(
        "backend",
        command,
        log=log,
        cores=cores,
        environment=variables,
        folder=cache_folder() / SOCKETS,
        orphaned=signal.SIGTERM,
        grace_s=GRACE_S,
    )
    url = f"http://127.0.0.1:{port}"
    ready_s = child.wait_ready(f"{url}/health", VLLM_READY_S, _SignOfLife(log).look)
    say(f"vLLM: ready after {ready_s:.1f} s")
    return VllmBackend(VLLM_CPU, f"{url}/v1", options.model, child)


class _SignOfLife:
    """Says now and then that vLLM is still starting, and where to look."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._began = self._said = time.monotonic()

    def look(self) -> None:
        """To be called often."""
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY_S:
            self._said = now
            say(f"vLLM: starting for {now - self._began:.0f} s, at most {VLLM_READY_S:g} (log: {self._log})")
