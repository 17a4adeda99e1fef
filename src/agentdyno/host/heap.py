"""The heap profiler of a profiling host: ddtrace's memalloc, asked for a snapshot and re-encoded as profile.proto.

Only `python -m agentdyno.host --heap-profile FOLDER` imports this module; a timed process never does. The profiler's
own distributions are in FOLDER, which goes to the end of the import path, so that the framework's come first.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agentdyno.contract.pprof import HEAP_TYPES, Frame, Profile, Sample, Stack, decode, merged, write_gzip

# One in 32 KiB, so that 20 MB have 640 samples and a standard error of 4 %: one in 512 KiB has 40, and 16 %.
SAMPLE_BYTES = 32 * 1024
MAX_FRAMES = 128
_ALLOCATED = (("alloc-samples", "count"), ("alloc-space", "bytes"))
_IN_USE = (("heap-live-samples", "count"), ("heap-space", "bytes"))
_OWN_FOLDER = "profiler/"
_OWN_FILES = frozenset({"agentdyno/host/heap.py", "agentdyno/contract/pprof.py"})
# What else the distribution would do in a process: trace it, report on it, take orders from outside.
_NOTHING_ELSE = {
    "DD_TRACE_ENABLED": "false",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "DD_CRASHTRACKING_ENABLED": "false",
    "DD_PROFILING_ENABLED": "false",
    "DD_TRACE_STARTUP_LOGS": "false",
}


class HeapProfiler:
    """Samples allocations of Python objects and buffers, one in 32 KiB, from its making on. One per process.

    site_packages: where the profiler's distributions are. roots: folders of ours by the name that stands for them in
    the profile. labels: of every sample. Raises ImportError when the distributions are not there.
    """

    def __init__(self, site_packages: Path, labels: Mapping[str, str], roots: Mapping[str, Path]) -> None:
        sys.path.append(str(site_packages.absolute()))
        os.environ.update(_NOTHING_ELSE)
        finders = list(sys.meta_path)
        # By name: only a profiling host has them, and no environment of ours holds them for mypy to see.
        self._export: Any = importlib.import_module("ddtrace.internal.datadog.profiling.ddup")
        self._memalloc: Any = importlib.import_module("ddtrace.profiling.collector._memalloc")
        self._zstd: Any = importlib.import_module("zstandard")
        sys.meta_path[:] = finders  # the profiler's own hook would stand in the stack of every later import
        if not self._export.is_available:
            raise ImportError(f"ddtrace's exporter cannot be loaded: {self._export.failure_msg}")
        seen = "" if sys.version_info >= (3, 12) else " Before Python 3.12 it does not see the memory of lists' items."
        self._origin = (
            f"ddtrace {version('ddtrace')} memalloc, one sample in {SAMPLE_BYTES // 1024} KiB, scaled up.{seen}"
        )
        self._labels = dict(labels)
        self._shorten = _Shortener({**_library_roots(), **roots, "profiler": site_packages.absolute()})
        self._scratch = tempfile.TemporaryDirectory(prefix="agentdyno-heap-")
        self._lock = threading.Lock()
        self._allocated: dict[Stack, list[int]] = {}
        self._export.config(max_nframes=MAX_FRAMES, output_filename=f"{self._scratch.name}/heap")
        self._export.start()
        self._memalloc.start(MAX_FRAMES, SAMPLE_BYTES, True)
        self._begin_ns = time.monotonic_ns()

    def snapshot(self) -> bytes:
        """What is in use now and what was allocated since the start, as gzip profile.proto. Callable from any thread.

        Raises OSError when the profiler left nothing.
        """
        with self._lock:
            return write_gzip(self._profile(self._exported()))

    def close(self) -> None:
        """End the sampling and remove the scratch folder."""
        with self._lock:
            self._memalloc.stop()
            self._scratch.cleanup()

    def _exported(self) -> Profile:
        """Everything the profiler has, as it writes it: zstd, its own types, allocations since its last export."""
        self._memalloc.heap()
        self._export.upload()
        files = sorted(Path(self._scratch.name).glob("*.pprof"), key=lambda file: file.stat().st_mtime_ns)
        if not files:
            raise FileNotFoundError("The heap profiler wrote no profile.")
        content = files[-1].read_bytes()
        for file in Path(self._scratch.name).iterdir():
            file.unlink()
        with self._zstd.ZstdDecompressor().stream_reader(content) as reader:
            return decode(reader.readall())

    def _profile(self, exported: Profile) -> Profile:
        allocated = [exported.types.index(type_) for type_ in _ALLOCATED]
        in_use = [exported.types.index(type_) for type_ in _IN_USE]
        live: dict[Stack, list[int]] = {}
        own_bytes = 0
        for stack, values in merged(exported.samples).items():
            short = self._shorten.stack(stack)
            now = [values[at] for at in in_use]
            if any(frame.file in _OWN_FILES or frame.file.startswith(_OWN_FOLDER) for frame in short):
                own_bytes += now[1]
                continue
            _add(self._allocated, short, [values[at] for at in allocated])
            _add(live, short, now)
        now_ns = time.time_ns()
        labels = {**self._labels, "time": datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat(timespec="seconds")}
        nothing = [0, 0]
        return Profile(
            types=HEAP_TYPES,
            samples=tuple(
                Sample(stack, (*values, *live.get(stack, nothing)), labels) for stack, values in self._allocated.items()
            ),
            time_ns=now_ns,
            duration_ns=time.monotonic_ns() - self._begin_ns,
            period=SAMPLE_BYTES,
            program=f"python{sys.version_info.major}.{sys.version_info.minor}",
            comments=(self._origin, f"Left out: what the profiler itself holds, {own_bytes / 1e6:.1f} MB."),
        )


def _add(to: dict[Stack, list[int]], stack: Stack, values: list[int]) -> None:
    known = to.get(stack)
    to[stack] = values if known is None else [was + more for was, more in zip(known, values, strict=True)]


def _library_roots() -> dict[str, Path]:
    paths = sysconfig.get_paths()
    return {"site-packages": Path(paths["purelib"]), "python": Path(paths["stdlib"])}


class _Shortener:
    """Names files by what they belong to, so that a profile says nothing of the machine it was made on.

    Functions lose their <>, which pprof's tools take for template arguments and cut; a module's body gets its name.
    """

    def __init__(self, roots: Mapping[str, Path]) -> None:
        # The longest first: site-packages may be within the standard library's folder.
        pairs = [(f"{path}/", f"{name}/") for name, path in roots.items()]
        self._roots = sorted(pairs, key=lambda pair: -len(pair[0]))
        self._frames: dict[Frame, Frame] = {}

    def stack(self, stack: Stack) -> Stack:
        return tuple(self.frame(frame) for frame in stack)

    def frame(self, frame: Frame) -> Frame:
        short = self._frames.get(frame)
        if short is None:
            file = self.file(frame.file)
            function = frame.function.replace("<", "").replace(">", "")
            if frame.function == "<module>":
                function = f"module {file.partition('/')[2] or file}"
            short = self._frames[frame] = Frame(function, file, frame.line)
        return short

    def file(self, file: str) -> str:
        for path, name in self._roots:
            if file.startswith(path):
                return name + file[len(path) :]
        return file if file.startswith("<") else Path(file).name
