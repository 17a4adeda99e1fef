"""`agentdyno top` finds the run, ends with it, and says in a sentence when there is none."""

import itertools
import os
import re
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

TEXT = """
agentdyno_load_schedule_arrivals_per_second 20.0
agentdyno_load_worker_elapsed_seconds{{worker="0"}} {elapsed}
agentdyno_load_arrivals_total{{stage="measure"}} {arrivals}
agentdyno_process_cpu_seconds_total{{role="host"}} {cpu}
"""
HTML = b"<!DOCTYPE html>\n<html><body>Welcome</body></html>\n"


class Metrics(BaseHTTPRequestHandler):
    """Of a load that was asked at 10 s, and at each look since again a second later; reports: every so many looks."""

    looks = 0
    reports = 1

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        kind = type(self)
        if self.path != "/metrics":
            self.wfile.write(HTML)
            return
        second = kind.looks // kind.reports
        text = TEXT.format(elapsed=10 + second, arrivals=1000 + 20 * second, cpu=99 + kind.looks)
        kind.looks += 1
        self.wfile.write(text.encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A bench that runs, as far as anybody can see; what is given ends it."""
    Metrics.looks, Metrics.reports = 0, 1
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
def test_once_shows_what_happens_between_two_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--once", "--interval", "0.5", "--runs", str(tmp_path)]) == ExitCode.VALID
    said = capsys.readouterr().out
    assert said.startswith("20260102T030405Z-bare-1a2b3c: bare, chain")
    assert said.count("20.0/s asked for, 20.0/s due") == 1
    assert Metrics.looks == 2
    assert re.search(r"cores: host [12]\.\d\d\n", said)  # one more of these seconds within 0.5 s or more
    assert "\x1b" not in said


@pytest.mark.parametrize(("reports", "looks", "cores"), [(3, 4, "0.50"), (100, 5, "-")])
@pytest.mark.usefixtures("bench")
def test_once_waits_for_the_loads_next_report_but_not_for_ever(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reports: int,
    looks: int,
    cores: str,
) -> None:
    Metrics.reports = reports
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    assert top(None, [tmp_path], every_s=1.0, once=True) == ExitCode.VALID
    said = capsys.readouterr().out
    assert Metrics.looks == looks
    assert f"cores: host {cores}\n" in said
    assert said.count("asked for") == 1


def test_who_answers_with_something_else_than_metrics_is_silent(
    tmp_path: Path, bench: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (told,) = running([tmp_path])
    urls = {**told.metrics, "backend": told.metrics["load"].replace("/metrics", "/welcome")}
    tell(tmp_path / told.run_id / "raw", msgspec.structs.replace(told, metrics=urls))
    monkeypatch.setattr(module.time, "sleep", lambda _: bench())
    assert top(None, [tmp_path], every_s=2.0, once=False) == ExitCode.VALID
    said = capsys.readouterr().out
    assert "20.0/s asked for" in said
    assert "no answer from the metrics of: backend\n" in said


def test_it_ends_with_the_run(
    tmp_path: Path, bench: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            bench()

    monkeypatch.setattr(module.time, "sleep", wait)
    assert top("20260102", [tmp_path], every_s=2.0, once=False) == ExitCode.VALID
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
    assert top(None, [tmp_path], every_s=2.0, once=False) == ExitCode.VALID
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("bench")
def test_a_terminal_is_cleared_between_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", interrupt)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    top(None, [tmp_path], every_s=2.0, once=False)
    assert capsys.readouterr().out.startswith("\x1b[H\x1b[J")


@pytest.mark.usefixtures("bench")
def test_another_name_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match=r"^No bench whose name begins with 2027 runs; there are 20260102"):
        top("2027", [tmp_path], every_s=2.0, once=True)


def test_it_goes_on_with_a_run_that_has_another_load(
    tmp_path: Path, bench: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a search for a capacity does at each step."""
    (before,) = running([tmp_path])
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            gone = {"load": "http://127.0.0.1:9/metrics", "rig": before.metrics["load"]}
            tell(tmp_path / before.run_id / "raw", msgspec.structs.replace(before, metrics=gone))
        if len(looks) == 3:
            bench()

    monkeypatch.setattr(module.time, "sleep", wait)
    assert top(None, [tmp_path], every_s=2.0, once=False) == ExitCode.VALID
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
    top(None, [tmp_path], every_s=2.0, once=False)
    shown = capsys.readouterr().out.removeprefix("\x1b[H\x1b[J").splitlines()[:-1]
    assert len(shown) > 3
    assert max(map(len, shown)) <= 40


def test_without_a_word_it_looks_for_runs_and_for_those_of_campaigns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["top"]) == ExitCode.USAGE
    assert "No bench runs under runs or campaigns." in capsys.readouterr().err
    raw = tmp_path / "campaigns" / "20260101T000000Z-ab" / "runs" / "20260102T030405Z-bare-1a2b3c" / "raw"
    raw.mkdir(parents=True)
    name = raw.parent.name
    tell(raw, LiveRun(run_id=name, framework="bare", scenario="chain", backend="mock", pid=os.getpid(), metrics={}))
    assert run(["top"]) == ExitCode.VALID
    assert capsys.readouterr().out == f"The load of {name} is over.\n"


def test_no_bench_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--runs", str(tmp_path)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"agentdyno: No bench runs under {tmp_path}.")
    assert len(said.err.splitlines()) == 1
