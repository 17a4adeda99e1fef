"""Which snapshots stand around a moment, and what is said of a heap folder that is broken."""

from pathlib import Path

import msgspec
import pytest

from agentdyno.record.heap_folder import (
    HeapFolderError,
    HeapIndex,
    Snapshot,
    covering,
    read_index,
    read_profile,
)

A, B, C = (Snapshot(f"{n:03}-{30 * n}.pb.gz", 30.0 * n, 1_000 + 30 * n) for n in range(3))
INDEX = HeapIndex(30.0, 32_768, [A, B, C])


@pytest.mark.parametrize(
    ("moment", "before", "after", "page"),
    [
        (900, None, A, "000-0.html"),
        (1_000, None, A, "000-0.html"),
        (1_001, A, B, "001-30.html"),
        (1_030, A, B, "001-30.html"),
        (1_031, B, C, "002-60.html"),
        (2_000, C, None, "002-60.html"),
    ],
)
def test_the_snapshots_around_a_moment(moment: int, before: Snapshot, after: Snapshot, page: str) -> None:
    found = covering(INDEX, moment)
    assert found is not None
    assert (found.before, found.after, found.page) == (before, after, page)


def test_no_snapshot_covers_nothing() -> None:
    assert covering(HeapIndex(30.0, 32_768), 1_000) is None


def test_an_index_is_read_back_and_a_run_without_one_has_none(tmp_path: Path) -> None:
    assert read_index(tmp_path) is None
    (tmp_path / "heap").mkdir()
    (tmp_path / "heap" / "snapshots.json").write_bytes(msgspec.json.encode(INDEX))
    assert read_index(tmp_path) == INDEX


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / "heap").mkdir()
    (tmp_path / "heap" / "snapshots.json").write_text("{")
    with pytest.raises(HeapFolderError, match=r"snapshots\.json"):
        read_index(tmp_path)
    with pytest.raises(HeapFolderError, match=r"000-0\.pb\.gz"):
        read_profile(tmp_path, A)
    (tmp_path / "heap" / A.file).write_bytes(b"no gzip")
    with pytest.raises(HeapFolderError, match="gzip"):
        read_profile(tmp_path, A)
