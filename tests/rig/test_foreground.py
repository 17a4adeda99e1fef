"""What is started in the foreground ends whole, whatever asks it to."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.benches import wait_for

# As `agentdyno dashboards` runs it, which ignores nothing, however the tests were started.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from agentdyno.rig.foreground import until_ended
signal.signal(signal.SIGINT, {sigint})
signal.signal(signal.SIGTERM, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
print(until_ended([sys.executable, *sys.argv[1:]], Path.cwd(), os.environ))
"""
# What starts a compose program, as `podman compose` does: it hands nothing on, and may be gone before that is done.
WRAPPER = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, sys.argv[1], sys.argv[2]])
{wrapper}
sys.exit(child.wait())
"""
WAITS = "signal.signal(signal.SIGINT, lambda *_: None)"
GOES = "signal.signal(signal.SIGINT, signal.SIG_DFL)"
FAILS = """
import os, time
while not os.path.exists(sys.argv[2] + "/pid"):
    time.sleep(0.05)
sys.exit(7)
"""
# A compose program that heeds Ctrl-C alone, and takes its time to stop what it has started.
COMPOSE = """
import os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: None)
def stop(*_):
    with (folder / "interrupted").open("a") as noted:
        noted.write("x")
    time.sleep(0.6)
    (folder / "stopped").touch()
    os._exit(0)
signal.signal(signal.SIGINT, stop)
(folder / "pid.partial").write_text(str(os.getpid()))
(folder / "pid.partial").rename(folder / "pid")
while True:
    time.sleep(0.05)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(wrapper: str, sigint: str = "signal.default_int_handler") -> subprocess.Popen[str]:
        for name, text in (("wrapper.py", WRAPPER.format(wrapper=wrapper)), ("compose.py", COMPOSE)):
            (tmp_path / name).write_text(text)
        command = [sys.executable, "-c", PROGRAM.format(sigint=sigint)]
        command += [str(tmp_path / "wrapper.py"), str(tmp_path / "compose.py"), str(tmp_path)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
        wait_for((tmp_path / "pid").exists, "the compose program")
        return started[-1]

    yield begin
    if (tmp_path / "pid").exists():
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(int((tmp_path / "pid").read_text())), signal.SIGKILL)
    for process in started:
        process.kill()
        process.wait()


def ended(process: "subprocess.Popen[str]", folder: Path) -> str:
    """What it printed; when it has ended, what it had started has ended before."""
    assert process.wait(40) == 0
    assert (folder / "stopped").exists()
    return process.stdout.read() if process.stdout else ""


@pytest.mark.parametrize("wrapper", [WAITS, GOES], ids=["waits", "goes"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_it_has_started_ends_in_order(tmp_path: Path, start: Start, number: signal.Signals, wrapper: str) -> None:
    process = start(wrapper)
    process.send_signal(number)
    assert ended(process, tmp_path) == "None\n"


def test_what_is_sent_twice_by_others_is_handed_on_once(tmp_path: Path, start: Start) -> None:
    """A closed terminal, and then its shell; make that is ended, and then ends what it runs."""
    process = start(WAITS)
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
        process.send_signal(number)
        wait_for((tmp_path / "interrupted").exists, "the first signal")
        time.sleep(0.1)
    ended(process, tmp_path)
    assert (tmp_path / "interrupted").read_text() == "x"


def test_where_ctrl_c_is_ignored_another_signal_still_ends_it(tmp_path: Path, start: Start) -> None:
    """As in a script's background, whose programs inherit that."""
    process = start(WAITS, sigint="signal.SIG_IGN")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    assert not (tmp_path / "interrupted").exists()
    process.send_signal(signal.SIGTERM)
    ended(process, tmp_path)


def test_one_that_ends_by_itself_leaves_nothing_behind(tmp_path: Path, start: Start) -> None:
    process = start(FAILS)
    assert ended(process, tmp_path) == "7\n"
