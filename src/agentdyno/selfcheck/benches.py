"""Short runs of the real rig, for the checks that compare frameworks or ask what a run costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentdyno.contract.run import ExitCode, Reason
from agentdyno.contract.summary import Summary
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.options import Words, read
from agentdyno.rig.run import Run
from agentdyno.rig.task import begun
from agentdyno.selfcheck.check import CheckFailed

# Arrivals that a busy machine delayed make a run's latency worthless, not its CPU per request, which is all that is
# taken from these runs.
_HARMLESS = frozenset({Reason.GENERATOR_LATE})


@dataclass(frozen=True, slots=True)
class ShortRun:
    """One run. late: it is invalid as a run, because arrivals were sent late."""

    summary: Summary
    path: Path
    late: bool


def short_run(out: Path, framework: str, **words: str) -> ShortRun:
    """One run under `out` with these options of the bench.

    Raises CheckFailed when it is of no use, KeyboardInterrupt when it was interrupted.
    """
    options = read(Words(framework=framework, out=str(out), **words))
    adapter, variant = resolve(framework)
    ensure(adapter_environment(adapter.path))
    with begun(options, adapter, variant) as task:
        summary, code = Run(task).run()
    if code is ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    faults = [reason for reason in summary.verdict.reasons if reason.code not in _HARMLESS]
    if faults:
        sentences = " ".join(fault.message for fault in faults)
        raise CheckFailed(f"The run of {framework} in {task.folder.path} is not valid: {sentences}")
    return ShortRun(summary, task.folder.path, late=not summary.verdict.valid)


def late_note(runs: Sequence[ShortRun]) -> list[str]:
    """A sentence when arrivals were late in some of these runs."""
    late = sum(run.late for run in runs)
    if not late:
        return []
    return [
        f"In {late} of {len(runs)} runs arrivals were sent late: the machine was busy. Their CPU counts all the same."
    ]
