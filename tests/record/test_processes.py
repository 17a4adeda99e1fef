"""Reading processes from a /proc made here, from psutil made to refuse, and for real."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType

import msgspec
import psutil
import pytest

from agentdyno.record import processes
from agentdyno.record.processes import ProcReader, PsutilReader, Reading, default_reader

TICKS = os.sysconf("SC_CLK_TCK")
STATUS = """Name:\t{name}
VmSize:\t  900000 kB
VmHWM:\t  120000 kB
VmRSS:\t  100000 kB
Threads:\t5
voluntary_ctxt_switches:\t70
nonvoluntary_ctxt_switches:\t8
"""
ROLLUP = """555500000000-7ffd00000000 ---p 00000000 00:00 0   [rollup]
Rss:              100000 kB
Pss:               80000 kB
Pss_Dirty:         70000 kB
Private_Clean:      1000 kB
Private_Dirty:     60000 kB
"""
FULL = Reading(
    rss_bytes=100_000 * 1024,
    rss_peak_bytes=120_000 * 1024,
    vsz_bytes=900_000 * 1024,
    pss_bytes=80_000 * 1024,
    uss_bytes=61_000 * 1024,
    private_dirty_bytes=60_000 * 1024,
    cpu_s=3.000_000_001,
    cpu_user_s=250 / TICKS,
    cpu_system_s=50 / TICKS,
    run_queue_wait_s=2.5,
    switches_voluntary=70,
    switches_involuntary=8,
    threads=5,
    open_files=3,
    faults_minor=4000,
    faults_major=2,
)


class FakeProc:
    """A /proc in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reader = ProcReader(root, cpu_clock=lambda pid: 3_000_000_001)

    def add(
        self,
        pid: int,
        name: bytes = b"python",
        state: str = "S",
        parent: int = 1,
        children: Mapping[int, str] = MappingProxyType({}),
    ) -> Path:
        """One process. children: by thread, the text of its list."""
        base = self.root / str(pid)
        (base / "fd").mkdir(parents=True)
        for number in range(3):
            (base / "fd" / str(number)).touch()
        numbers = f"{state} {parent} 1 1 0 -1 4194560 4000 11 2 12 250 50 13 14 20 0 5 0 99999 921600000 25000"
        (base / "stat").write_bytes(b"%d (%s) %s\n" % (pid, name, numbers.encode()))
        (base / "status").write_bytes(STATUS.encode().replace(b"{name}", name))
        (base / "smaps_rollup").write_text(ROLLUP)
        (base / "schedstat").write_text("3000000000 2500000000 42\n")
        for thread, text in children.items():
            (base / "task" / str(thread)).mkdir(parents=True)
            (base / "task" / str(thread) / "children").write_text(text)
        return base


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def without(*names: str) -> Reading:
    return Reading(**{f: None if f in names else getattr(FULL, f) for f in Reading.__struct_fields__})


DETAILS = ("pss_bytes", "uss_bytes", "private_dirty_bytes")


def test_every_field_of_a_process(proc: FakeProc) -> None:
    proc.add(10)
    assert proc.reader.read(10, detailed=True) == FULL


def test_details_only_when_asked_for(proc: FakeProc) -> None:
    proc.add(10)
    assert proc.reader.read(10, detailed=False) == without(*DETAILS)


@pytest.mark.parametrize(
    "name",
    [
        b"my (odd) agent",
        b"a) R 1 1 1 (b",
        b"two words",
        b"line\nbreak",
        b"caf\xe9",
        b"\xff\xfe",
        b"tab\tVmRSS: 1 kB",
        b"\x0bVmRSS:\t1 kB",
        b"",
    ],
)
def test_a_name_may_hold_anything(proc: FakeProc, name: bytes) -> None:
    base = proc.add(10, name)
    # The kernel escapes a newline in status, and in stat it does not.
    (base / "status").write_bytes(STATUS.encode().replace(b"{name}", name.replace(b"\n", b"\\n")))
    assert proc.reader.read(10, detailed=True) == FULL


def test_no_such_process(proc: FakeProc) -> None:
    assert proc.reader.read(10, detailed=True) is None


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_that_has_ended_is_gone(proc: FakeProc, state: str) -> None:
    proc.add(10, state=state)
    assert proc.reader.read(10, detailed=False) is None


def test_a_container_without_smaps_rollup(proc: FakeProc) -> None:
    (proc.add(10) / "smaps_rollup").unlink()
    assert proc.reader.read(10, detailed=True) == without(*DETAILS)


def test_a_kernel_without_schedstat(proc: FakeProc) -> None:
    (proc.add(10) / "schedstat").unlink()
    assert proc.reader.read(10, detailed=True) == without("run_queue_wait_s")


def test_a_kernel_thread_has_no_memory_of_its_own(proc: FakeProc) -> None:
    base = proc.add(10)
    lines = [line for line in STATUS.splitlines(keepends=True) if not line.startswith("Vm")]
    # A vertical tab is no end of a line here: what follows it is still the name.
    (base / "status").write_text("".join(lines).format(name="kworker\x0bVmRSS:\t1 kB"))
    (base / "smaps_rollup").write_text("")
    assert proc.reader.read(10, detailed=True) == without(*DETAILS, "rss_bytes", "rss_peak_bytes", "vsz_bytes")


def test_a_process_of_another_user(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    base = proc.add(10)
    refused = {base / "smaps_rollup", base / "fd"}
    read_text, listdir = Path.read_text, os.listdir

    def refuse(path: Path) -> None:
        if path in refused:
            raise PermissionError(13, "Permission denied", str(path))

    def read(self: Path, *args: str, **kwargs: str) -> str:
        refuse(self)
        return read_text(self, *args, **kwargs)

    def entries(path: Path) -> list[str]:
        refuse(path)
        return listdir(path)

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(os, "listdir", entries)
    assert proc.reader.read(10, detailed=True) == without(*DETAILS, "open_files")


def test_a_gap_has_its_reason(proc: FakeProc) -> None:
    base = proc.add(10)
    assert proc.reader.gaps(10) == []
    (base / "smaps_rollup").unlink()
    (base / "schedstat").unlink()
    assert proc.reader.gaps(10) == [
        f"PSS, USS and private dirty of process 10 cannot be read: {base}/smaps_rollup: No such file or directory.",
        f"The run-queue wait of process 10 cannot be read: {base}/schedstat: No such file or directory.",
    ]
    assert proc.reader.gaps(11) == []  # one that is gone is no gap


def test_a_process_that_vanishes_between_two_reads(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    base = proc.add(10)
    read_text = Path.read_text

    def read_and_vanish(self: Path, *args: str, **kwargs: str) -> str:
        text = read_text(self, *args, **kwargs)
        if self == base / "stat":
            for name in ("status", "smaps_rollup", "schedstat"):
                (base / name).unlink()
            (base / "fd").rename(base / "gone")
        return text

    monkeypatch.setattr(Path, "read_text", read_and_vanish)
    found = proc.reader.read(10, detailed=True)
    assert found == Reading(
        cpu_s=3.000_000_001,
        cpu_user_s=250 / TICKS,
        cpu_system_s=50 / TICKS,
        threads=5,
        faults_minor=4000,
        faults_major=2,
    )
    assert proc.reader.read(11, detailed=True) is None


def test_children_of_all_threads_and_theirs(proc: FakeProc) -> None:
    proc.add(10, children={10: "11 12 ", 15: "13 "})
    proc.add(11, children={11: "14 "})
    for pid in (12, 13, 14):
        proc.add(pid, children={pid: ""})
    assert sorted(proc.reader.children(10)) == [11, 12, 13, 14]
    assert proc.reader.children(12) == []


def test_children_where_the_kernel_keeps_no_lists(proc: FakeProc) -> None:
    proc.add(10)
    for pid, parent in ((11, 10), (12, 11), (13, 1), (14, 10)):
        proc.add(pid, name=b"a) S 10 (", parent=parent)
    (proc.root / "self").mkdir()
    assert sorted(proc.reader.children(10)) == [11, 12, 14]
    assert proc.reader.children(99) == []


# psutil, on platforms without /proc


def test_another_platform_reads_through_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert isinstance(default_reader(), PsutilReader)


def test_linux_reads_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert isinstance(default_reader(), ProcReader)


def refuse(monkeypatch: pytest.MonkeyPatch, method: str, error: type[psutil.Error]) -> None:
    """A psutil whose processes raise `error` when asked that."""

    def raise_it(*_: object, **__: object) -> None:
        raise error(1)

    members = {method: raise_it, "oneshot": lambda _: nullcontext()}
    monkeypatch.setattr(psutil, "Process", type("Process", (psutil.Process,), members))


def test_psutil_reads_this_process() -> None:
    found = PsutilReader().read(os.getpid(), detailed=True)
    assert found is not None
    for name in ("rss_bytes", "vsz_bytes", "uss_bytes", "threads", "switches_voluntary"):
        assert getattr(found, name) > 0, name
    assert found.cpu_user_s is not None
    # What psutil does not tell on every platform is not known.
    assert (found.rss_peak_bytes, found.pss_bytes, found.run_queue_wait_s, found.open_files) == (None,) * 4
    plain = PsutilReader().read(os.getpid(), detailed=False)
    assert plain is not None
    assert plain.uss_bytes is None


@pytest.mark.parametrize(
    ("method", "unknown"),
    [
        ("memory_info", {"rss_bytes", "vsz_bytes"}),
        ("cpu_times", {"cpu_user_s", "cpu_system_s"}),
        ("num_ctx_switches", {"switches_voluntary", "switches_involuntary"}),
        ("num_threads", {"threads"}),
        ("memory_full_info", {"uss_bytes"}),
        ("status", set()),
    ],
)
def test_what_psutil_is_denied_is_not_known_and_the_rest_is(
    monkeypatch: pytest.MonkeyPatch, method: str, unknown: set[str]
) -> None:
    known = {"rss_bytes", "vsz_bytes", "uss_bytes", "cpu_user_s", "cpu_system_s"}
    known |= {"switches_voluntary", "switches_involuntary", "threads"}
    refuse(monkeypatch, method, psutil.AccessDenied)
    found = PsutilReader().read(os.getpid(), detailed=True)
    assert found is not None
    assert {name for name in known if getattr(found, name) is None} == unknown


@pytest.mark.parametrize("error", [psutil.NoSuchProcess, psutil.ZombieProcess])
@pytest.mark.parametrize("method", ["memory_info", "num_threads", "memory_full_info"])
def test_psutil_finds_the_process_gone(
    monkeypatch: pytest.MonkeyPatch, error: type[psutil.NoSuchProcess], method: str
) -> None:
    refuse(monkeypatch, method, error)
    assert PsutilReader().read(os.getpid(), detailed=True) is None


def test_psutil_children_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "children", psutil.AccessDenied)
    assert PsutilReader().children(os.getpid()) == []


# for real


@pytest.fixture
def tree() -> Iterator[tuple[int, int]]:
    """A process with a child, by their pids; both wait."""
    child = "import sys; sys.stdin.read()"
    spawn = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}])"
    parent = f"{spawn}; print(p.pid, flush=True); p.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the real /proc")
def test_both_readers_agree_on_a_waiting_process(tree: tuple[int, int]) -> None:
    by_proc, by_psutil = (reader.read(tree[0], detailed=True) for reader in (ProcReader(), PsutilReader()))
    assert by_proc is not None
    assert by_psutil is not None
    pages = 64 * 4096  # the kernel sums a process's pages per thread, and status and statm may differ by a batch
    for name in ("rss_bytes", "uss_bytes", "vsz_bytes"):
        one, other = getattr(by_proc, name), getattr(by_psutil, name)
        assert one is not None
        assert abs(one - other) <= pages, name
    assert by_proc.threads == by_psutil.threads
    assert by_proc.rss_peak_bytes is not None
    assert by_proc.rss_bytes is not None
    assert by_proc.rss_peak_bytes >= by_proc.rss_bytes - pages


@pytest.mark.skipif(sys.platform != "linux", reason="reads the real /proc")
def test_every_way_to_the_children_finds_the_same(tree: tuple[int, int]) -> None:
    parent, child = tree
    assert ProcReader().children(parent) == PsutilReader().children(parent) == [child]
    assert ProcReader()._children_by_parent()(parent) == [child]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="becomes another user, which only root can")
def test_a_real_process_of_another_user() -> None:
    """Read by nobody, who may see its status and no more."""
    read_end, write_end = os.pipe()
    watched = os.getpid()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        found = ProcReader().read(watched, detailed=True), ProcReader().gaps(watched)
        os.write(write_end, msgspec.json.encode(found))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        reading, gaps = msgspec.json.decode(pipe.read(), type=tuple[Reading, list[str]])
    os.waitpid(child, 0)
    assert reading.rss_bytes is not None
    assert reading.rss_bytes > 1_000_000
    assert [getattr(reading, name) for name in (*DETAILS, "open_files")] == [None] * 4
    assert gaps == [
        f"PSS, USS and private dirty of process {watched} cannot be read: "
        f"/proc/{watched}/smaps_rollup: Permission denied.",
        f"The number of open files and sockets of process {watched} cannot be read: "
        f"/proc/{watched}/fd: Permission denied.",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the real /proc")
def test_a_real_zombie_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has taken note
        assert ProcReader().read(process.pid, detailed=True) is None
        assert PsutilReader().read(process.pid, detailed=True) is None
    assert processes.default_reader().read(process.pid, detailed=True) is None
