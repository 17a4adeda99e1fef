"""The run folder: raw lines, cut off or broken; files that are whole or not there."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from agentdyno.contract.run import Outcome, RequestRecord, WorkerEnd
from agentdyno.record.folder import FolderError, RunFolder
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample

ANSWER = {"status": 200, "trace_id": "ab" * 16, "response_bytes": 900, "llm_calls": 4, "tool_calls": 3}
COUNTED = {"prompt_bytes": 9000, "prompt_tokens": 2000, "completion_tokens": 120, "retries": 0}
FULL = RequestRecord(1, "measure", 0, 0, 10, 11, 12, Outcome.OK, **ANSWER, **COUNTED)
BARE = RequestRecord(0, "warmup", 0, 0, 5, None, None, Outcome.DROPPED, reason="in_flight_cap")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "bare")


def lines(*objects: msgspec.Struct) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in objects)


def rows(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return pq.read_table(folder.path / name).to_pylist()


def test_a_new_folder_is_empty_and_named_after_the_framework(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a" / "b", "bare")
    assert folder.path.parent == tmp_path / "a" / "b"
    assert folder.run_id == folder.path.name
    assert "-bare-" in folder.run_id
    assert sorted(item.name for item in folder.path.rglob("*")) == ["logs", "raw"]
    assert folder.log("host") == folder.path / "logs" / "host.log"


@pytest.mark.parametrize("name", ["<b>x</b>", "../../up", "a b\nc", "bare#2", ".."])
def test_a_name_that_is_no_file_name_makes_one_folder_all_the_same(tmp_path: Path, name: str) -> None:
    folder = RunFolder.create(tmp_path, name)
    assert list(tmp_path.iterdir()) == [folder.path]
    assert set(folder.run_id) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._#-")


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"^The run folder .*/file/.* cannot be made: Not a directory\. Name another"):
        RunFolder.create(tmp_path / "file", "bare")


def test_a_parent_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # root, as which tests may run, may write anywhere
    with pytest.raises(FolderError, match=r"cannot be made: Permission denied\. Name another parent folder with OUT="):
        RunFolder.create(tmp_path, "bare")


# requests


def test_requests_of_all_workers_in_the_order_of_the_schedule(folder: RunFolder) -> None:
    (folder.raw / "requests-0.jsonl").write_bytes(lines(FULL))
    (folder.raw / "requests-1.jsonl").write_bytes(lines(msgspec.structs.replace(FULL, index=2), BARE))
    folder.write_requests(folder.requests())
    found = [msgspec.convert(row, RequestRecord) for row in rows(folder, "requests.parquet")]
    assert found == [BARE, FULL, msgspec.structs.replace(FULL, index=2)]


def test_times_of_a_long_run_stay_exact(folder: RunFolder) -> None:
    late = msgspec.structs.replace(FULL, intended_ns=2**60 + 1, sent_ns=2**60 + 3, done_ns=2**62 + 1)
    (folder.raw / "requests-0.jsonl").write_bytes(lines(late))
    folder.write_requests(folder.requests())
    assert msgspec.convert(rows(folder, "requests.parquet")[0], RequestRecord) == late


def test_a_reason_may_hold_anything(folder: RunFolder) -> None:
    odd = msgspec.structs.replace(FULL, reason='a "b"\n\\ \x00 café \U0001f600')
    (folder.raw / "requests-0.jsonl").write_bytes(lines(odd))
    assert folder.requests()["reason"].to_pylist() == [odd.reason]


@pytest.mark.parametrize("kept", [1, 17, 150])
def test_a_last_line_that_was_cut_off_is_left_out(folder: RunFolder, kept: int) -> None:
    whole = lines(BARE, FULL)
    (folder.raw / "requests-0.jsonl").write_bytes(whole + lines(FULL)[:kept])
    assert folder.requests()["index"].to_pylist() == [0, 1]


def test_a_file_that_holds_nothing_but_a_piece_of_a_line(folder: RunFolder) -> None:
    (folder.raw / "requests-0.jsonl").write_bytes(lines(FULL)[:50])
    (folder.raw / "requests-1.jsonl").write_bytes(b"")
    (folder.raw / "requests-2.jsonl").write_bytes(lines(FULL))
    assert folder.requests()["index"].to_pylist() == [1]


def test_a_cut_in_a_file_that_is_larger_than_the_piece_read_at_its_end(folder: RunFolder) -> None:
    many = lines(*(msgspec.structs.replace(FULL, index=i) for i in range(2000)))
    (folder.raw / "requests-0.jsonl").write_bytes(many[:-1])
    assert folder.requests()["index"].to_pylist() == list(range(1999))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{]\n", "no record of this version"),
        (b'{"index": "one"}\n', "no record of this version"),
        (lines(FULL).replace(b'"status"', b'"other"'), "no record of this version.*unexpected field"),
        (b'{"index": 1}\n', "a record without stage, stage_index, worker, intended_ns, outcome"),
        (lines(FULL).replace(b'"intended_ns":10', b'"intended_ns":null'), "a record without intended_ns"),
    ],
)
def test_a_broken_line_in_the_middle_is_an_error_that_names_the_file(folder: RunFolder, line: bytes, says: str) -> None:
    (folder.raw / "requests-0.jsonl").write_bytes(lines(BARE) + line + lines(FULL))
    with pytest.raises(FolderError, match=rf"(?s)requests-0\.jsonl holds .*{says}"):
        folder.requests()


def test_no_requests_are_an_empty_table(folder: RunFolder) -> None:
    folder.write_requests(folder.requests())
    table = pq.read_table(folder.path / "requests.parquet")
    assert table.num_rows == 0
    assert table.column_names == list(RequestRecord.__struct_fields__)


def test_a_hundred_thousand_requests_make_no_object_each(folder: RunFolder) -> None:
    import tracemalloc

    count = 100_000
    line = lines(msgspec.structs.replace(FULL, index=7_000_000)).decode()
    with (folder.raw / "requests-0.jsonl").open("w") as out:
        out.writelines(line.replace("7000000", str(i)) for i in range(count))
    tracemalloc.start()
    try:
        table = folder.requests()
        folder.write_requests(table)
        python_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert table.num_rows == count
    assert python_bytes < 20 * count  # an empty dict for each would be more
    assert table.nbytes < 250 * count
    assert pq.read_metadata(folder.path / "requests.parquet").num_rows == count


# the other tables


def test_resources_are_one_row_a_sample(folder: RunFolder) -> None:
    some = Sample(7, 0, "host", 42, Reading(rss_bytes=1, cpu_user_s=1.0, cpu_system_s=0.25))
    none = Sample(9, 1, "rig", 43, Reading())
    (folder.raw / "resources.jsonl").write_bytes(lines(some, none) + b'{"monotonic_ns":')
    folder.write_resources(folder.samples())
    found = rows(folder, "resources.parquet")
    for row, sample in zip(found, (some, none), strict=True):
        assert row == {
            "monotonic_ns": sample.monotonic_ns,
            "look": sample.look,
            "role": sample.role,
            "pid": sample.pid,
            **msgspec.to_builtins(sample.reading),
        }


@pytest.mark.parametrize("content", [None, b"", b'{"monoto'])
def test_no_samples_are_an_empty_table_with_the_same_columns(folder: RunFolder, content: bytes | None) -> None:
    if content is not None:
        (folder.raw / "resources.jsonl").write_bytes(content)
    empty = folder.samples()
    (folder.raw / "resources.jsonl").write_bytes(lines(Sample(7, 0, "host", 42, Reading())))
    assert empty.num_rows == 0
    assert empty.schema == folder.samples().schema


@pytest.mark.parametrize("events", [[], [(10, 5, 2, 100), (20, 6, 0, 0)]])
def test_collections(folder: RunFolder, events: list[tuple[int, int, int, int]]) -> None:
    folder.write_gc(events)
    table = pq.read_table(folder.path / "gc.parquet")
    assert [str(kind) for kind in table.schema.types] == ["int64"] * 4
    assert [tuple(row.values()) for row in table.to_pylist()] == events


@pytest.mark.parametrize("events", [[], [(10, 5), (20, 6)]])
def test_loop_ticks(folder: RunFolder, events: list[tuple[int, int]]) -> None:
    folder.write_loop(events)
    assert [tuple(row.values()) for row in rows(folder, "loop.parquet")] == events


def test_worker_ends_in_order(folder: RunFolder) -> None:
    ends = [WorkerEnd(n, True, 5, None, 0, 1, 0.5) for n in (0, 1)]
    for end in reversed(ends):
        (folder.raw / f"end-{end.worker}.json").write_bytes(lines(end))
    assert folder.worker_ends() == ends


def test_a_broken_worker_end_is_named(folder: RunFolder) -> None:
    (folder.raw / "end-0.json").write_bytes(b'{"worker": 0')
    with pytest.raises(FolderError, match=r"end-0\.json is not what a load worker"):
        folder.worker_ends()


def test_the_raw_lines_go_at_the_end(folder: RunFolder) -> None:
    (folder.raw / "requests-0.jsonl").touch()
    folder.drop_raw()
    assert [item.name for item in folder.path.iterdir()] == ["logs"]


# JSON, whole or not at all


def test_json_is_strict_and_keeps_its_order(folder: RunFolder) -> None:
    folder.write_json("x.json", {"b": 1, "a": [None, 0.1, "é"]})
    assert (folder.path / "x.json").read_text("utf-8") == (
        '{\n  "b": 1,\n  "a": [\n    null,\n    0.1,\n    "é"\n  ]\n}\n'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_does_not_have_leaves_the_old_file(folder: RunFolder, value: float) -> None:
    folder.write_json("x.json", {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.write_json("x.json", {"a": [1, value]})
    assert json.loads((folder.path / "x.json").read_bytes()) == {"a": 1}
    assert not list(folder.path.glob("*.partial"))


def test_half_a_surrogate_pair_is_no_crash(folder: RunFolder) -> None:
    folder.write_json("x.json", {"command": ["--out", "caf\udce9"]})
    assert msgspec.json.decode((folder.path / "x.json").read_bytes()) == {"command": ["--out", "caf?"]}


@pytest.mark.parametrize("what", ["x.json", "gc.parquet"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    folder: RunFolder, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        folder.write_json(what, {"a": 1}) if what.endswith("json") else folder.write_gc([(1, 2, 3, 4)])

    write()
    old = (folder.path / what).read_bytes()

    def full(source: Path, _: Path) -> None:
        assert Path(source).exists()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write()
    assert (folder.path / what).read_bytes() == old
    assert sorted(item.name for item in folder.path.iterdir()) == sorted([what, "logs", "raw"])
