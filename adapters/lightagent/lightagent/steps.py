"""Planning without an LLM: declared steps, each naming a tool and where its arguments come from.

The order follows from the data: a step runs once the steps that it takes something from are over, and all
steps that can run do so at once. A step is left out when the request does not offer its tool, or when an
argument is not to be found (the input holds no order id; the step before failed); then so are the steps that
take something from it. The LLM sees what was done and answers from that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

import orjson

from lightagent.calls import ToolCall
from lightagent.errors import PlanError
from lightagent.planner import Decision, Plan
from lightagent.task import Task


@dataclass(frozen=True, slots=True)
class FromInput:
    """An argument from the user's input: what the pattern matches first (its first group, if it has groups)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class FromStep:
    """An argument from an earlier step's result: the whole text, or what the pattern matches first in it."""

    step: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument that is always the same."""

    value: Any


Source = FromInput | FromStep | Constant


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan.

    arguments: the source of each argument. name: for other steps to refer to; the tool's when it is empty.
    after: steps that must be over before, beside those that the arguments come from.
    """

    tool: str
    arguments: Mapping[str, Source] = field(default_factory=dict)
    name: str = ""
    after: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What other steps call it."""
        return self.name or self.tool

    @property
    def needs(self) -> frozenset[str]:
        """The steps that must be over before this one."""
        return frozenset(self.after) | {it.step for it in self.arguments.values() if isinstance(it, FromStep)}


class StateMachinePlanner:
    """Plans by the declared steps.

    planning: called for each decision, its context manager is held while deciding; for a host that accounts
    for planning time. Raises PlanError when the steps cannot work.
    """

    def __init__(
        self, steps: Sequence[Step], *, planning: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._planning = planning
        self._waves = _waves(steps)

    def begin(self, task: Task) -> Plan:
        """Start the planning of a request."""
        return _StepPlan(self._waves, task, self._planning)


class _StepPlan:
    """How far a request has come: the next wave, and the step behind each of the task's results."""

    __slots__ = ("_planning", "_task", "_wave", "_waves", "_which")

    def __init__(
        self, waves: list[list[_ReadyStep]], task: Task, planning: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._waves = waves
        self._task = task
        self._planning = planning
        self._wave = 0
        self._which: list[str] = []

    async def decide(self) -> Decision:
        with self._planning():
            results = {
                name: result.text for name, result in zip(self._which, self._task.results, strict=True) if result.ok
            }
            calls: list[ToolCall] = []
            while not calls and self._wave < len(self._waves):
                for step in self._waves[self._wave]:
                    arguments = step.arguments(self._task.input, results) if step.tool in self._task.tools else None
                    if arguments is not None:
                        self._which.append(step.label)
                        text = orjson.dumps(arguments).decode()
                        calls.append(ToolCall(f"call_{len(self._which)}", step.tool, text, arguments))
                self._wave += 1
            return Decision(tuple(calls))


class _ReadyStep:
    """A step with its patterns compiled."""

    __slots__ = ("_sources", "label", "tool")

    def __init__(self, step: Step) -> None:
        self.label = step.label
        self.tool = step.tool
        self._sources = [(name, _finder(source, step.label)) for name, source in step.arguments.items()]

    def arguments(self, text: str, results: Mapping[str, str]) -> dict[str, Any] | None:
        """The step's arguments, or None when one is not to be found."""
        found = {}
        for name, find in self._sources:
            value = find(text, results)
            if value is None:
                return None
            found[name] = value
        return found


def _finder(source: Source, label: str) -> Callable[[str, Mapping[str, str]], Any]:
    if isinstance(source, Constant):
        return lambda text, results: source.value
    try:
        pattern = re.compile(source.pattern) if source.pattern is not None else None
    except re.error as error:
        raise PlanError(f"Step {label!r} has a pattern that is no regular expression: {error}.") from error
    if isinstance(source, FromInput):
        return lambda text, results: _first(pattern, text)
    return lambda text, results: _first(pattern, results.get(source.step))


def _first(pattern: re.Pattern[str] | None, text: str | None) -> str | None:
    if pattern is None or text is None:
        return text
    match = pattern.search(text)
    return match and match.group(1 if pattern.groups else 0)


def _waves(steps: Sequence[Step]) -> list[list[_ReadyStep]]:
    """The steps in the order in which they run; those of one wave run at once."""
    by_label = {step.label: step for step in steps}
    if len(by_label) < len(steps):
        raise PlanError("Two steps of the plan have the same name; give them names of their own.")
    for step in steps:
        for missing in sorted(step.needs - by_label.keys()):
            raise PlanError(f"Step {step.label!r} refers to {missing!r}, but the plan has no such step.")
    sorter = TopologicalSorter({step.label: step.needs for step in steps})
    try:
        sorter.prepare()
    except CycleError as error:
        raise PlanError(f"These steps wait for each other: {', '.join(error.args[1])}.") from error
    waves = []
    while sorter.is_active():
        ready = set(sorter.get_ready())
        waves.append([_ReadyStep(step) for step in steps if step.label in ready])
        sorter.done(*ready)
    return waves
