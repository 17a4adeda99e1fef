"""What BACKEND=vllm-cpu needs from the rig beside the server itself: progress while it starts, and order after it."""

import socket
from pathlib import Path

import pytest

from agentdyno.backends.vllm.serving import SCRATCH, SOCKETS
from agentdyno.rig import backends, vllm_cpu


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
