"""A real profile run: what it keeps, and that the timed process beside it carries nothing of the profiler."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentdyno.record.heap_folder import covering, read_index
from tests.e2e.benches import ADAPTERS, LONG, PROGRAM, SHORT, Benches, Ended, wait_for
from tests.pprof_reader import Read

pytestmark = pytest.mark.e2e
VARIABLES = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}


@pytest.fixture(scope="module")
def profiled(module_benches: Benches) -> Ended:
    options = (*SHORT, "--interval", "1s", "--plain", "1s")
    return module_benches.start("tells", *options, program=(str(PROGRAM), "profile"), **VARIABLES).end(300)


@pytest.fixture(scope="module")
def runs(profiled: Ended) -> tuple[Path, Path]:
    """The plain run's folder and the profiled one's."""
    assert profiled.code in (0, 3), profiled.err
    plain, run = sorted(profiled.folders, key=lambda folder: (folder / "heap").exists())
    assert not (plain / "heap").exists()
    assert profiled.out.splitlines()[-1] == str(run)
    return plain, run


def told(run: Path) -> dict[str, Any]:
    log = (run / "logs" / "host.log").read_text()
    found: dict[str, Any] = json.loads(re.findall(r"(?m)^told: (.*)$", log)[0])
    return found


def test_a_timed_process_neither_imports_nor_carries_the_profiler(runs: tuple[Path, Path]) -> None:
    plain, run = map(told, runs)
    only_profiled = set(run["modules"]) - set(plain["modules"])
    assert {"ddtrace", "zstandard"} <= only_profiled
    assert not {"ddtrace", "zstandard", "tracemalloc", "wrapt", "bytecode"} & set(plain["modules"])
    assert not [entry for entry in plain["path"] if "profiler" in entry]
    # At the end, so that the framework's own distributions come first; but for it the path is the same.
    assert Path(run["path"][-1]).parts[-5:-3] == (".venvs", "profiler")
    assert run["path"][:-1] == plain["path"]


def test_the_manifest_and_the_verdict_say_which_run_was_profiled(runs: tuple[Path, Path]) -> None:
    plain, run = (json.loads((folder / "manifest.json").read_text()) for folder in runs)
    assert plain["heap_profile"] is None
    assert run["heap_profile"]["sample_bytes"] == 32 * 1024
    assert "ddtrace" in run["heap_profile"]["environment"]["distributions"]
    notes = [{note["code"] for note in json.loads((f / "summary.json").read_text())["verdict"]["notes"]} for f in runs]
    assert ["profiled" in found for found in notes] == [False, True]
    assert plain["cores"] == run["cores"]  # else what profiling costs would be mostly what sharing a core costs


def test_snapshots_at_the_start_at_every_interval_and_at_the_end(profiled: Ended, runs: tuple[Path, Path]) -> None:
    _, run = runs
    index = read_index(run)
    assert index is not None
    assert index.gaps == []
    # The first, one a second (but for those that a stall has swallowed), and the last.
    assert 4 <= len(index.snapshots) <= 2 + int(index.snapshots[-1].seconds)
    for number, snapshot in enumerate(index.snapshots):
        assert re.fullmatch(rf"{number:03}-\d+\.pb\.gz", snapshot.file)
        assert (run / "heap" / snapshot.page).is_file()
    profiles = [Read.file(run / "heap" / snapshot.file) for snapshot in index.snapshots]
    times = [profile.message.time_nanos for profile in profiles]
    assert times == sorted(times)
    allocated = [profile.total("alloc_space") for profile in profiles]
    assert allocated == sorted(allocated)
    for profile in profiles:
        labels = profile.labels()
        assert {(label["framework"], label["run"]) for label in labels} == {("tells", run.name)}
        assert len({label["time"] for label in labels}) == 1
        assert "Bare.invoke" in profile.by_function("alloc_objects") or profile is profiles[0]
    assert profiled.left == {}
    assert profiled.temporary == []
    assert not (run / "raw").exists()


def test_the_table_agrees_with_the_profiles(profiled: Ended, runs: tuple[Path, Path]) -> None:
    _, run = runs
    index = read_index(run)
    assert index is not None
    first, last = (Read.file(run / "heap" / index.snapshots[at].file) for at in (0, -1))
    table = json.loads((run / "heap" / "top10.json").read_text())
    assert table["inuse_bytes"] == last.total("inuse_space")
    assert table["alloc_objects"] == last.total("alloc_objects")
    assert table["growth_bytes"] == last.total("inuse_space") - first.total("inuse_space")
    assert sum(table["kinds"].values()) == table["inuse_bytes"]
    for name, column in (
        ("by_inuse_bytes", "inuse_bytes"),
        ("by_alloc_objects", "alloc_objects"),
        ("by_growth_bytes", "growth_bytes"),
    ):
        values = [site[column] for site in table[name]]
        assert values == sorted(values, reverse=True)
        assert len(values) <= 10
    assert len(table["by_inuse_bytes"]) == 10
    assert "Most objects allocated" in profiled.out
    assert {package["package"] for package in table["packages"]} >= {"aiohttp", "agentdyno", "uvicorn"}


def test_the_slowdown_is_measured_and_printed(profiled: Ended, runs: tuple[Path, Path]) -> None:
    plain, run = runs
    slowdown = json.loads((run / "heap" / "slowdown.json").read_text())
    assert slowdown["plain_run"] == plain.name
    costs = [json.loads((folder / "summary.json").read_text())["cpu_ms_per_request"] for folder in runs]
    assert slowdown["cpu_ms_per_request"] == costs
    if slowdown["both_kept_up"]:
        assert slowdown["cpu_ratio"] == pytest.approx(costs[1] / costs[0])
        assert f"CPU per request {slowdown['cpu_ratio']:.2f} x" in profiled.out
    else:  # the machine under the test was too busy
        assert slowdown["cpu_ratio"] is None
        assert "did not keep up" in profiled.out


def test_a_moment_is_covered_by_the_snapshots_around_it(runs: tuple[Path, Path]) -> None:
    index = read_index(runs[1])
    assert index is not None
    first, second = index.snapshots[:2]
    found = covering(index, (first.monotonic_ns + second.monotonic_ns) // 2)
    assert found is not None
    assert (found.before, found.after, found.page) == (first, second, second.page)


def test_a_host_that_is_killed_leaves_the_snapshots_before_it(benches: Benches) -> None:
    bench = benches.start("bare", *LONG, "--interval", "1s", "--plain", "off", program=(str(PROGRAM), "profile"))
    wait_for(lambda: list(bench.out.glob("*/heap/001-*.pb.gz")), "the second snapshot")
    bench.stage("measure")
    os.kill(bench.child("host"), signal.SIGKILL)
    ended = bench.end()
    ended.check_clean()
    assert ended.code == 3
    assert "The host was killed by SIGKILL in the middle of the run." in ended.reasons["host_failed"]
    assert ended.manifest["status"] == "failed"
    index = read_index(ended.folder)
    assert index is not None
    assert len(index.snapshots) >= 2
    for snapshot in index.snapshots:
        assert Read.file(ended.folder / "heap" / snapshot.file).total("inuse_space") > 0
        assert (ended.folder / "heap" / snapshot.page).is_file()
    assert (ended.folder / "heap" / "top10.json").is_file()
    assert (ended.folder / "heap" / "difference.html").is_file()
    assert "Most objects allocated" in ended.out


def test_a_slow_trace_leads_to_the_flame_graph_of_its_time(runs: tuple[Path, Path]) -> None:
    command = [str(PROGRAM), "trace", str(runs[1]), "--slowest", "2"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    pages = [Path(line) for line in lines if line.endswith(".html")]
    assert len(pages) == 2
    assert all(page.is_file() and page.parent == runs[1] / "heap" for page in pages)


def test_what_cannot_be_profiled_is_a_sentence(benches: Benches) -> None:
    for words, said in (
        (("program",), "is a program of its own"),
        (("bare", "--interval", "0s"), "INTERVAL"),
        (("bare", "--plain", "soon"), "PLAIN"),
    ):
        variables = VARIABLES if words[0] == "program" else {}
        ended = benches.start(*words, program=(str(PROGRAM), "profile"), **variables).end()
        assert (ended.code, ended.folders) == (2, [])
        assert said in ended.err
