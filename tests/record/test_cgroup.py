"""A control group from a made-up /proc and /sys: limits above count, what cannot be read is a gap and no zero."""

from pathlib import Path

import pytest

from agentdyno.record.cgroup import Cgroup, read_cgroup


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
