"""The servers of a run beside its backend, each started and ready: the recorder and the host."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from urllib.error import HTTPError

import msgspec

from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.proof import KEY_VARIABLE, Stage, order_id
from agentdyno.contract.run import Outcome
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.host.serve import API_KEY_VARIABLE
from agentdyno.load.verify import judge
from agentdyno.record.folder import RunFolder
from agentdyno.record.spans import RESOURCE_VARIABLE
from agentdyno.rig.backends import BACKEND_READY_S
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.options import BenchOptions
from agentdyno.rig.processes import Child, ChildFailed, Children, body_of, fetch, free_port, listening_socket

FIRST_ANSWER_INDEX = 2**40  # an order of the warm-up that no schedule reaches
_FIRST_ANSWER_TIMEOUT_S = 60.0
_MARGIN_S = 1.0
_DYING_S = 1.0
STALLED = "The backend stalled: it missed three health checks in a row."


class WrongAnswer(RuntimeError):
    """The host's first answer is not what the scenario asks for; the text says how, and shows its log."""


@dataclass(frozen=True, slots=True)
class RecorderProcess:
    """The run's recorder. address: for raw records, host:port. otlp_url: its OTLP over HTTP endpoint."""

    child: Child
    address: str
    otlp_url: str


def start_recorder(
    folder: RunFolder,
    resource: Mapping[str, str],
    cores: frozenset[int] | None,
    children: Children,
    environ: Mapping[str, str] = os.environ,
    otlp: tuple[str, int] | None = None,
) -> RecorderProcess:
    """Start it, ready. resource: attributes of what it exports. otlp: where it takes spans by OTLP, host and port, that
    somebody else knows; None: at a free port. Raises ChildFailed.

    It alone sees the OTEL_EXPORTER_OTLP_* settings of the rig's own environment: the measured process exports nothing.
    """
    environment = {name: value for name, value in environ.items() if name.startswith("OTEL_EXPORTER_OTLP_")}
    environment[RESOURCE_VARIABLE] = json.dumps(dict(resource))
    with listening_socket() as raw, _otlp_socket(otlp) as spans:
        raw_port, (host, otlp_port) = raw.getsockname()[1], spans.getsockname()[:2]
        command = [sys.executable, "-m", "agentdyno.record.recorder", "--folder", str(folder.raw)]
        command += ["--raw-fd", str(raw.fileno()), "--otlp-fd", str(spans.fileno())]
        child = children.start(
            "recorder", command, log=folder.log("recorder"), cores=cores, environment=environment, inherit=(raw, spans)
        )
    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{otlp_port}"
    child.wait_ready(f"{url}/healthz", BACKEND_READY_S)
    return RecorderProcess(child, f"127.0.0.1:{raw_port}", f"{url}/v1/traces")


def _otlp_socket(address: tuple[str, int] | None) -> socket.socket:
    if address is None:
        return listening_socket()
    try:
        return socket.create_server(address)
    except OSError as error:
        text = f"The recorder cannot take spans at OTLP={address[0]}:{address[1]}: {error.strerror or error}."
        raise ChildFailed("recorder", text) from error


@dataclass(frozen=True, slots=True)
class HeapOptions:
    """What a profiling host is given. site_packages: the profiler's. scratch: the folder for what it writes."""

    site_packages: Path
    run_id: str
    scratch: Path


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """What a host with native spans is given. site_packages: the instrumentation's. otlp_url: the recorder's."""

    site_packages: Path
    otlp_url: str


@dataclass(frozen=True, slots=True)
class Host:
    """A ready host process. cold_start_ms: from its spawn to its first ready answer."""

    child: Child
    url: str
    cold_start_ms: float


def start_host(
    adapter: AdapterFolder,
    variant: Variant,
    options: BenchOptions,
    *,
    backend_url: str,
    key: bytes,
    cores: frozenset[int] | None,
    log: Path,
    children: Children,
    offline: bool = False,
    spans: str | None = None,
    switchable: bool = False,
    heap: HeapOptions | None = None,
    native: NativeOptions | None = None,
) -> Host:
    """Start the host of one adapter and wait until it is ready. Raises ChildFailed with the log's last lines.

    spans: the recorder's address, host:port; None: nothing is traced. switchable: what watches its requests can be
    switched off, for the self-check. heap: sample the heap. native: the framework's own spans. A timed process has
    none of these three, and carries nothing of them.
    """
    environment = {**variant.env, KEY_VARIABLE: key.hex()}
    if options.api_key is not None:
        environment[API_KEY_VARIABLE] = options.api_key
    workload = msgspec.json.encode(options.workload).decode()
    admission = "off" if options.admission is None else str(options.admission)
    if variant.command is not None:
        port = free_port()
        environment |= {"PORT": str(port), "AGENTDYNO_LLM_URL": backend_url, "AGENTDYNO_LLM_MODEL": options.model}
        environment |= {"AGENTDYNO_WORKLOAD": workload, "AGENTDYNO_ADMISSION": admission}
        program = adapter.path / variant.command[0]
        command = [str(program) if program.is_file() else variant.command[0], *variant.command[1:]]
        child = children.start("host", command, log=log, cores=cores, environment=environment, folder=adapter.path)
    else:
        with listening_socket() as listener:
            port = listener.getsockname()[1]
            python = adapter_environment(adapter.path).python
            command = [str(python), "-m", "agentdyno.host", "--fd", str(listener.fileno())]
            command += ["--adapter", str(adapter.path), "--variant", variant.name]
            command += ["--llm", backend_url, "--model", options.model, "--workload", workload]
            command += ["--admission", admission, *(["--offline"] if offline else [])]
            command += ["--spans", spans] if spans is not None else []
            command += ["--switchable"] if switchable else []
            if heap is not None:
                command += ["--heap-profile", str(heap.site_packages), "--run-id", heap.run_id]
                environment["TMPDIR"] = str(heap.scratch)
            if native is not None and variant.native is not None:
                command += ["--native-spans", native.otlp_url, "--native-path", str(native.site_packages)]
                environment |= variant.native.env
            child = children.start("host", command, log=log, cores=cores, environment=environment, inherit=(listener,))
    url = f"http://127.0.0.1:{port}"
    return Host(child, url, child.wait_ready(f"{url}/healthz", options.ready_timeout_s) * 1000)


def streams(host_url: str, options: BenchOptions) -> bool:
    """Whether the host answers one request as server-sent events. Raises WrongAnswer when it answers nothing."""
    plan = options.plan
    timeout_s = min(_FIRST_ANSWER_TIMEOUT_S, options.ready_timeout_s)
    index = FIRST_ANSWER_INDEX + 1
    request = SCENARIOS[plan.scenario].request(plan.seed, Stage.WARMUP, index, ceil(timeout_s * 1000), stream=True)
    try:
        body = fetch(host_url + INVOKE_PATH, timeout_s + _MARGIN_S, method="POST", body=msgspec.json.encode(request))
    except HTTPError:
        return False
    except OSError as error:
        raise WrongAnswer(f"The first streamed request got no answer: {error}.") from error
    return b"event: final" in body


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """The one request that a host must answer rightly before the load. timeout_s: when its asker gives it up."""

    body: bytes
    timeout_s: float
    order: str
    scenario: str

    @classmethod
    def of(cls, options: BenchOptions) -> FirstRequest:
        """That of a run."""
        plan = options.plan
        order = order_id(plan.seed, Stage.WARMUP, FIRST_ANSWER_INDEX)
        timeout_s = min(_FIRST_ANSWER_TIMEOUT_S, options.ready_timeout_s)
        request = SCENARIOS[plan.scenario].request(plan.seed, Stage.WARMUP, FIRST_ANSWER_INDEX, ceil(timeout_s * 1000))
        return cls(msgspec.json.encode(request), timeout_s + _MARGIN_S, order, plan.scenario)

    def check(self, status: int, body: bytes, key: bytes, log_tail: str = "") -> None:
        """Raises WrongAnswer with a sentence, and the end of the host's log, when it was not answered rightly."""
        judged = judge(status, body, self.order, key, SCENARIOS[self.scenario])
        if judged.outcome is not Outcome.OK:
            said = body[:300].decode("utf-8", "replace")
            raise WrongAnswer(
                f"The first request was not answered rightly ({judged.reason}): status {status}, body {said!r}."
                f"{log_tail}"
            )


def first_answer(host: Host, options: BenchOptions, key: bytes) -> float:
    """Send one request and check its answer in full; returns how long it took, ms.

    A host that answers wrongly is so told apart at once, in words, instead of after a minute of load.
    Raises WrongAnswer; ChildFailed when the host dies of it.
    """
    request = FirstRequest.of(options)
    begin = time.monotonic()
    try:
        body = fetch(host.url + INVOKE_PATH, request.timeout_s, method="POST", body=request.body)
        status = 200
    except HTTPError as error:
        status, body = error.code, body_of(error)
    except OSError as error:
        child = host.child
        if child.ended_within(_DYING_S):
            text = f"The host {child.describe_exit()} before it had answered its first request.{child.log_tail()}"
            raise ChildFailed(child.role, text) from error
        raise WrongAnswer(f"The first request got no answer: {error}.{child.log_tail()}") from error
    elapsed_ms = (time.monotonic() - begin) * 1000
    request.check(status, body, key, host.child.log_tail())
    return elapsed_ms
