"""The sampler, over processes made up here and over real ones."""

import errno
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agentdyno.record import sampler as module
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample, Sampler

ALWAYS = 30.0  # s, to give up after


class FakeReader:
    """Processes by pid, with their children; a pid that is not there is gone."""

    def __init__(self, *pids: int) -> None:
        self.readings = {pid: Reading(rss_bytes=pid) for pid in pids}
        self.tree: dict[int, list[int]] = {}
        self.detailed: list[tuple[int, bool]] = []
        self.asked_children: list[int] = []

    def read(self, pid: int, *, detailed: bool) -> Reading | None:
        self.detailed.append((pid, detailed))
        return self.readings.get(pid)

    def children(self, pid: int) -> list[int]:
        self.asked_children.append(pid)
        return self.tree.get(pid, [])


def read(file: Path) -> list[Sample]:
    decode = msgspec.json.Decoder(Sample).decode
    content = file.read_bytes() if file.exists() else b""
    assert content == b"" or content.endswith(b"\n")
    return [decode(line) for line in content.splitlines()]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ALWAYS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.01)


def test_roles_details_and_looks(tmp_path: Path) -> None:
    reader = FakeReader(1, 2, 3)
    sampler = Sampler(tmp_path / "r.jsonl", reader)
    for role, pid in (("host", 1), ("backend", 2), ("rig", 3)):
        sampler.watch(role, pid)
    for _ in range(9):
        sampler._look()
    assert [detailed for pid, detailed in reader.detailed if pid == 1] == [True, False, False, False] * 2 + [True]
    assert {detailed for pid, detailed in reader.detailed if pid != 1} == {False}
    # The rig is the parent of all the others: its children are no part of it.
    assert reader.asked_children == [1, 2, 1, 2]


def test_samples_of_one_look_share_its_number(tmp_path: Path) -> None:
    reader = FakeReader(1, 4, 5)
    reader.tree = {1: [4, 5]}
    sampler = Sampler(tmp_path / "r.jsonl", reader)
    sampler.watch("host", 1)
    looks = [sampler._look(), sampler._look()]
    assert [[(s.look, s.role, s.pid, s.reading.rss_bytes) for s in look] for look in looks] == [
        [(n, "host", pid, pid) for pid in (1, 4, 5)] for n in (0, 1)
    ]


def test_a_process_that_is_gone_is_a_gap_and_no_zero(tmp_path: Path) -> None:
    reader = FakeReader(1, 4)
    reader.tree = {1: [4]}
    sampler = Sampler(tmp_path / "r.jsonl", reader)
    sampler.watch("host", 1)
    sampler._look()
    del reader.readings[4]
    assert [sample.pid for sample in sampler._look()] == [1]


def test_the_last_of_each_is_kept_for_who_watches_also_of_one_that_has_ended(tmp_path: Path) -> None:
    reader = FakeReader(1, 2)
    sampler = Sampler(tmp_path / "r.jsonl", reader)
    sampler.watch("host", 1)
    sampler.watch("backend", 2)
    assert sampler.latest(detailed=False) == []
    for _ in range(3):
        sampler._look()
    del reader.readings[2]
    for _ in range(3):
        sampler._look()
    assert [(s.role, s.look) for s in sampler.latest(detailed=False)] == [("host", 5), ("backend", 2)]
    assert [(s.role, s.look) for s in sampler.latest(detailed=True)] == [("host", 4)]


def test_a_real_child_leaves_a_readable_file_with_gaps(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        sampler = Sampler(file)
        sampler.watch("host", child.pid)
        sampler.start()
        until(lambda: len(read(file)) >= 3)
        child.communicate()
    seen = len(read(file))
    look = sampler._looks
    until(lambda: sampler._looks >= look + 2)
    sampler.stop()
    found = read(file)
    assert len(found) <= seen + 1
    assert {(sample.role, sample.pid) for sample in found} == {("host", child.pid)}
    assert [s.monotonic_ns for s in found] == sorted(s.monotonic_ns for s in found)
    assert [s.look for s in found] == sorted({s.look for s in found})
    for sample in found:
        assert sample.reading.cpu_user_s is not None
        assert sample.reading.rss_bytes is None or sample.reading.rss_bytes > 0
    assert sampler.failure is None


def test_stop_takes_a_last_look_and_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 3600.0)
    file = tmp_path / "r.jsonl"
    sampler = Sampler(file, FakeReader(1))
    sampler.watch("host", 1)
    sampler.start()
    until(lambda: len(read(file)) == 1)
    before = time.monotonic_ns()
    sampler.stop()
    assert not sampler._thread.is_alive()
    assert len(read(file)) == 2
    assert read(file)[-1].monotonic_ns >= before
    sampler.stop()  # once more is no error


def test_stop_before_start_is_no_error(tmp_path: Path) -> None:
    Sampler(tmp_path / "r.jsonl", FakeReader()).stop()


def test_processes_may_come_later(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    sampler = Sampler(file, FakeReader(1, 2))
    sampler.watch("host", 1)
    sampler.start()
    until(lambda: read(file) != [])
    sampler.watch("generator", 2)
    until(lambda: "generator" in {sample.role for sample in read(file)})
    sampler.stop()


def test_looks_that_a_stall_has_swallowed_are_not_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time: the first look takes 10.5 intervals; the next ones are due at 11, 12 and 13."""
    monkeypatch.setattr(module, "INTERVAL_S", 1.0)
    now = 100.0
    waits: list[float] = []
    sampler = Sampler(tmp_path / "r.jsonl", FakeReader(1))

    class Clock:
        monotonic = staticmethod(lambda: now)
        monotonic_ns = staticmethod(lambda: int(now * 1e9))

    def wait(seconds: float) -> bool:
        nonlocal now
        waits.append(seconds)
        now += seconds
        if len(waits) == 1:
            now += 10.5
        return len(waits) == 4

    monkeypatch.setattr(module, "time", Clock)
    monkeypatch.setattr(sampler._stop, "wait", wait)
    sampler._run()
    assert waits == [0.0, 0.5, 1.0, 1.0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_kept_as_the_failure() -> None:
    sampler = Sampler(Path("/dev/full"), FakeReader(1))
    sampler.watch("host", 1)
    sampler.start()
    until(lambda: not sampler._thread.is_alive())
    assert sampler.failure is not None
    assert sampler.failure.errno == errno.ENOSPC
    sampler.stop()


def test_a_file_that_cannot_be_made_is_kept_as_the_failure(tmp_path: Path) -> None:
    sampler = Sampler(tmp_path / "nowhere" / "r.jsonl", FakeReader(1))
    sampler.start()
    until(lambda: not sampler._thread.is_alive())
    assert isinstance(sampler.failure, FileNotFoundError)
