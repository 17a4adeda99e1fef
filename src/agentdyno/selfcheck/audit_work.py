"""The work that check `audit` times, in a process of its own: `python -m agentdyno.selfcheck.audit_work RUN`.

Prints one line of JSON: seconds, this process's peak memory, and what the audit found.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import msgspec

from agentdyno.audit.run import audit_run


class AuditTook(msgspec.Struct, frozen=True, kw_only=True):
    """One audit. figures: how many values it compared; faults: as sentences."""

    audit_s: float
    cpu_s: float
    peak_mb: float
    figures: int
    faults: list[str]


def work(run: Path) -> AuditTook:
    """Do it once."""
    begin = time.monotonic()
    found = audit_run(run)
    return AuditTook(
        audit_s=time.monotonic() - begin,
        cpu_s=time.process_time(),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,  # Linux tells kilobytes
        figures=found.figures,
        faults=[str(fault) for fault in found.faults],
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(work(Path(sys.argv[1]))) + b"\n")
