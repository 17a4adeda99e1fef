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
from agentdyno.rig.snapshots import Snapshots, taken_from

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
    taking = Snapshots(folder, 30.0)
    taking.begin(taken_from(url), int(now_s[0] * 1e9))
    for at in (1_029.9, 1_030.0, 1_031.0, 1_095.0, 1_096.0, 1_119.0):  # the one of 1,060 was slept through
        now_s[0] = at
        taking.tick()
    now_s[0] = 1_119.5
    taking.end()
    taking._take = taken_from("http://127.0.0.1:1")
    now_s[0] = 1_130.0
    taking.end()
    index = read_index(folder.path)
    assert index is not None
    assert [snapshot.file for snapshot in index.snapshots] == ["000-0.pb.gz", "001-95.pb.gz", "002-120.pb.gz"]
    assert [gap.monotonic_ns // 10**9 for gap in index.gaps] == [1_030, 1_130]
    assert "503" in index.gaps[0].reason
    assert "refused" in index.gaps[1].reason
    assert {read_profile(folder.path, snapshot) for snapshot in index.snapshots} == {PROFILE}


def test_a_host_that_never_gave_one_is_asked_no_more_at_the_end(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "bare")
    Snapshots(folder, 30.0).end()
    assert read_index(folder.path) is None


def test_a_rig_that_takes_a_run_up_again_goes_on_with_its_snapshots(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own clock may say anything then; the host's goes on."""
    now_s = [1_000.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], monotonic_ns=lambda: int(now_s[0] * 1e9))
    monkeypatch.setattr(snapshots, "time", clock)
    Handler.statuses = [200, 200]
    folder = RunFolder.create(tmp_path, "bare")
    Snapshots(folder, 30.0).begin(taken_from(url), 5_000_000_000)
    now_s[0] = 7.0
    Snapshots(folder, 30.0).begin(taken_from(url), 45_000_000_000)
    index = read_index(folder.path)
    assert index is not None
    assert [snapshot.file for snapshot in index.snapshots] == ["000-0.pb.gz", "001-40.pb.gz"]
    assert [snapshot.monotonic_ns for snapshot in index.snapshots] == [5_000_000_000, 45_000_000_000]
