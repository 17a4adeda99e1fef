"""`agentdyno cold`: what it takes to get a framework going, from fresh processes with bytecode: time, memory, disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from secrets import token_bytes
from statistics import median

import msgspec

from agentdyno.analysis.metrics import rounded
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import ExitCode
from agentdyno.record.checksums import write_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.record.processes import Reader, default_reader
from agentdyno.rig import cores
from agentdyno.rig.backends import start_backend
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import Environment, adapter_environment, facts
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.processes import ChildFailed, Children
from agentdyno.rig.servers import WrongAnswer, first_answer, start_host

RESULT_FILE = "cold.json"
_MAX_RUNS = 100
_GRACE_S = 12.0
_IMPORT_TIMEOUT_S = 120.0
_POLL_S = 0.05
_MB = 1e6


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One cold start. import_ms: of the adapter and all it needs, in a process of its own. ready_ms, answered_ms: from
    the spawn of the host, the latter to the end of the first verified answer. RSS of the host's processes then, and
    of the importing process before and after. None: not measured.
    """

    import_ms: float | None
    ready_ms: float
    answered_ms: float
    rss_before_import_mb: float | None
    rss_imported_mb: float | None
    rss_ready_mb: float | None
    rss_answered_mb: float | None


class Spread(msgspec.Struct, frozen=True):
    """Median and range of one figure over the starts."""

    median: float
    min: float
    max: float


class Cold(msgspec.Struct, kw_only=True):
    """`cold.json`. disk_mb: all of the environment's files, bytecode included. failure: why there are fewer starts."""

    framework: str
    distributions: int
    disk_mb: float
    starts: list[Start] = []
    spreads: dict[str, Spread | None] = {}
    failure: str | None = None


def cold(words: Words, runs: str) -> ExitCode:
    """Start it so often and print what that took; the folder's path is the last line on stdout.

    Raises OptionError, AdapterError, SetupError or FolderError.
    """
    options = read(words)
    if not (runs.isascii() and runs.isdigit() and 1 <= int(runs) <= _MAX_RUNS):
        raise OptionError(f"RUNS={runs!r} is not a whole number from 1 to {_MAX_RUNS}.")
    adapter, variant = resolve(options.framework)
    environment = adapter_environment(adapter.path)
    ensure(environment)
    installed = facts(environment)
    result = Cold(framework=variant.name, distributions=installed.distribution_count, disk_mb=installed.disk_mb)
    with Interruption() as interruption:
        folder = RunFolder.create(options.out, variant.name)
        children = Children(interruption.held)
        try:
            try:
                interruption.listen()
                _start_all(options, adapter, variant, environment, folder, children, result, int(runs))
            finally:
                interruption.end()
        except Interrupted:
            result.failure = "Interrupted before the last start."
        except (ChildFailed, WrongAnswer, OSError) as error:
            result.failure = str(error)
        children.stop(_GRACE_S)
    result.spreads = spreads(result.starts)
    folder.write_json(RESULT_FILE, result)
    folder.drop_raw()
    write_checksums(folder.path)
    _print(result)
    sys.stdout.write(f"{folder.path}\n")
    if interruption.asked:
        return ExitCode.INTERRUPTED
    return ExitCode.VALID if result.failure is None else ExitCode.INVALID_RUN


def spreads(starts: list[Start]) -> dict[str, Spread | None]:
    """Median and range of each figure; None where it was measured in no start."""
    return {name: _spread(getattr(start, name) for start in starts) for name in Start.__struct_fields__}


def _start_all(
    options: BenchOptions,
    adapter: AdapterFolder,
    variant: Variant,
    environment: Environment,
    folder: RunFolder,
    children: Children,
    result: Cold,
    runs: int,
) -> None:
    plan = cores.plan()
    backend = start_backend(options, plan.rest, folder.log("backend"), children)
    reader = default_reader()
    for number in range(runs):
        imported = (
            {}
            if variant.entry is None
            else _import_once(environment, adapter, variant, folder.log(f"import-{number}"), plan.host, children)
        )
        key = token_bytes(KEY_BYTES)
        host = start_host(
            adapter,
            variant,
            options,
            backend_url=backend.url,
            key=key,
            cores=plan.host,
            log=folder.log(f"host-{number}"),
            children=children,
        )
        rss_ready = _tree_mb(reader, host.child.pid)
        answer_ms = first_answer(host, options, key)
        rss_answered = _tree_mb(reader, host.child.pid)
        host.child.stop(_GRACE_S)
        result.starts.append(
            Start(
                import_ms=imported.get("import_ms"),
                ready_ms=host.cold_start_ms,
                answered_ms=host.cold_start_ms + answer_ms,
                rss_before_import_mb=_mb(imported.get("rss_before_bytes")),
                rss_imported_mb=_mb(imported.get("rss_after_bytes")),
                rss_ready_mb=rss_ready,
                rss_answered_mb=rss_answered,
            )
        )
        say(f"{variant.name}: {number + 1}/{runs}  ready after {host.cold_start_ms:.0f} ms")


def _import_once(
    environment: Environment,
    adapter: AdapterFolder,
    variant: Variant,
    log: Path,
    on: frozenset[int] | None,
    children: Children,
) -> dict[str, float | None]:
    """On the core that the host will have, so that the two times can be compared."""
    command = [str(environment.python), "-m", "agentdyno.host.cold", "--adapter", str(adapter.path)]
    command += ["--variant", variant.name]
    child = children.start("import", command, log=log, cores=on, environment=variant.env)
    deadline = time.monotonic() + _IMPORT_TIMEOUT_S
    while child.exit_code() is None:
        if time.monotonic() > deadline:
            raise ChildFailed("import", f"The adapter was not imported within {_IMPORT_TIMEOUT_S:g} s.")
        time.sleep(_POLL_S)
    if child.exit_code() != 0:
        raise ChildFailed("import", f"The import of the adapter {child.describe_exit()}.{child.log_tail()}")
    # The last line is ours: an import may print.
    last = log.read_bytes().strip().rpartition(b"\n")[2]
    return msgspec.json.decode(last, type=dict[str, float | None])


def _tree_mb(reader: Reader, pid: int) -> float | None:
    """The RSS of a process and its descendants; None when it could not be read of one."""
    readings = [reader.read(each, detailed=False) for each in (pid, *reader.children(pid))]
    values = [reading.rss_bytes for reading in readings if reading is not None]
    known = [value for value in values if value is not None]
    return sum(known) / _MB if known and len(known) == len(values) else None


def _mb(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else size_bytes / _MB


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


_TITLES: dict[str, tuple[str, Callable[[float], str]]] = {
    "import_ms": ("Import", lambda value: f"{rounded(value)} ms"),
    "ready_ms": ("Spawn to ready", lambda value: f"{rounded(value)} ms"),
    "answered_ms": ("Spawn to first answer", lambda value: f"{rounded(value)} ms"),
    "rss_before_import_mb": ("RSS before the import", lambda value: f"{rounded(value)} MB"),
    "rss_imported_mb": ("RSS after the import", lambda value: f"{rounded(value)} MB"),
    "rss_ready_mb": ("RSS when ready", lambda value: f"{rounded(value)} MB"),
    "rss_answered_mb": ("RSS after the first answer", lambda value: f"{rounded(value)} MB"),
}


def _print(result: Cold) -> None:
    out = sys.stdout
    out.write(f"{result.framework}: {len(result.starts)} cold starts, median (least to most)\n")
    for name, (title, text) in _TITLES.items():
        spread = result.spreads.get(name)
        figures = "-" if spread is None else f"{text(spread.median)} ({text(spread.min)} to {text(spread.max)})"
        out.write(f"  {title:28}{figures}\n")
    out.write(f"  {'Installed':28}{result.distributions} distributions, {rounded(result.disk_mb)} MB\n")
    if result.failure is not None:
        out.write(f"{result.failure}\n")
