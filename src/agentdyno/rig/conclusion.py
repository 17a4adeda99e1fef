"""The end of a run, wherever it was measured: each step by itself, then the figures, the verdict and the hashes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from agentdyno.analysis.figures import run_queue_waits_ms
from agentdyno.analysis.run_data import RunData, read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import Finding, Reason
from agentdyno.contract.summary import Summary
from agentdyno.record.checksums import write_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Manifest, Status
from agentdyno.rig.interruption import Interruption
from agentdyno.rig.run_processes import MAKE_ROOM


class Conclusion:
    """Brings a run folder to its end. What cannot be had any more must not keep the rest from being kept."""

    def __init__(self, folder: RunFolder, manifest: Manifest, interruption: Interruption) -> None:
        self._folder = folder
        self._manifest = manifest
        self._interruption = interruption

    def attempt(self, step: Callable[[], None]) -> bool:
        """Do one step of the ending and say whether it went well; when not the run has failed, and says why."""
        manifest = self._manifest
        try:
            step()
        except OSError as error:
            finding = Finding(disk_or_rig(error), cannot("Not everything could be kept", error))
        except UserError as error:
            finding = Finding(Reason.RIG_FAILED, str(error))
        else:
            return True
        if manifest.status is Status.FINISHED:
            manifest.status = Status.FAILED
        if finding.code not in {known.code for known in manifest.findings}:
            manifest.findings.append(finding)
        return False

    def write(self) -> Summary:
        """Summary, manifest and the hashes of all; again, when what happened meanwhile belongs into them."""
        manifest, interruption = self._manifest, self._interruption
        for _ in range(2):
            if interruption.asked and manifest.status is Status.FINISHED:
                manifest.status = Status.INTERRUPTED
                text = "The run was interrupted while it was ending; all it measured is kept."
                manifest.findings.append(Finding(Reason.INTERRUPTED, text))
            known = len(manifest.findings)
            summary = self._summarise()
            self.attempt(partial(self._folder.write_json, "summary.json", summary))
            self.attempt(partial(self._folder.write_json, "manifest.json", manifest))
            self.attempt(partial(write_checksums, self._folder.path))
            unsaid = interruption.asked and manifest.status is Status.FINISHED
            if len(manifest.findings) == known and not unsaid:
                break
        return summary

    def _summarise(self) -> Summary:
        manifest = self._manifest
        try:
            data = read_run(self._folder.path, manifest=manifest)
            manifest.run_queue_wait_ms = run_queue_waits_ms(data)
            return summarise(data)
        except UserError as error:
            manifest.findings.append(Finding(Reason.RIG_FAILED, str(error)))
            manifest.status = Status.FAILED
            nothing = RunData(
                self._folder.path, manifest, requests=None, resources=None, gc=None, loop=None, spans=None, backend=None
            )
            return summarise(nothing)


def disk_or_rig(error: OSError) -> Reason:
    """Whose fault an OSError is."""
    return Reason.DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else Reason.RIG_FAILED


def cannot(what: str, error: OSError) -> str:
    """A sentence on an OSError."""
    where = f" ({error.filename})" if error.filename else ""
    advice = f" {MAKE_ROOM}" if disk_or_rig(error) is Reason.DISK_FULL else ""
    return f"{what}: {error.strerror or error}{where}.{advice}"
