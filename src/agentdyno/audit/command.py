"""`agentdyno audit`: one folder, in words. 0 when nothing is wrong, 1 with a sentence for each fault."""

from __future__ import annotations

import sys
from pathlib import Path

from agentdyno.audit.campaign import audit_campaign
from agentdyno.audit.fault import Audited
from agentdyno.audit.run import audit_run
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.record.campaign_folder import CAMPAIGN_FILE
from agentdyno.rig.cold import RESULT_FILE as COLD

_SHOWN = 50
# Any of them makes a folder one run's; cold starts have no manifest.
_OF_RUNS = ("manifest.json", "summary.json", COLD)


class NotThere(UserError):
    """A path that is no folder of a run or a campaign."""


def audit(path: Path) -> ExitCode:
    """Audit the run or campaign in that folder and print what was found. Raises NotThere."""
    if not path.is_dir():
        raise NotThere(f"There is no folder {path}. Name a run's or a campaign's.")
    if not any((path / name).exists() for name in (*_OF_RUNS, CAMPAIGN_FILE)):
        text = f"it has no manifest.json, {COLD} or {CAMPAIGN_FILE}."
        raise NotThere(f"{path} is neither a run's folder nor a campaign's: {text}")
    found = audit_campaign(path) if (path / CAMPAIGN_FILE).exists() else audit_run(path)
    sys.stdout.write(report(found))
    return ExitCode.GATE_FAILED if found.faults else ExitCode.VALID


def report(found: Audited) -> str:
    """What was found, a line for each fault and note, and the conclusion last."""
    lines = [f"fault  {fault}" for fault in found.faults[:_SHOWN]]
    if len(found.faults) > _SHOWN:
        lines.append(f"fault  and {len(found.faults) - _SHOWN} more like these.")
    lines += [f"note   {note}" for note in found.notes[:_SHOWN]]
    looked = f"{found.files} files and {found.figures} figures of {found.folder.name}"
    count = len(found.faults)
    verdict = "all as they must be" if not count else f"{count} {'faults' if count > 1 else 'fault'}"
    return "".join(f"{line}\n" for line in [*lines, f"Audit of {looked}: {verdict}."])
