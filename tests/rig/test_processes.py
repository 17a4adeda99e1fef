"""Child processes: what they get, how they are waited for, and that nothing of them stays."""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.processes import Child, ChildFailed, Children, NoAnswer, answers, fetch, free_port, listening_socket

SERVE = """
import http.server, os, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ready")
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[1]))
server.serve_forever()
"""
FORGETFUL = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)


def wait_for(condition, timeout_s: float = 20.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def children():
    made = Children()
    yield made
    made.stop(0.0)


def start(children: Children, tmp_path: Path, code: str, **options) -> Child:
    return children.start("helper", [sys.executable, "-c", code], log=tmp_path / "helper.log", **options)


def test_a_child_gets_a_clean_environment(children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "PYTHONPATH", "PYTHONWARNINGS", "OPENAI_API_KEY", "AGENTDYNO_PROOF_KEY"):
        monkeypatch.setenv(name, "mine")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    child = start(children, tmp_path, code, environment={"OWN": "yes"}, folder=tmp_path)
    wait_for(lambda: child.exit_code() is not None)
    text = child.log.read_text(encoding="utf-8")
    assert "mine" not in text
    assert '"OWN": "yes"' in text
    assert '"NO_PROXY": "*"' in text


def test_ready_is_when_it_answers_and_it_inherits_its_socket(children: Children, tmp_path: Path) -> None:
    with listening_socket() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        command = [sys.executable, "-c", SERVE, str(listener.fileno())]
        child = children.start("server", command, log=tmp_path / "log", inherit=(listener,))
    assert child.wait_ready(url, 20) > 0
    assert fetch(url, 5) == b"ready"
    assert child.describe_exit() == "is running"
    children.stop(5)
    assert child.exit_code() == -signal.SIGTERM
    assert child.describe_exit() == "was killed by SIGTERM"
    assert not answers(url, 1)


def test_one_that_dies_before_it_is_ready_shows_its_last_words(children: Children, tmp_path: Path) -> None:
    code = "import sys; [print('line', n) for n in range(40)]; sys.exit('no card')"
    child = start(children, tmp_path, code)
    with pytest.raises(ChildFailed) as caught:
        child.wait_ready(f"http://127.0.0.1:{free_port()}/", 20)
    said = str(caught.value)
    assert said.startswith(f"The helper ended with exit code 1 before it was ready. Last lines of {child.log}:\n")
    assert said.endswith("    no card")
    assert "line 39" in said
    assert "line 10\n" not in said
    assert caught.value.role == "helper"


def test_one_that_never_answers_is_given_up(children: Children, tmp_path: Path) -> None:
    child = start(children, tmp_path, "import time; time.sleep(600)")
    with pytest.raises(ChildFailed, match=r"was not ready within 0\.1 s\. It left nothing in its log"):
        child.wait_ready(f"http://127.0.0.1:{free_port()}/", 0.1)


def test_one_that_cannot_be_started(children: Children, tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match=r"The helper cannot be started: /no/such: No such file or directory\."):
        children.start("helper", ["/no/such"], log=tmp_path / "log")


def test_a_deaf_one_is_killed_with_what_it_started(children: Children, tmp_path: Path) -> None:
    code = FORGETFUL + STUBBORN
    child = start(children, tmp_path, code)
    wait_for(lambda: "deaf" in child.log.read_text(encoding="utf-8"))
    grandchild = int(child.log.read_text(encoding="utf-8").split()[0])
    assert not gone(grandchild)
    assert child.stop(0.2) == -signal.SIGKILL
    wait_for(lambda: gone(grandchild))


def test_each_is_killed_after_the_longer_of_its_own_time_and_everybodys(children: Children, tmp_path: Path) -> None:
    slow = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(7))); "
        "print('up', flush=True); time.sleep(600)"
    )
    patient, hurried = (start(children, tmp_path, slow, grace_s=grace_s) for grace_s in (60.0, 0.0))
    wait_for(lambda: patient.log.read_text(encoding="utf-8").count("up") == 2)
    children.stop(0.2)
    assert (patient.exit_code(), hurried.exit_code()) == (7, -signal.SIGKILL)


def test_what_an_orderly_child_leaves_behind_is_killed(children: Children, tmp_path: Path) -> None:
    child = start(children, tmp_path, FORGETFUL)
    wait_for(lambda: child.exit_code() == 0)
    grandchild = int(child.log.read_text(encoding="utf-8"))
    assert not gone(grandchild)
    children.stop(5)
    wait_for(lambda: gone(grandchild))


def test_a_stopped_child_hears_that_it_is_to_end(children: Children, tmp_path: Path) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "print('up', flush=True); time.sleep(600)"
    )
    child = start(children, tmp_path, code)
    wait_for(lambda: "up" in child.log.read_text(encoding="utf-8"))
    child.send(signal.SIGSTOP)
    assert child.stop(20) == 7


def test_a_signal_to_one_that_is_gone_does_nothing(children: Children, tmp_path: Path) -> None:
    child = start(children, tmp_path, "pass")
    wait_for(lambda: child.exit_code() == 0)
    child.send(signal.SIGTERM)
    assert child.stop(1) == 0


def test_an_answer_that_is_not_http_is_no_answer() -> None:
    with listening_socket() as listener:

        def noise() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"\x00 noise\r\n\r\n")

        thread = threading.Thread(target=noise, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert not answers(url, 5)
        with pytest.raises(NoAnswer, match="not a whole HTTP answer"):
            fetch(url, 5)
        thread.join()


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch, children: Children, tmp_path: Path) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with listening_socket() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        command = [sys.executable, "-c", SERVE, str(listener.fileno())]
        children.start("server", command, log=tmp_path / "log", inherit=(listener,)).wait_ready(url, 20)
    assert fetch(url, 5) == b"ready"


def test_a_free_port_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))


def test_the_shield_is_up_while_a_child_is_started(tmp_path: Path) -> None:
    seen = []

    @contextmanager
    def shield():
        seen.append("up")
        yield
        seen.append("down")

    children = Children(shield)
    child = start(children, tmp_path, "import time; time.sleep(600)")
    assert seen == ["up", "down"]
    children.stop(5)
    assert child.exit_code() == -signal.SIGTERM


# Interruption: signals sent to this very process.


def signal_me(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # the handler runs at the next bytecode of the main thread


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_raised_where_one_listens_for_it(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interruption() as interruption:
        interruption.listen()
        assert not interruption.asked
        with pytest.raises(Interrupted):
            signal_me(number)
        assert interruption.asked
    assert signal.getsignal(number) is before


def test_a_signal_that_came_before_is_not_lost() -> None:
    with Interruption() as interruption:
        signal_me()
        with pytest.raises(Interrupted):
            interruption.listen()


def test_what_is_held_is_done_whole() -> None:
    with Interruption() as interruption:
        interruption.listen()
        done = []
        with pytest.raises(Interrupted), interruption.held():
            done.append(signal_me())
        assert done == [None]


def test_one_that_was_swallowed_is_raised_again() -> None:
    with Interruption() as interruption:
        interruption.listen()
        with suppress(Interrupted):
            signal_me()
        with pytest.raises(Interrupted):
            interruption.check()


def test_the_ending_is_not_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    with Interruption() as interruption:
        interruption.listen()
        interruption.end()
        signal_me()
        signal_me(signal.SIGTERM)
        interruption.check()
        assert interruption.asked
    assert capsys.readouterr().err.count("Already ending") == 2
