"""The guard of vLLM's processes, with a program in its place that behaves as vLLM was seen to."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentdyno.backends.vllm.guard import ASK_AGAIN_S, GRACE_S, KILL_S, TIDY_S
from agentdyno.rig.processes import Children
from tests.e2e.benches import processes_of, wait_for

SERVER = """
import os, signal, subprocess, sys, time
from multiprocessing import shared_memory
heard = 0
def hear(*_):
    global heard
    heard += 1
    if heard >= {ends_at}:
        os._exit(7)  # at once: Python's own end takes its time on a busy machine, and is deaf to the handler meanwhile
signal.signal(signal.SIGTERM, hear)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"
engine = subprocess.Popen([sys.executable, "-c", deaf])
memory = shared_memory.SharedMemory(create=True, size=64)
print(memory.name, flush=True)
while True:
    time.sleep(0.05)
"""


def command(ends_at: int) -> list[str]:
    """A server that ends at so many signals, with an engine that ends at none."""
    guard = [sys.executable, "-m", "agentdyno.backends.vllm.guard"]
    return [*guard, sys.executable, "-c", SERVER.format(ends_at=ends_at)]


def memory_of(log: Path) -> Path:
    return Path("/dev/shm") / wait_for(lambda: log.exists() and log.read_text().strip(), "the server's memory")


@pytest.mark.parametrize("ends_at", [1, 2, 99])
def test_it_ends_by_its_own_signal_or_a_second_one_or_is_killed_and_leaves_no_memory(
    tmp_path: Path, ends_at: int
) -> None:
    log = tmp_path / "backend.log"
    children = Children()
    child = children.start("backend", command(ends_at), log=log, orphaned=signal.SIGTERM)
    memory = memory_of(log)
    assert memory.exists()
    children.stop(GRACE_S)
    assert child.exit_code() == (7 if ends_at < 99 else -signal.SIGKILL)
    assert processes_of(tmp_path) == {}
    assert not memory.exists()


def test_it_does_so_when_the_rig_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "backend.log"
    rig = (
        "import signal, sys, time; from pathlib import Path; from agentdyno.rig.processes import Children; "
        "Children().start('backend', sys.argv[2:], log=Path(sys.argv[1]), orphaned=signal.SIGTERM); time.sleep(99)"
    )
    process = subprocess.Popen([sys.executable, "-c", rig, str(log), *command(1)])
    memory = memory_of(log)
    process.kill()
    process.wait()
    wait_for(lambda: not processes_of(tmp_path) and not memory.exists(), "the end of all of it")


def test_one_that_ends_by_itself_is_reported_as_it_ended(tmp_path: Path) -> None:
    guard = [sys.executable, "-m", "agentdyno.backends.vllm.guard", sys.executable, "-c"]
    for code, said in (("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)):
        assert subprocess.run([*guard, code], start_new_session=True, check=False).returncode == said


def test_its_times_leave_room_within_ten_seconds() -> None:
    assert ASK_AGAIN_S < KILL_S
    assert KILL_S + 2 * TIDY_S < 10
    assert KILL_S + 3 * TIDY_S < GRACE_S  # even where nothing dies as soon as it is killed
