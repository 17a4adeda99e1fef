"""The self-check as a table for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentdyno.analysis.metrics import rounded
from agentdyno.selfcheck.result import CheckResult, Figure, SelfCheck

# Runnable processes over the minute before; above it others are at work.
QUIET_LOAD = 1.0


def print_selfcheck(report: SelfCheck, console: Console) -> None:
    """Every figure with its spread and goal, then in sentences what is missed."""
    machine = report.machine
    console.print(Text(f"{machine.cpu_model or machine.architecture}, {machine.cores_usable} cores", "italic"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("check", "figure"):
        table.add_column(column)
    for column in ("median", "min .. max", "goal", ""):
        table.add_column(column, justify="right")
    for check in report.checks:
        for number, figure in enumerate(check.figures):
            table.add_row(Text(check.name if number == 0 else "", "bold"), *_cells(figure))
        if check.failed is not None:
            table.add_row(Text(check.name, "bold"), Text("not measured"), "", "", "", Text("failed", "bold red"))
    console.print(table)
    for check in report.checks:
        for note in check.notes:
            console.print(Text(f"{check.name}: {note}", "dim"))
    for sentence in _faults(report):
        console.print(Text(sentence))
    if report.quick:
        console.print(Text("This was a quick run, for trying: its figures prove nothing."))
    words = Text("all goals are met", "bold green") if report.met else Text("not all goals are met", "bold red")
    console.print(Text.assemble("Self-check: ", words))


def _cells(figure: Figure) -> list[Text]:
    met = {True: Text("met", "green"), False: Text("missed", "bold red"), None: Text("")}[figure.met]
    goal = "" if figure.goal is None else f"{figure.goal.relation.value} {figure.goal.bound:g}"
    if figure.median is None or figure.min is None or figure.max is None:
        return [Text(figure.name), Text("-"), Text(""), Text(goal), met]
    spread = f"{rounded(figure.min)} .. {rounded(figure.max)}" if len(figure.values) > 1 else ""
    unit = f" {figure.unit}".rstrip()
    return [Text(figure.name), Text(rounded(figure.median) + unit), Text(spread), Text(goal), met]


def _faults(report: SelfCheck) -> list[str]:
    said = ["The self-check was interrupted; what is missing was not measured."] if report.interrupted else []
    load = report.checks[0].load_average_before if report.checks else None
    if load is not None and load > QUIET_LOAD:
        said.append(
            f"The machine was not quiet when this began (load average {load:.1f}): what is missed may be its doing."
        )
    for check in report.checks:
        if check.failed is not None:
            said.append(f"{check.name} could not be measured. {check.failed}")
        said += [_missed(check, figure) for figure in check.figures if figure.met is False]
    return said


def _missed(check: CheckResult, figure: Figure) -> str:
    if figure.median is None or figure.goal is None:
        return f"{check.name}: {figure.name} was not measured."
    wanted = f"{figure.goal.relation.value} {figure.goal.bound:g}"
    return (
        f"{check.name}: {figure.name} is {rounded(figure.median)} {figure.unit}".rstrip() + f", and should be {wanted}."
    )
