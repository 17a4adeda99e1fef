"""What a vLLM needs from the rig: progress while it starts, order after it, an address for spans of one elsewhere."""

import socket
from pathlib import Path

import pytest

from agentdyno.backends.vllm.serving import SCRATCH, SOCKETS
from agentdyno.record.folder import RunFolder
from agentdyno.rig import backends, vllm_cpu
from agentdyno.rig.frameworks import resolve
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.options import Words, read
from agentdyno.rig.processes import ChildFailed, Children, listening_socket
from agentdyno.rig.run_processes import RunProcesses
from agentdyno.rig.servers import start_recorder
from tests.backends.vllm.test_guard import command, memory_of
from tests.e2e.benches import processes_of


def test_a_long_start_is_told_every_ten_seconds_with_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(backends.time, "monotonic", lambda: now_s)
    sign = backends._SignOfLife(tmp_path / "backend.log")
    while now_s < 1025:
        now_s += 0.5
        sign.look()
    assert capsys.readouterr().err.splitlines() == [
        f"vLLM: starting for {seconds} s, at most 300 (log: {tmp_path / 'backend.log'})" for seconds in (10, 20)
    ]


def test_what_ended_servers_left_is_removed_and_what_a_live_one_uses_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vllm_cpu, "cache_folder", lambda: tmp_path)
    vllm_cpu.remove_what_is_dead()
    dead, alive, scratch = tmp_path / SOCKETS / "dead", tmp_path / SOCKETS / "alive", tmp_path / SCRATCH / "file"
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(dead))
    scratch.touch()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(alive))
        served.listen()
        vllm_cpu.remove_what_is_dead()
        assert (dead.exists(), alive.exists(), scratch.exists()) == (False, True, True)
    vllm_cpu.remove_what_is_dead()
    assert (alive.exists(), scratch.exists(), scratch.parent.exists()) == (False, False, True)


def test_one_that_is_given_up_while_it_starts_leaves_no_shared_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a ready host a run's servers get 3 s to end; the guard's two signals alone take longer."""
    monkeypatch.setattr(backends, "program", lambda _python: command(ends_at=99))
    folder = RunFolder.create(tmp_path, "bare")

    def interrupt(_self: object) -> None:
        log = folder.log("backend")
        if log.exists() and log.read_text().strip():
            raise Interrupted

    monkeypatch.setattr(backends._SignOfLife, "look", interrupt)
    options = read(Words(framework="bare", backend="vllm-cpu"), environ={})
    with Interruption() as interruption:
        processes = RunProcesses(options, *resolve("bare"), folder, interruption)
        with pytest.raises(Interrupted):
            processes.start_host()
        memory = memory_of(folder.log("backend"))
        assert memory.exists()
        processes.end_servers()
    assert processes_of(tmp_path) == {}
    assert not memory.exists()


def test_an_address_for_spans_is_listened_at_and_one_that_is_taken_is_named(tmp_path: Path) -> None:
    children = Children()
    try:
        with listening_socket() as probe:
            address = probe.getsockname()
            with pytest.raises(ChildFailed, match=f"cannot take spans at OTLP=127.0.0.1:{address[1]}: Address already"):
                start_recorder(RunFolder.create(tmp_path, "fw"), {}, None, children, {}, address)
        recorder = start_recorder(RunFolder.create(tmp_path, "fw"), {}, None, children, {}, address)
        assert recorder.otlp_url == f"http://127.0.0.1:{address[1]}/v1/traces"
    finally:
        children.stop(10)
