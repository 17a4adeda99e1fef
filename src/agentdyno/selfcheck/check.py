"""What a check is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentdyno.contract.errors import UserError
from agentdyno.rig.cores import CorePlan
from agentdyno.selfcheck.result import Figure

QUICK_SCALE = 0.05
_LEAST_S = 1.0


class CheckFailed(UserError):
    """A check that could not be measured; the text says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how long to measure. folder: this check's own. quick: everything short and once, for trying.

    cores: the server under test gets the host's, everything else the rest, as in a run.
    """

    folder: Path
    quick: bool
    cores: CorePlan

    def seconds(self, full_s: float) -> float:
        """How long to measure what takes `full_s` in earnest."""
        return max(_LEAST_S, full_s * QUICK_SCALE) if self.quick else full_s

    def repeats(self, full: int) -> int:
        """How often to repeat what is repeated `full` times in earnest."""
        return 1 if self.quick else full

    def count(self, full: int) -> int:
        """How many of what there are `full` in earnest."""
        return max(1, round(full * QUICK_SCALE)) if self.quick else full


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check has measured, and sentences that a reader of the figures needs."""

    figures: Sequence[Figure]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One check. measure: raises CheckFailed, ChildFailed, OSError or UserError when it cannot."""

    name: str
    title: str
    measure: Callable[[Setting], Findings]
