"""The heap profiler in a process of its own: what it says against tracemalloc, and what it must not say."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import ROOT, profiler_environment
from tests.host.test_process import ENVIRONMENT, Running, command, folder
from tests.pprof_reader import Read

SHAPES = Path(__file__).with_name("heap_shapes.py")
LARGE_BYTES = 20_000_000


@pytest.fixture(scope="module")
def site_packages() -> Path:
    environment = profiler_environment()
    ensure(environment)
    return environment.site_packages


def run(argument: str, temporary: Path) -> Any:
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, str(SHAPES), argument], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    found: dict[str, int] = run("tracemalloc", tmp_path_factory.mktemp("truth"))
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def profiles(site_packages: Path, scratch: Path) -> list[Read]:
    return [Read(base64.b64decode(text)) for text in run(str(site_packages), scratch)]


@pytest.mark.parametrize("shape", ["small_bytes", "large_buffers", "texts", "dictionaries", "nodes"])
def test_sampled_sizes_are_within_ten_percent_of_tracemalloc(
    shape: str, truth: dict[str, int], profiles: list[Read]
) -> None:
    assert truth[shape] > LARGE_BYTES
    assert profiles[0].by_function("inuse_space")[shape] == pytest.approx(truth[shape], rel=0.10)


def test_what_was_freed_is_in_use_no_more_but_stays_allocated(profiles: list[Read], truth: dict[str, int]) -> None:
    first, second = profiles
    assert second.by_function("inuse_space")["large_buffers"] == 0
    assert second.by_function("inuse_space")["texts"] == first.by_function("inuse_space")["texts"]
    for name in ("alloc_space", "alloc_objects"):
        before, after = first.by_function(name), second.by_function(name)
        assert all(after[function] >= before[function] for function in before)
    freed = first.by_function("alloc_space")["by_profiler"] - first.by_function("inuse_space")["by_profiler"]
    assert freed > 0.8 * 60_000 * 1033


def test_the_profile_names_no_place_on_this_machine_and_not_the_profiler(profiles: list[Read]) -> None:
    for profile in profiles:
        assert not [text for text in profile.texts if str(ROOT) in text or text.startswith("/")]
        files = {line[1] for lines in profile.locations.values() for line in lines}
        assert "tests/heap_shapes.py" in files
        assert not [file for file in files if file.startswith("profiler/") or file == "agentdyno/host/heap.py"]
        assert {label["run"] for label in profile.labels()} == {"shapes"}
        assert profile.message.period == 32 * 1024


def test_the_scratch_folder_is_gone_at_the_end(profiles: list[Read], scratch: Path) -> None:
    assert profiles
    assert list(scratch.iterdir()) == []


@pytest.fixture(scope="module")
def live(site_packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A profiling host whose adapter has taken 30 MB for itself."""
    adapter = folder(tmp_path_factory.mktemp("adapter"), start="self.kept = [bytes(1_000_000) for _ in range(30)]")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = ("--fd", str(listener.fileno()), "--heap-profile", str(site_packages), "--run-id", "live")
        process = subprocess.Popen(
            command(adapter, *options),
            env={**ENVIRONMENT, "TMPDIR": str(tmp_path_factory.mktemp("host"))},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pass_fds=[listener.fileno()],
        )  # fmt: skip
        port = listener.getsockname()[1]
    running = Running(process, port)
    assert running.ask("/healthz")[0] == 200
    yield running
    assert running.end()[0] == 0


def test_a_profiling_host_serves_its_heap_live(live: Running) -> None:
    first, second = (Read(live.ask("/debug/pprof/heap")[1]) for _ in range(2))
    assert first.by_function("inuse_space")["Made.start"] == pytest.approx(30_000_000, rel=0.10)
    assert second.by_function("inuse_space")["Made.start"] == first.by_function("inuse_space")["Made.start"]
    assert second.message.time_nanos > first.message.time_nanos
    assert {(label["framework"], label["run"]) for label in first.labels()} == {("mine", "live")}


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no go here (apt-get install golang-go)")
def test_gos_pprof_reads_it_live(live: Running, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{live.port}/debug/pprof/heap"
    done = subprocess.run(
        ["go", "tool", "pprof", "-top", "-unit=MB", url],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PPROF_TMPDIR": str(tmp_path)},
    )  # fmt: skip
    rows = {line.split(maxsplit=5)[5]: line.split()[3] for line in done.stdout.splitlines() if line.count("% ") == 3}
    assert "Type: inuse_space" in done.stdout
    assert float(rows["Made.start"].removesuffix("MB")) == pytest.approx(30_000_000 / 2**20, rel=0.10)
