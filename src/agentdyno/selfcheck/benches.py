"""Short runs of the real rig, for the checks that compare frameworks or ask what a run costs."""

from __future__ import annotations

from pathlib import Path

from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import Summary
from agentdyno.record.folder import RunFolder
from agentdyno.rig.building import ensure
from agentdyno.rig.environments import adapter_environment
from agentdyno.rig.frameworks import resolve
from agentdyno.rig.interruption import Interruption
from agentdyno.rig.options import Words, read
from agentdyno.rig.run import Run
from agentdyno.selfcheck.check import CheckFailed


def short_run(out: Path, framework: str, **words: str) -> tuple[Summary, Path]:
    """One run under `out` with these options of the bench; its summary and its folder.

    Raises CheckFailed when it is not valid, KeyboardInterrupt when it was interrupted.
    """
    options = read(Words(framework=framework, out=str(out), **words))
    adapter, variant = resolve(framework)
    ensure(adapter_environment(adapter.path))
    with Interruption() as interruption:
        folder = RunFolder.create(options.out, variant.name)
        summary, code = Run(options, adapter, variant, folder, interruption).run()
    if code is ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code is not ExitCode.VALID:
        reasons = " ".join(finding.message for finding in summary.verdict.reasons)
        raise CheckFailed(f"The run of {framework} in {folder.path} is not valid: {reasons}")
    return summary, folder.path
