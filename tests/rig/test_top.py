"""`agentdyno top` finds the run, ends with it, and says in a sentence when there is none."""

import os
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from agentdyno.cli import run
from agentdyno.contract.run import ExitCode
from agentdyno.record.live import LiveRun, running, tell
from agentdyno.rig import top as module
from agentdyno.rig.top import NoRun, top

TEXT = b"agentdyno_load_schedule_arrivals_per_second 20.0\nagentdyno_load_elapsed_seconds 3.0\n"


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(TEXT)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A bench that runs, as far as anybody can see; what is given ends it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    Thread(target=server.serve_forever, daemon=True).start()
    raw = tmp_path / "20260102T030405Z-bare-1a2b3c" / "raw"
    raw.mkdir(parents=True)
    urls = {"load": f"http://127.0.0.1:{server.server_port}/metrics"}
    name = raw.parent.name
    tell(raw, LiveRun(run_id=name, framework="bare", scenario="chain", backend="mock", pid=os.getpid(), metrics=urls))

    def end() -> None:
        (raw / "live.json").unlink(missing_ok=True)
        server.shutdown()

    yield end
    end()
    server.server_close()


@pytest.mark.usefixtures("bench")
def test_once_shows_one_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--once", "--runs", str(tmp_path)]) == ExitCode.VALID
    said = capsys.readouterr().out
    assert said.startswith("20260102T030405Z-bare-1a2b3c: bare, chain")
    assert said.count("20.0/s asked for") == 1
    assert "\x1b" not in said


def test_it_ends_with_the_run(
    tmp_path: Path, bench: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            bench()

    monkeypatch.setattr(module.time, "sleep", wait)
    assert top("20260102", tmp_path, every_s=2.0, once=False) == ExitCode.VALID
    said = capsys.readouterr().out
    assert said.count("asked for") == 2
    assert said.endswith("The load of 20260102T030405Z-bare-1a2b3c is over.\n")


@pytest.mark.usefixtures("bench")
def test_ctrl_c_ends_it_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", interrupt)
    assert top(None, tmp_path, every_s=2.0, once=False) == ExitCode.VALID
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("bench")
def test_a_terminal_is_cleared_between_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", interrupt)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    top(None, tmp_path, every_s=2.0, once=False)
    assert capsys.readouterr().out.startswith("\x1b[H\x1b[J")


@pytest.mark.usefixtures("bench")
def test_another_name_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match=r"^No bench whose name begins with 2027 runs; there are 20260102"):
        top("2027", tmp_path, every_s=2.0, once=True)


def test_it_goes_on_with_a_run_that_has_another_load(
    tmp_path: Path, bench: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a search for a capacity does at each step."""
    (before,) = running(tmp_path)
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            gone = {"load": "http://127.0.0.1:9/metrics", "rig": before.metrics["load"]}
            tell(tmp_path / before.run_id / "raw", msgspec.structs.replace(before, metrics=gone))
        if len(looks) == 3:
            bench()

    monkeypatch.setattr(module.time, "sleep", wait)
    assert top(None, tmp_path, every_s=2.0, once=False) == ExitCode.VALID
    said = capsys.readouterr().out
    assert said.count("asked for") == 3
    assert said.count("no answer from the metrics of: load") == 2


def test_a_narrow_terminal_is_not_written_beyond(
    tmp_path: Path,
    bench: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda _: bench())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    top(None, tmp_path, every_s=2.0, once=False)
    shown = capsys.readouterr().out.removeprefix("\x1b[H\x1b[J").splitlines()[:-1]
    assert len(shown) > 3
    assert max(map(len, shown)) <= 40


def test_no_bench_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--runs", str(tmp_path)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"agentdyno: No bench runs under {tmp_path}.")
    assert len(said.err.splitlines()) == 1
