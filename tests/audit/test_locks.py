"""The lock that a run was measured with, against the one that is here, or was at the commit that measured."""

import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from agentdyno.audit.fault import Audited
from agentdyno.audit.locks import audit_lock
from agentdyno.contract.summary import Framework
from tests.golden.run import manifest

ADAPTER = '[[variant]]\nname = "tiny"\ntitle = "Tiny"\nentry = "adapter:Tiny"\n'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one adapter whose lock is under version control."""
    monkeypatch.delenv("AGENTDYNO_ADAPTERS", raising=False)
    folder = tmp_path / "adapters" / "tiny"
    folder.mkdir(parents=True)
    (folder / "adapter.toml").write_text(ADAPTER, encoding="utf-8")
    (folder / "requirements.lock").write_text("one==1\n", encoding="utf-8")
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True)
    return tmp_path


def audited(root: Path, lock: str | None, *, commit: str | None = None, name: str = "tiny") -> Audited:
    run = manifest()
    run.framework = Framework(name, None, "default", "llm")
    run.environment = {} if lock is None else {"lock_sha256": lock}
    run.commit = commit
    found = Audited(root)
    audit_lock(run, found, root)
    return found


def head(root: Path) -> str:
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


OURS, ANOTHER = sha256(b"one==1\n").hexdigest(), sha256(b"two==2\n").hexdigest()


def test_the_lock_that_is_here(root: Path) -> None:
    found = audited(root, OURS)
    assert (found.faults, found.notes) == ([], [])


def test_the_lock_of_the_commit_that_measured(root: Path) -> None:
    commit = head(root)
    (root / "adapters" / "tiny" / "requirements.lock").write_text("two==2\n", encoding="utf-8")
    found = audited(root, OURS, commit=commit)
    assert (found.faults, found.notes) == ([], [])


def test_another_lock_than_that_commit_has_is_a_fault(root: Path) -> None:
    commit = head(root)
    (fault,) = audited(root, ANOTHER, commit=commit).faults
    assert (fault.file, fault.field) == ("manifest.json", "environment.lock_sha256")
    assert ANOTHER in fault.sentence
    assert OURS in fault.sentence


@pytest.mark.parametrize("commit", [None, "0" * 40, "--help", "HEAD;x", ""])
def test_a_lock_that_has_moved_on_is_a_note_where_the_commit_is_not_known(root: Path, commit: str | None) -> None:
    found = audited(root, ANOTHER, commit=commit)
    assert found.faults == []
    assert "The lock of tiny is another one here than the run's" in found.notes[0]


def test_files_that_differed_from_the_commit_excuse_the_lock(root: Path) -> None:
    assert audited(root, ANOTHER, commit=f"{head(root)}+changes").faults == []


def test_an_adapter_that_is_not_here_and_a_manifest_without_a_lock(root: Path) -> None:
    assert audited(root, OURS, name="<b>x</b>").notes == [
        "There is no adapter '<b>x</b>' here, so its lock cannot be compared."
    ]
    assert audited(root, None).notes == ["The manifest names no lock, so the environment cannot be compared with one."]
