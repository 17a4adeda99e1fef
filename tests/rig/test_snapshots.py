"""Snapshots from a host that answers, fails and dies: each failure is a gap with its reason."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentdyno.contract.pprof import HEAP_TYPES, Profile, write_gzip
from agentdyno.record.folder import RunFolder
from agentdyno.record.heap_folder import read_index, read_profile
from agentdyno.rig import snapshots
from agentdyno.rig.environments import profiler_environment
from agentdyno.rig.snapshots import HeapProfiling, Snapshots

PROFILE = Profile(HEAP_TYPES, (), time_ns=5, program="python3.11")


class Handler(http.server.BaseHTTPRequestHandler):
    statuses: list[int]

    def do_GET(self) -> None:
        assert self.path == "/debug/pprof/heap"
        status = self.statuses.pop(0)
        self.send_response(status)
        self.end_headers()
        if status == 200:
            self.wfile.write(write_gzip(PROFILE))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_snapshot_that_cannot_be_had_is_a_gap(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], monotonic_ns=lambda: int(now_s[0] * 1e9))
    monkeypatch.setattr(snapshots, "time", clock)
    Handler.statuses = [200, 503, 200, 200]
    folder = RunFolder.create(tmp_path, "bare")
    taking = Snapshots(folder, HeapProfiling(profiler_environment(), 30.0, ()))
    taking.begin(url)
    for at in (1_029.9, 1_030.0, 1_031.0, 1_095.0, 1_096.0, 1_119.0):  # the one of 1,060 was slept through
        now_s[0] = at
        taking.tick(url)
    now_s[0] = 1_119.5
    taking.end(url)
    now_s[0] = 1_130.0
    taking.end("http://127.0.0.1:1")
    index = read_index(folder.path)
    assert index is not None
    assert [snapshot.file for snapshot in index.snapshots] == ["000-0.pb.gz", "001-95.pb.gz", "002-120.pb.gz"]
    assert [gap.monotonic_ns // 10**9 for gap in index.gaps] == [1_030, 1_130]
    assert "503" in index.gaps[0].reason
    assert "refused" in index.gaps[1].reason
    assert {read_profile(folder.path, snapshot) for snapshot in index.snapshots} == {PROFILE}


def test_a_host_that_never_gave_one_is_asked_no_more_at_the_end(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "bare")
    Snapshots(folder, HeapProfiling(profiler_environment(), 30.0, ())).end("http://127.0.0.1:1")
    assert read_index(folder.path) is None
