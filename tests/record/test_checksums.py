"""SHA256SUMS: what sha256sum reads, of everything that was kept, and no other bytes than those that follow from it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from agentdyno.record.checksums import (
    CHECKSUMS_FILE,
    checksum_faults,
    kept_files,
    read_checksums,
    renew_checksums,
    write_checksums,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    (folder / "heap").mkdir()
    (folder / "summary.json").write_text("{}\n", encoding="utf-8")
    (folder / "logs" / "host.log").write_text("", encoding="utf-8")
    (folder / "heap" / "001-0.pb.gz").write_bytes(bytes(range(256)))
    (folder / "übrig #2.txt").write_text("a name that is not ASCII", encoding="utf-8")
    write_checksums(folder)
    return folder


def test_every_file_that_was_kept_is_in_it_and_not_the_list_itself(run: Path) -> None:
    listed = read_checksums(run)
    assert listed is not None
    assert list(listed) == ["heap/001-0.pb.gz", "logs/host.log", "summary.json", "übrig #2.txt"] == kept_files(run)
    assert checksum_faults(run) == []


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="this system has no sha256sum")
def test_sha256sum_reads_it(run: Path) -> None:
    done = subprocess.run(["sha256sum", "--check", "--strict", CHECKSUMS_FILE], cwd=run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == 4


def test_it_is_whole_or_not_there(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (run / CHECKSUMS_FILE).read_bytes()
    (run / "summary.json").write_text("{ }\n", encoding="utf-8")

    def no_room(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(OSError, match="No space"):
        write_checksums(run)
    assert (run / CHECKSUMS_FILE).read_bytes() == before
    assert not list(run.glob("*.partial"))


def test_what_was_changed_added_and_taken_away_is_named(run: Path) -> None:
    (run / "summary.json").write_text("[]\n", encoding="utf-8")
    (run / "logs" / "more.log").write_text("", encoding="utf-8")
    (run / "heap" / "001-0.pb.gz").unlink()
    found = dict(checksum_faults(run))
    assert list(found) == ["heap/001-0.pb.gz", "logs/more.log", "summary.json"]
    assert "is not there" in found["heap/001-0.pb.gz"]
    assert "does not list it" in found["logs/more.log"]
    assert "it was changed" in found["summary.json"]


def test_a_missing_list_is_said(run: Path) -> None:
    (run / CHECKSUMS_FILE).unlink()
    ((file, sentence),) = checksum_faults(run)
    assert (file, sentence.split(":")[0]) == (CHECKSUMS_FILE, "There is no SHA256SUMS")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"  summary", b" *summary"), (b"\n", b"\r\n"), (b"logs/", b"./logs/"), (b"logs/host", b"../run/logs/host")],
)
def test_a_list_in_another_form_is_not_what_was_written(run: Path, old: bytes, new: bytes) -> None:
    file = run / CHECKSUMS_FILE
    file.write_bytes(file.read_bytes().replace(old, new, 1))
    assert checksum_faults(run)


def test_a_line_that_stands_there_twice_is_found(run: Path) -> None:
    file = run / CHECKSUMS_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines, lines[0]]))
    assert [name for name, _ in checksum_faults(run)] == [CHECKSUMS_FILE]


def test_a_file_that_is_made_anew_hides_no_other_change(run: Path) -> None:
    (run / "report.html").write_text("a page", encoding="utf-8")
    (run / "summary.json").write_text("[]\n", encoding="utf-8")
    renew_checksums(run, ["report.html"])
    assert [name for name, _ in checksum_faults(run)] == ["summary.json"]
    (run / "summary.json").write_text("{}\n", encoding="utf-8")
    assert checksum_faults(run) == []
    (run / CHECKSUMS_FILE).unlink()
    renew_checksums(run, ["report.html"])
    assert not (run / CHECKSUMS_FILE).exists()


def test_a_campaign_lists_its_own_files_and_the_lists_of_its_runs(tmp_path: Path, run: Path) -> None:
    campaign = tmp_path / "campaign"
    (campaign / "runs").mkdir(parents=True)
    run.rename(campaign / "runs" / "one")
    (campaign / "campaign.json").write_text("{}", encoding="utf-8")
    write_checksums(campaign)
    assert kept_files(campaign) == ["campaign.json", "runs/one/SHA256SUMS"]
    assert checksum_faults(campaign) == []
    write_checksums(campaign / "runs" / "one")
    assert checksum_faults(campaign) == []  # the same again
    (campaign / "runs" / "one" / "new.txt").touch()
    write_checksums(campaign / "runs" / "one")
    assert [name for name, _ in checksum_faults(campaign)] == ["runs/one/SHA256SUMS"]
