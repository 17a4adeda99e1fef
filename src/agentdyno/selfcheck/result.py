"""What a check finds: figures with their spread and their goals."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from statistics import median

import msgspec

from agentdyno.contract.run import SCHEMA_VERSION
from agentdyno.record.calibration import Calibration
from agentdyno.record.manifest import Machine


class Relation(StrEnum):
    """How a figure must stand to its goal."""

    AT_MOST = "<="
    AT_LEAST = ">="
    EXACTLY = "=="


class Goal(msgspec.Struct, frozen=True):
    """What a figure must be. An exact goal holds for every repeat, the others for the median."""

    relation: Relation
    bound: float

    def met_by(self, values: tuple[float, ...]) -> bool:
        """Whether these repeats meet it."""
        if self.relation is Relation.EXACTLY:
            return all(value == self.bound for value in values)
        middle = median(values)
        return middle <= self.bound if self.relation is Relation.AT_MOST else middle >= self.bound


def at_most(bound: float) -> Goal:
    """The goal that the median is no more than `bound`."""
    return Goal(Relation.AT_MOST, bound)


def at_least(bound: float) -> Goal:
    """The goal that the median is no less than `bound`."""
    return Goal(Relation.AT_LEAST, bound)


def exactly(bound: float) -> Goal:
    """The goal that every repeat is `bound`."""
    return Goal(Relation.EXACTLY, bound)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over the repeats of a check; make it with `figure`.

    median, min, max: None when a repeat did not measure it. met: None where there is no goal; False also where what
    has a goal was not measured.
    """

    name: str
    unit: str
    median: float | None
    min: float | None
    max: float | None
    values: tuple[float | None, ...]
    goal: Goal | None
    met: bool | None


def figure(name: str, unit: str, values: Iterable[float | None], goal: Goal | None = None) -> Figure:
    """The figure of these repeats. unit: "" for a plain number or a ratio."""
    found = tuple(values)
    known = tuple(value for value in found if value is not None)
    if not known or len(known) < len(found):
        none = None if goal is None else False
        return Figure(name=name, unit=unit, median=None, min=None, max=None, values=found, goal=goal, met=none)
    return Figure(
        name=name,
        unit=unit,
        median=median(known),
        min=min(known),
        max=max(known),
        values=found,
        goal=goal,
        met=None if goal is None else goal.met_by(known),
    )


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check. notes: sentences on how it was measured or what was seen. failed: why there are no figures."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    failed: str | None = None
    took_s: float
    load_average_before: float | None
    load_average_after: float | None

    @property
    def met(self) -> bool:
        """Whether it was measured and all its goals are met."""
        return self.failed is None and all(figure.met is not False for figure in self.figures)


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`selfcheck.json`. quick: a short run for trying, whose figures prove nothing. met: all goals of all checks.

    calibration: a fixed loop on the host's core, timed before and after; a wide spread, or two medians that differ,
    say that the machine was not this program's alone.
    """

    schema_version: int = SCHEMA_VERSION
    agentdyno: str
    commit: str | None
    started_utc: str
    quick: bool
    machine: Machine
    cores: dict[str, list[int] | None]
    calibration: dict[str, Calibration]
    met: bool
    interrupted: bool
    checks: tuple[CheckResult, ...]
