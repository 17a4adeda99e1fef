"""Whether a run's environment is that of the lock which the checkout has, or had at the commit that measured it."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

from agentdyno.audit.fault import Audited, Fault
from agentdyno.contract.errors import UserError
from agentdyno.record.manifest import Manifest
from agentdyno.rig.environments.environment import ROOT, adapter_environment
from agentdyno.rig.environments.frameworks import resolve

_GIT_TIMEOUT_S = 10


def audit_lock(manifest: Manifest, found: Audited, root: Path = ROOT) -> None:
    """Compare the hash of the lock that the manifest names.

    A lock may have moved on since the run, so that another hash now is a note. But where the checkout's history has
    the commit that measured, and no file differed from it then, that commit's lock must be the one, or it is a fault.
    """
    stated = manifest.environment.get("lock_sha256")
    name = manifest.framework.name
    if stated is None:
        found.notes.append("The manifest names no lock, so the environment cannot be compared with one.")
        return
    try:
        folder, _ = resolve(name.partition("#")[0], root)
    except UserError:
        found.notes.append(f"There is no adapter {name!r} here, so its lock cannot be compared.")
        return
    lock = adapter_environment(folder.path, root).lock
    if lock.is_file() and sha256(lock.read_bytes()).hexdigest() == stated:
        return
    measured_by = manifest.commit or ""
    then = _at_commit(lock, measured_by, root)
    if then is None:
        text = f"The lock of {name} is another one here than the run's ({stated[:16]}...): from here it is another run."
        found.notes.append(text)
    elif then != stated:
        text = f"it says {stated!r}, but {lock.name} of {name} at commit {measured_by[:12]} gives {then!r}."
        found.faults.append(Fault("manifest.json", "environment.lock_sha256", text))


def _at_commit(lock: Path, commit: str, root: Path) -> str | None:
    """The hash of the lock at that commit; None where that is not known here, or files differed from the commit."""
    if not commit or not commit.isalnum() or not lock.is_relative_to(root):
        return None
    command = ["git", "-C", str(root), "show", f"{commit}:{lock.relative_to(root).as_posix()}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return sha256(done.stdout).hexdigest()
