"""A control group from a made-up /proc and /sys, and a real one: limits above count, and what cannot be read is a gap
and no zero.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdyno.record.cgroup import Cgroup, read_cgroup, read_container_cgroup


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


@pytest.fixture
def kernel(tmp_path: Path) -> tuple[Path, Path]:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "7", cgroup="0::/pod/container\n")
    write(root, cgroup_controllers="cpu memory")
    write(root / "pod", cgroup_controllers="cpu memory", memory_max="800000000\n", cpu_max="150000 100000\n")
    write(
        root / "pod" / "container",
        cgroup_controllers="cpu memory",
        cpu_stat="usage_usec 5\nnr_periods 100\nnr_throttled 20\nthrottled_usec 1500000\n",
        cpu_max="200000 100000\n",
        memory_current="123456789\n",
        memory_max="max\n",
        memory_events="low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\n",
    )
    return proc, root


def test_limits_and_throttling(kernel: tuple[Path, Path]) -> None:
    assert read_cgroup(7, None, *kernel) == Cgroup(
        cpu_limit_cores=1.5,
        periods=100,
        throttled_periods=20,
        throttled_s=1.5,
        memory_bytes=123_456_789,
        memory_limit_bytes=800_000_000,
        memory_max_events=3,
        oom_kills=0,
    )


def test_counts_since_an_earlier_reading(kernel: tuple[Path, Path]) -> None:
    before = read_cgroup(7, None, *kernel)
    stat = "usage_usec 9\nnr_periods 150\nnr_throttled 21\nthrottled_usec 1750000\n"
    (kernel[1] / "pod/container/cpu.stat").write_text(stat)
    found = read_cgroup(7, before, *kernel)
    assert found is not None
    assert (found.periods, found.throttled_periods, found.throttled_s) == (50, 1, 0.25)
    assert (found.memory_bytes, found.memory_max_events) == (123_456_789, 0)


def test_what_is_not_there_is_a_gap(kernel: tuple[Path, Path]) -> None:
    container = kernel[1] / "pod" / "container"
    before = read_cgroup(7, None, *kernel)
    for name in ("cpu.stat", "memory.events", "memory.current"):
        (container / name).unlink()
    (container.parent / "memory.max").unlink()
    found = read_cgroup(7, before, *kernel)
    assert found == Cgroup(cpu_limit_cores=1.5)


def test_where_there_is_no_group_of_version_2_there_is_nothing(kernel: tuple[Path, Path]) -> None:
    proc, root = kernel
    assert read_cgroup(8, None, proc, root) is None  # the process is gone
    (proc / "7" / "cgroup").write_text("4:memory:/pod/container\n")
    assert read_cgroup(7, None, proc, root) is None
    (proc / "7" / "cgroup").write_text("4:memory:/x\n0::/elsewhere\n")
    assert read_cgroup(7, None, proc, root) is None


def test_a_process_of_another_container_is_read_through_its_own_file_system(tmp_path: Path) -> None:
    write(tmp_path / "7", cgroup="0::/../elsewhere\n")
    write(
        tmp_path / "7" / "root" / "sys" / "fs" / "cgroup",
        cgroup_controllers="cpu memory",
        cpu_max="250000 100000\n",
        cpu_stat="nr_periods 10\nnr_throttled 4\nthrottled_usec 500000\n",
        memory_max="4294967296\n",
        memory_events="oom_kill 1\n",
    )
    found = read_container_cgroup(7, proc=tmp_path)
    assert found is not None
    assert (found.cpu_limit_cores, found.throttled_periods, found.throttled_s) == (2.5, 4, 0.5)
    assert (found.memory_limit_bytes, found.memory_bytes, found.oom_kills) == (4_294_967_296, None, 1)


def test_a_process_whose_file_system_cannot_be_seen_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    assert read_container_cgroup(7, proc=tmp_path) is None
    assert read_container_cgroup(8, proc=tmp_path) is None


# for real


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses all the CPU it gets once a line comes to it."""
    code = "import sys; sys.stdin.readline()\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group made for one test, below the root of version 2."""
    mounts = (
        [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        if Path("/proc/mounts").exists()
        else []
    )
    root = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if root is None:
        pytest.skip("no control groups of version 2 are mounted here")
    folder = root / f"agentdyno-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    yield folder
    folder.rmdir()


def test_a_real_group_that_limits_nothing_has_gaps_and_no_zeros(group: Path, busy: subprocess.Popen[bytes]) -> None:
    (group / "cgroup.procs").write_text(str(busy.pid))
    if (group / "cpu.max").exists():
        pytest.skip("the group has a CPU controller, which counts: see the other test")
    assert read_cgroup(busy.pid, root=group.parent) == Cgroup()


def test_a_real_group_throttles(group: Path, busy: subprocess.Popen[bytes]) -> None:
    if not ((group / "cpu.max").exists() and (group / "memory.max").exists()):
        pytest.skip("groups of version 2 have no CPU and memory controllers here: those of version 1 have them")
    (group / "cpu.max").write_text("20000 100000")
    (group / "memory.max").write_text("500000000")
    (group / "cgroup.procs").write_text(str(busy.pid))
    before = read_cgroup(busy.pid, root=group.parent)
    assert busy.stdin is not None
    busy.stdin.write(b"go\n")
    busy.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        busy.wait(1.5)
    found = read_cgroup(busy.pid, before, root=group.parent)
    assert found is not None
    assert found.cpu_limit_cores == 0.2
    assert found.memory_limit_bytes == pytest.approx(500_000_000, abs=4096)
    assert found.memory_bytes is not None
    assert found.memory_bytes > 0
    assert found.throttled_periods is not None
    assert found.throttled_periods > 0
    assert found.throttled_s is not None
    assert found.throttled_s > 0
    assert found.oom_kills == 0
