"""`agentdyno selfcheck`: run the checks, keep the figures, and say which goals are met."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console

from agentdyno import __version__
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.record.manifest import machine_facts, source_commit
from agentdyno.rig import cores
from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.processes import ChildFailed
from agentdyno.selfcheck.check import Check, Findings, Setting
from agentdyno.selfcheck.checks import CHECKS
from agentdyno.selfcheck.result import CheckResult, SelfCheck
from agentdyno.selfcheck.table import print_selfcheck

FILE = "selfcheck.json"
_PLAIN_WIDTH = 160


def selfcheck(only: str | None, *, quick: bool, out: str | None) -> ExitCode:
    """Run the checks named in `only` (comma-separated; None: all) and print them; the file's path is the last line.

    out: the folder for everything (None: a new one under runs/). Raises OptionError for a name that is not known or
    a folder that cannot be made.
    """
    wanted = _wanted(only)
    started = datetime.now(UTC)
    folder = _folder(out, started)
    plan = cores.plan()
    calibration = {"before": cores.calibrate(plan.host)}
    results: list[CheckResult] = []
    interrupted = False
    try:
        for number, check in enumerate(wanted, 1):
            say(f"selfcheck {number}/{len(wanted)} {check.name}: {check.title}")
            results.append(_run(check, folder, quick, plan))
    except KeyboardInterrupt:
        interrupted = True
    calibration["after"] = cores.calibrate(plan.host)
    report = SelfCheck(
        agentdyno=__version__,
        commit=source_commit(ROOT),
        started_utc=started.isoformat(timespec="seconds"),
        quick=quick,
        machine=machine_facts(),
        cores={
            "host": sorted(plan.host) if plan.host else None,
            "rest": sorted(plan.rest) if plan.rest else None,
        },
        calibration=calibration,
        met=not interrupted and all(result.met for result in results),
        interrupted=interrupted,
        checks=tuple(results),
    )
    file = folder / FILE
    file.write_text(json.dumps(msgspec.to_builtins(report), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    # Nobody looks at the width of a pipe or a file.
    print_selfcheck(report, Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PLAIN_WIDTH))
    sys.stdout.write(f"{file}\n")
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.VALID if report.met else ExitCode.GATE_FAILED


def _wanted(only: str | None) -> Sequence[Check]:
    if only is None:
        return CHECKS
    names = only.split(",")
    known = {check.name for check in CHECKS}
    for name in names:
        if name not in known:
            raise OptionError(f"ONLY: there is no check {name!r}; there are: {', '.join(it.name for it in CHECKS)}.")
    return [check for check in CHECKS if check.name in names]


def _folder(out: str | None, started: datetime) -> Path:
    folder = Path("runs") / f"selfcheck-{started:%Y%m%dT%H%M%SZ}" if out is None else Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"The folder {folder} cannot be made: {error.strerror}. Name another with OUT=.") from error
    return folder


def _run(check: Check, folder: Path, quick: bool, plan: cores.CorePlan) -> CheckResult:
    """One check; whatever keeps it from measuring is its result, and the next one runs."""
    before, begin = _load_average(), time.monotonic()
    findings, failed = Findings(()), None
    try:
        own = folder / check.name
        own.mkdir(exist_ok=True)
        findings = check.measure(Setting(own, quick, plan))
    except (UserError, ChildFailed, OSError) as error:
        failed = str(error)
        say(f"{check.name}: {failed}")
    return CheckResult(
        name=check.name,
        title=check.title,
        figures=tuple(findings.figures),
        notes=tuple(findings.notes),
        failed=failed,
        took_s=round(time.monotonic() - begin, 1),
        load_average_before=before,
        load_average_after=_load_average(),
    )


def _load_average() -> float | None:
    """The mean number of runnable processes over the last minute; None where the system keeps none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
