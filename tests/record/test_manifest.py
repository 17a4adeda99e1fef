"""Facts of the machine and the checkout."""

import subprocess
from pathlib import Path

import msgspec
import psutil

from agentdyno.record.manifest import Manifest, machine_facts, source_commit
from tests.golden.run import manifest


def test_machine_facts_name_the_machine_and_nobody() -> None:
    found = machine_facts()
    assert found.memory_bytes == psutil.virtual_memory().total
    assert found.cores_usable >= 1
    assert found.cpu_model != ""
    import getpass
    import socket

    text = msgspec.json.encode(found).decode()
    assert socket.gethostname() not in text
    assert getpass.getuser() not in found.__struct_fields__


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
    )


def test_the_commit_says_when_files_differ_from_it(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "one")
    commit = source_commit(tmp_path)
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "untracked").touch()
    assert source_commit(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert source_commit(tmp_path) == commit + "+changes"


def test_there_is_no_commit_outside_a_checkout_or_without_git(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert source_commit(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_commit(tmp_path) is None


def test_a_manifest_reads_back_as_it_was_written() -> None:
    assert msgspec.json.decode(msgspec.json.encode(manifest()), type=Manifest) == manifest()
