import os

import pytest

from agentdyno.contract.run import Outcome, RequestRecord, WorkerEnd
from agentdyno.load.records import Records, RecordsError

END = WorkerEnd(
    worker=0,
    finished=True,
    t0_monotonic_ns=5,
    in_flight_area_s=None,
    measure_start_ns=0,
    measure_end_ns=1,
    cpu_s=None,
)


def record(index: int) -> RequestRecord:
    return RequestRecord(index, "measure", index, 0, index, None, None, Outcome.DROPPED)


def test_nothing_is_written_between_two_flushes_and_all_is_at_the_end(tmp_path):
    records = Records(tmp_path / "new" / "folder", 0)
    file = tmp_path / "new" / "folder" / "requests-0.jsonl"
    records.add(record(0))
    assert file.read_bytes() == b""
    records.flush()
    assert file.read_bytes().count(b"\n") == 1
    records.add(record(1))
    records.close(END)
    assert file.read_bytes().count(b"\n") == 2
    assert (file.parent / "end-0.json").exists()


def test_a_full_disk_is_told_as_such_and_what_comes_after_is_not_written(tmp_path):
    records = Records(tmp_path, 0)
    real = os.dup(records._requests._descriptor)
    os.dup2(os.open("/dev/full", os.O_WRONLY), records._requests._descriptor)
    records.add(record(0))
    with pytest.raises(RecordsError, match="disk is full") as failed:
        records.flush()
    assert failed.value.disk_full
    os.dup2(real, records._requests._descriptor)
    records.add(record(1))
    with pytest.raises(RecordsError, match="disk is full"):
        records.close(END)
    assert (tmp_path / "requests-0.jsonl").read_bytes() == b""
    assert not (tmp_path / "end-0.json").exists()


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecordsError, match="cannot be written") as failed:
        Records(tmp_path / "file" / "folder", 0)
    assert not failed.value.disk_full
