"""A capacity search in the terminal: each step while it goes on, the curve and what was found at the end."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentdyno.analysis.metrics import rounded
from agentdyno.contract.capacity import Aftermath, Answer, CapacityResult, StepResult
from agentdyno.contract.run import Outcome

_STYLES = {Answer.MET: "green", Answer.NOT_MET: "red", Answer.NOT_TOLD: "yellow", Answer.INVALID: "dim"}


def step_line(step: StepResult) -> str:
    """One step as a line of progress."""
    return f"{step.number} {step.kind.value} {step.rate:g}/s: {step.answer.value}. {step.sentence}"


def print_capacity(result: CapacityResult, console: Console) -> None:
    """The curve from below to beyond, in the order of rates, then the capacity and what came after the overload."""
    framework = result.framework
    objective = ", ".join(str(clause) + (" (implied)" if clause.implied else "") for clause in result.objective)
    console.print(Text(f"{framework.name}: the highest constant rate with {objective}", "italic"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("rate/s", "answered/s", "p50 ms", "p99 ms", "ok", "not ok", "recovered s"):
        table.add_column(column, justify="right", style="dim" if column == "recovered s" else None)
    for column in ("step", "answer"):
        table.add_column(column)
    for step in sorted(result.steps, key=lambda each: (each.rate, each.number)):
        table.add_row(*_cells(step), Text(step.answer.value, _STYLES[step.answer]))
    console.print(table)
    if result.capacity_rps is not None:
        console.print(Text.assemble("Capacity: ", (f"{result.capacity_rps:g} requests a second", "bold green")))
    elif result.at_least_rps is not None:
        console.print(Text.assemble("Capacity: ", (f"at least {result.at_least_rps:g} requests a second", "bold")))
    else:
        console.print(Text.assemble("Capacity: ", ("none found", "bold red")))
    console.print(Text(result.reason))
    if result.warning is not None:
        console.print(Text(result.warning))
    for step in result.steps:
        if step.number == result.overload_step:
            console.print(Text(after_overload(step)))


def after_overload(step: StepResult) -> str:
    """What the end of the highest overload looked like, in a sentence or two."""
    after = step.aftermath
    parts = [f"After {step.seconds:g} s of {step.rate:g}/s the host was {_drained(after)}, and {_recovered(after)}."]
    if after.left:
        parts.append(f"{after.left} clients had left{_in_vain(after)}.")
    elif after.llm_calls_in_vain:
        parts.append(f"No client had left; {after.llm_calls_in_vain} LLM calls came to no answer.")
    else:
        parts.append("No client had left, and no work was done in vain.")
    return " ".join(parts)


def _drained(after: Aftermath) -> str:
    if after.drained_s is None:
        return "not seen empty"
    return f"empty {after.drained_s:.1f} s later"


def _recovered(after: Aftermath) -> str:
    if after.recovered_s is None:
        return "did not get back to its idle latency within the time for it"
    return f"back at its idle latency after {after.recovered_s:.1f} s"


def _in_vain(after: Aftermath) -> str:
    known = [
        f"{count} {what}"
        for count, what in (
            (after.answered_in_vain, "answers were finished that nobody took"),
            (after.llm_calls_in_vain, "LLM calls were served for requests that came to no answer"),
            (after.llm_calls_broken_off, "LLM calls were broken off"),
        )
        if count is not None
    ]
    return f": {', '.join(known)}" if known else ""


def _cells(step: StepResult) -> list[Text]:
    ok = step.outcomes.get(Outcome.OK.value, 0)
    bad = ", ".join(f"{count} {name}" for name, count in step.outcomes.items() if count and name != Outcome.OK.value)
    figures = [
        f"{step.rate:g}",
        _figure(step.goodput_rps),
        _figure(step.latency_ms.p50),
        _figure(step.latency_ms.p99),
        f"{ok:,}",
        bad or "-",
        _figure(step.aftermath.recovered_s),
        f"{step.number} {step.kind.value}",
    ]
    return [Text(text) for text in figures]


def _figure(value: float | None) -> str:
    return "-" if value is None else rounded(value)
