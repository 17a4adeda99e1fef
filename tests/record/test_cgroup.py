"""A control group from a made-up /proc and /sys, and a real one: limits above count, and what cannot be read is a gap
and no zero.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agentdyno.record.cgroup import Cgroup, grown_through, read_cgroup, read_container_cgroup

HELD_BYTES = 8 << 20


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
        memory_peak="150000000\n",
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
        memory_peak_bytes=150_000_000,
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


def test_counts_through_a_container_that_was_started_anew() -> None:
    before = Cgroup(periods=100, throttled_periods=20, throttled_s=2.0, oom_kills=0, memory_peak_bytes=900)
    ends = msgspec.structs.replace(before, periods=150, throttled_periods=21, throttled_s=2.5, oom_kills=1)
    anew = Cgroup(periods=7, throttled_periods=3, throttled_s=0.5, oom_kills=0, memory_peak_bytes=400)
    assert grown_through([before, ends, anew]) == Cgroup(
        periods=57, throttled_periods=4, throttled_s=1.0, oom_kills=1, memory_peak_bytes=900
    )
    assert grown_through([before]) == msgspec.structs.replace(
        before, periods=0, throttled_periods=0, throttled_s=0.0, memory_peak_bytes=900
    )
    assert grown_through([before, Cgroup()]) == Cgroup(memory_peak_bytes=900)


def test_what_is_not_there_is_a_gap(kernel: tuple[Path, Path]) -> None:
    container = kernel[1] / "pod" / "container"
    before = read_cgroup(7, None, *kernel)
    for name in ("cpu.stat", "memory.events", "memory.current", "memory.peak"):
        (container / name).unlink()
    (container.parent / "memory.max").unlink()
    found = read_cgroup(7, before, *kernel)
    assert found == Cgroup(cpu_limit_cores=1.5)


def test_where_there_is_no_group_there_is_nothing(kernel: tuple[Path, Path]) -> None:
    proc, root = kernel
    assert read_cgroup(8, None, proc, root) is None  # the process is gone
    (proc / "7" / "cgroup").write_text("4:memory:/pod/container\n")  # and no such controller is mounted
    assert read_cgroup(7, None, proc, root) is None
    (proc / "7" / "cgroup").write_text("4:memory:/x\n0::/elsewhere\n")
    assert read_cgroup(7, None, proc, root) is None


@pytest.fixture
def kernel_v1(tmp_path: Path) -> tuple[Path, Path]:
    """Two controllers mounted together, under both their names and one; above the container a pod with limits; and
    a version 2 that has no controllers.
    """
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "7", cgroup="9:name=systemd:/x\n4:memory:/pod/container\n2:cpu,cpuacct:/pod/container\n0::/pod\n")
    write(root / "unified", cgroup_controllers="")
    cpu, memory = root / "cpu,cpuacct", root / "memory"
    for folder, quota in ((cpu, -1), (cpu / "pod", 150_000), (cpu / "pod" / "container", 200_000)):
        folder.mkdir(parents=True)
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    stat = "nr_periods 100\nnr_throttled 20\nthrottled_time 1500000000\nnr_bursts 0\n"
    (cpu / "pod" / "container" / "cpu.stat").write_text(stat)
    for folder, limit in (
        (memory, 2**63 - 4096),
        (memory / "pod", 800_000_000),
        (memory / "pod" / "container", 2**63 - 4096),
    ):
        folder.mkdir(parents=True)
        (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    files = {"usage_in_bytes": "123456789", "max_usage_in_bytes": "150000000", "failcnt": "1"}
    files["memsw.failcnt"] = "2"
    files["oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 1"
    for name, text in files.items():
        (memory / "pod" / "container" / f"memory.{name}").write_text(f"{text}\n")
    return proc, root


V1 = Cgroup(
    cpu_limit_cores=1.5,
    periods=100,
    throttled_periods=20,
    throttled_s=1.5,
    memory_bytes=123_456_789,
    memory_peak_bytes=150_000_000,
    memory_limit_bytes=800_000_000,
    memory_max_events=3,
    oom_kills=1,
)


def test_version_1_says_the_same_by_other_names(kernel_v1: tuple[Path, Path]) -> None:
    assert read_cgroup(7, None, *kernel_v1) == V1
    found = read_cgroup(7, V1, *kernel_v1)
    assert found is not None
    assert (found.periods, found.throttled_s, found.oom_kills) == (0, 0.0, 0)


def test_version_1_without_swap_may_not_count_what_met_its_limit(kernel_v1: tuple[Path, Path]) -> None:
    memory = kernel_v1[1] / "memory" / "pod" / "container"
    for name in ("limit", "memsw.limit"):
        (memory / f"memory.{name}_in_bytes").write_text("400000000\n")
    counted = read_cgroup(7, None, *kernel_v1)
    assert counted == msgspec.structs.replace(V1, memory_limit_bytes=400_000_000)
    (memory / "memory.memsw.failcnt").write_text("0\n")
    assert read_cgroup(7, None, *kernel_v1) == msgspec.structs.replace(counted, memory_max_events=None)


def test_version_1_without_limits_or_with_one_controller_has_gaps(kernel_v1: tuple[Path, Path]) -> None:
    proc, root = kernel_v1
    (proc / "7" / "cgroup").write_text("4:memory:/\n2:cpu,cpuacct:/\n")
    assert read_cgroup(7, None, proc, root) == Cgroup()
    (proc / "7" / "cgroup").write_text("2:cpu,cpuacct:/pod/container\n")
    assert read_cgroup(7, None, proc, root) == Cgroup(
        cpu_limit_cores=1.5, periods=100, throttled_periods=20, throttled_s=1.5
    )


def test_version_1_from_within_a_container_is_the_mounts_root(kernel_v1: tuple[Path, Path]) -> None:
    """Its paths are those of the machine, of which only its own group is mounted."""
    proc, root = kernel_v1
    (proc / "7" / "cgroup").write_text("4:memory:/elsewhere/pod\n2:cpu,cpuacct:/elsewhere/pod\n")
    (root / "memory" / "memory.limit_in_bytes").write_text("4294967296\n")
    (root / "cpu,cpuacct" / "cpu.cfs_quota_us").write_text("250000\n")
    assert read_cgroup(7, None, proc, root) == Cgroup(cpu_limit_cores=2.5, memory_limit_bytes=4_294_967_296)


def test_version_1_of_a_process_of_another_container(kernel_v1: tuple[Path, Path], tmp_path: Path) -> None:
    mounted = tmp_path / "7" / "root" / "sys" / "fs" / "cgroup"
    shutil.copytree(kernel_v1[1] / "cpu,cpuacct" / "pod" / "container", mounted / "cpu,cpuacct")
    (mounted / "cpu").symlink_to("cpu,cpuacct")
    shutil.copytree(kernel_v1[1] / "memory" / "pod" / "container", mounted / "memory")
    found = read_container_cgroup(7, proc=tmp_path)
    assert found == msgspec.structs.replace(V1, cpu_limit_cores=2.0, memory_limit_bytes=None)


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
    """A process that once a line comes to it takes HELD_BYTES, then all the CPU it gets. What it had before it came
    into a group is not counted in that.
    """
    code = f"import sys; sys.stdin.readline(); held = b'x' * {HELD_BYTES}\nwhile True: pass"
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
    assert found.memory_bytes > HELD_BYTES
    assert found.throttled_periods is not None
    assert found.throttled_periods > 0
    assert found.throttled_s is not None
    assert found.throttled_s > 0
    assert found.oom_kills == 0


@pytest.fixture
def group_v1() -> Iterator[list[Path]]:
    """One of version 1, in each of two trees."""
    folders = [Path("/sys/fs/cgroup") / name / f"agentdyno-test-{os.getpid()}" for name in ("cpu", "memory")]
    if not all((folder.parent / "cgroup.procs").exists() for folder in folders):
        pytest.skip("the controllers of CPU and memory are not in version 1 here: the other tests are about version 2")
    made: list[Path] = []
    try:
        for folder in folders:
            folder.mkdir()
            made.append(folder)
    except OSError as error:
        for folder in made:
            folder.rmdir()
        pytest.skip(f"no control group can be made here: {error.strerror}")
    yield folders
    for folder in folders:
        folder.rmdir()


def join(pid: int, groups: list[Path]) -> None:
    for group in groups:
        (group / "cgroup.procs").write_text(str(pid))


def test_a_real_group_of_version_1_throttles(group_v1: list[Path], busy: subprocess.Popen[bytes]) -> None:
    (group_v1[0] / "cpu.cfs_quota_us").write_text("20000")
    (group_v1[1] / "memory.limit_in_bytes").write_text("500M")
    join(busy.pid, group_v1)
    before = read_cgroup(busy.pid)
    assert busy.stdin is not None
    busy.stdin.write(b"go\n")
    busy.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        busy.wait(1.5)
    found = read_cgroup(busy.pid, before)
    assert found is not None
    assert (found.cpu_limit_cores, found.memory_limit_bytes, found.oom_kills) == (0.2, 500 << 20, 0)
    assert found.throttled_periods
    assert found.throttled_s
    assert found.memory_bytes is not None
    assert found.memory_bytes > HELD_BYTES


def test_a_real_group_of_version_1_counts_what_was_killed(group_v1: list[Path], busy: subprocess.Popen[bytes]) -> None:
    (group_v1[1] / "memory.limit_in_bytes").write_text("30M")
    swaps = len(Path("/proc/swaps").read_text().splitlines()) > 1
    if swaps:
        (group_v1[1] / "memory.memsw.limit_in_bytes").write_text("30M")
    join(busy.pid, group_v1)
    before = read_cgroup(busy.pid)
    code = "import sys; sys.stdin.readline(); held = b'x' * (60 << 20)"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE) as greedy:
        join(greedy.pid, group_v1)
        greedy.communicate(b"go\n", timeout=60)
    assert greedy.returncode == -signal.SIGKILL
    found = read_cgroup(busy.pid, before)
    assert found is not None
    assert found.oom_kills == 1
    assert swaps or found.memory_max_events
    assert found.memory_limit_bytes == 30 << 20
    assert found.memory_peak_bytes is not None
    assert found.memory_peak_bytes > 25 << 20
