"""The host process: `python -m agentdyno.host` loads one adapter and serves it with one worker."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

import agentdyno
from agentdyno.contract.adapter import Adapter, AdapterError, LlmEndpoint, Variant, check_class, read_folder
from agentdyno.contract.api_key import ApiKeyError, read_api_key
from agentdyno.contract.proof import ProofError, key_from_environment
from agentdyno.contract.scenario import SCENARIOS, Workload
from agentdyno.contract.trace import Service
from agentdyno.emit.sender import Sender, parse_address
from agentdyno.host import border, offline

if TYPE_CHECKING:
    from agentdyno.host.app import Host
    from agentdyno.host.heap import HeapProfiler
    from agentdyno.host.native import NativeSpans

API_KEY_VARIABLE = "AGENTDYNO_LLM_API_KEY"
_BACKLOG = 4096
_EXIT_S = 2.0


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM; returns the exit code (2: what was asked for cannot be done, with a sentence)."""
    options = _parser().parse_args(argv)
    try:
        folder = read_folder(options.adapter)
        variant = next((v for v in folder.variants if v.name == options.variant), None)
        if variant is None:
            raise AdapterError(f"{folder.path} declares no variant named {options.variant!r}.")
        workload = msgspec.json.decode(options.workload, type=Workload)
        key = key_from_environment(os.environ)
        if options.offline:
            offline.refuse_all_but_loopback()
        heap = None if options.heap_profile is None else _heap_profiler(options, folder.path)
        native = None if options.native_spans is None else _native_spans(options, variant)
        llm_border = border.install(options.llm)
        adapter = load_adapter(folder.path, variant)
        llm_border.refresh()
        host = _host(options, variant, adapter, workload, key, llm_border, heap, native)
        listener = _listen(options)
    except (AdapterError, ApiKeyError, ProofError, InstrumentMissing, msgspec.MsgspecError, ValueError) as error:
        sys.stderr.write(f"The host cannot start: {error}\n")
        return 2
    try:
        return _serve(host, listener, asyncio_loop=options.offline, switchable=options.switchable)
    finally:
        if heap is not None:
            heap.close()
        if native is not None:
            native.close()


class InstrumentMissing(RuntimeError):
    """What no timed process carries cannot be loaded from where it should be; the text says why."""


def _heap_profiler(options: argparse.Namespace, adapter: Path) -> HeapProfiler:
    """Started before the adapter is imported, so that what its imports hold is seen. Raises InstrumentMissing."""
    from agentdyno.host.heap import HeapProfiler

    labels = {"framework": options.variant, "run": options.run_id}
    roots = {"agentdyno": Path(agentdyno.__file__).parent, f"adapters/{adapter.name}": adapter.absolute()}
    try:
        return HeapProfiler(options.heap_profile, labels, roots)
    except ImportError as error:
        text = f"the heap profiler cannot be loaded from {options.heap_profile}: {error}"
        raise InstrumentMissing(text) from error


def _native_spans(options: argparse.Namespace, variant: Variant) -> NativeSpans:
    """Before the adapter is imported, as instrumentations want it. Raises InstrumentMissing."""
    from agentdyno.host.native import NativeSpans, NativeSpansMissing

    if variant.native is None or options.native_path is None:
        raise InstrumentMissing(f"native spans need --native-path, and `native` in the adapter.toml of {variant.name}")
    try:
        return NativeSpans(options.native_path, options.native_spans, variant.native.instrumentors)
    except NativeSpansMissing as error:
        raise InstrumentMissing(str(error)) from error


def load_adapter(folder: Path, variant: Variant) -> Adapter:
    """Import the variant's entry from its folder and make the adapter.

    Raises AdapterError with a sentence; what the adapter's own code raises goes to the log with its traceback first.
    """
    if variant.entry is None:
        raise AdapterError(f"{variant.name} is a program of its own, not a Python class.")
    module_name, _, class_name = variant.entry.partition(":")
    file = folder / f"{module_name}.py"
    spec = importlib.util.spec_from_file_location(f"agentdyno_adapter_{module_name}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise AdapterError(f"The entry {variant.entry!r} of {variant.name} names {file}, which is not there.")
    sys.path.insert(0, str(folder))  # for a library that stands beside its adapter
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with _own_fault(f"{file} could not be imported"):
        spec.loader.exec_module(module)
    made = getattr(module, class_name, None)
    if made is None:
        raise AdapterError(f"{file} has no class named {class_name!r}.")
    with _own_fault(f"{file}:{class_name} could not be made"):
        adapter: Adapter = made()
    check_class(adapter, f"{file}:{class_name}")
    return adapter


@contextmanager
def _own_fault(what: str) -> Iterator[None]:
    """Turns any exception of the adapter's own code into an AdapterError, its traceback on record."""
    try:
        yield
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        raise AdapterError(f"{what}: {type(error).__name__}: {error}") from error


def _host(
    options: argparse.Namespace,
    variant: Variant,
    adapter: Adapter,
    workload: Workload,
    key: bytes,
    llm_border: border.Border,
    heap: HeapProfiler | None,
    native: NativeSpans | None,
) -> Host:
    from agentdyno.host.app import Host
    from agentdyno.host.metrics import HostMetrics
    from agentdyno.host.tools import build_tools

    scenario = SCENARIOS.get(workload.scenario)
    if scenario is None:
        raise ValueError(f"There is no scenario {workload.scenario!r}; there are {', '.join(SCENARIOS)}.")
    metrics = HostMetrics(variant.name)
    tools = build_tools(workload, key, parallel=scenario.parallel, on_stray=metrics.stray_calls.inc)
    llm = LlmEndpoint(
        base_url=options.llm,
        model=options.model,
        api_key=read_api_key(os.environ, (API_KEY_VARIABLE,)) or "none",
        timeout_s=options.llm_timeout_s,
    )
    return Host(
        adapter,
        llm,
        tools,
        scenario.system_prompt,
        framework=variant.name,
        admission=options.admission,
        metrics=metrics,
        border=llm_border,
        spans=None if options.spans is None else Sender(parse_address(options.spans), Service.HOST),
        heap=None if heap is None else heap.snapshot,
        enter=None if native is None else native.enter,
    )


def _listen(options: argparse.Namespace) -> socket.socket:
    """The socket to serve on. Raises ValueError with a sentence when there is none to be had."""
    try:
        if options.fd is not None:
            return socket.socket(fileno=options.fd)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:  # OverflowError: a port above 65535
        where = f"{options.host}:{options.port}" if options.fd is None else f"the inherited socket {options.fd}"
        raise ValueError(f"{where} cannot be listened on: {getattr(error, 'strerror', None) or error}.") from error
    return listener


def _serve(host: Host, listener: socket.socket, *, asyncio_loop: bool, switchable: bool) -> int:
    import uvicorn

    config = uvicorn.Config(
        host,
        http="httptools",
        loop="asyncio" if asyncio_loop else "uvloop",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        backlog=_BACKLOG,
        ws="none",
    )

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if not self.started:  # nothing is under way, and the adapter's start may never end
                signal.signal(sig, signal.SIG_DFL)
                signal.raise_signal(sig)
            super().handle_exit(sig, frame)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if switchable:
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGUSR1, host.watch, True)
                loop.add_signal_handler(signal.SIGUSR2, host.watch, False)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            # All is answered and closed. A framework's task that swallows its cancellation must not keep us.
            last = threading.Timer(_EXIT_S, os._exit, (0,))
            last.daemon = True
            last.start()

    server = Server(config)

    # uvicorn drains and then raises the signal again for whoever handled it before: a drained host ends with 0.
    def drain(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)
    server.run(sockets=[listener])
    return 0 if server.started else 1


def _admission(text: str) -> int | None:
    if text == "off":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"the admission limit is {text!r}; it must be at least 1, or `off`")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agentdyno.host",
        description="Serve one adapter behind POST /agent/invoke.",
        epilog="Example: python -m agentdyno.host --adapter adapters/bare --variant bare "
        "--llm http://127.0.0.1:8001/v1 --port 8000",
    )
    parser.add_argument("--adapter", type=Path, required=True, help="the adapter's folder")
    parser.add_argument("--variant", required=True, help="a name that its adapter.toml declares")
    parser.add_argument("--llm", required=True, help="the backend's base URL, ending in /v1")
    parser.add_argument("--model", default="agentdyno-mock")
    parser.add_argument("--llm-timeout-s", type=float, default=60.0)
    parser.add_argument("--workload", default="{}", help="JSON of the workload (scenario, seed, timing)")
    parser.add_argument("--admission", type=_admission, default=64, help="requests in flight, or `off` (default 64)")
    parser.add_argument("--spans", metavar="HOST:PORT", help="the recorder; without it nothing is traced")
    parser.add_argument(
        "--switchable", action="store_true", help="SIGUSR1 switches probes and metrics of work on, SIGUSR2 off"
    )
    parser.add_argument(
        "--heap-profile", type=Path, metavar="FOLDER", help="sample the heap, with the profiler that is in this folder"
    )
    parser.add_argument(
        "--native-spans", metavar="URL", help="the OTLP endpoint for spans of the framework's own instrumentation"
    )
    parser.add_argument("--native-path", type=Path, metavar="FOLDER", help="where that instrumentation is")
    parser.add_argument("--run-id", default="", help="the run that heap profiles are labelled with")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--fd", type=int, help="an inherited listening socket, instead of host and port")
    parser.add_argument(
        "--offline", action="store_true", help="refuse every outbound connection but to loopback, and name it"
    )
    return parser
