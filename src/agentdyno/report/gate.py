"""`agentdyno check`: the gate for people, in the terminal and as Markdown for a pull request."""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from agentdyno.analysis.gate import By, Gate, GateRow, Outcome, gate
from agentdyno.analysis.limits import LimitError, read_limits
from agentdyno.analysis.metrics import rounded
from agentdyno.analysis.sides import read_side
from agentdyno.analysis.unpaired import UnpairedRatio
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode

_HEADS = ("", "framework", "metric", "baseline", "candidate", "change [95 % interval]", "other", "limit", "why")
_CONCLUSIONS = {
    ExitCode.VALID: "passed",
    ExitCode.GATE_FAILED: "failed",
    ExitCode.INVALID_RUN: "cannot tell",
}


def check(
    baseline: Path,
    candidate: Path,
    at_most: Sequence[str] = (),
    at_least: Sequence[str] = (),
    frameworks: Sequence[str] = (),
    load: str | None = None,
    markdown: Path | None = None,
) -> ExitCode:
    """Run the gate and print it. markdown: also written there, in the place of what the file holds.

    Raises LimitError, SideError or FolderError for what the user can mend.
    """
    limits = read_limits(at_most, at_least)
    found = gate(read_side(baseline), read_side(candidate), limits, frameworks, _load(load))
    sys.stdout.write(gate_text(found))
    if markdown is not None:
        try:
            markdown.write_text(gate_markdown(found), encoding="utf-8")
        except OSError as error:
            raise UserError(f"The Markdown cannot be written to {markdown}: {error.strerror}.") from error
    return found.exit_code


def _load(name: str | None) -> LoadName | None:
    known = [load.value for load in LoadName]
    if name is not None and name not in known:
        raise LimitError(f"--load: there is no load {name!r}. There are: {', '.join(known)}.")
    return None if name is None else LoadName(name)


def gate_text(found: Gate) -> str:
    """A line for each limit, the warnings, and the conclusion last."""
    lines = [_line(row) for row in found.rows]
    lines += [f"note         {warning}" for warning in found.warnings]
    return "".join(f"{line}\n" for line in [*lines, _conclusion(found)])


def _line(row: GateRow) -> str:
    unit = row.limit.metric.unit
    figures = " -> ".join(_figure(value, unit) for value in (row.baseline, row.candidate))
    changes = "; ".join(f"{by} {change(ratio)}" for by, ratio in _ratios(row))
    where = f"{row.label} {row.limit.metric.name}{f' ({row.load})' if row.load is not None else ''}"
    return f"{row.outcome:12} {where}: {figures}; {changes}; limit {row.limit}: {row.sentence}."


def _ratios(row: GateRow) -> list[tuple[str, UnpairedRatio]]:
    """Both ratios with their names, the one that decided first."""
    named = [("raw", row.raw), *([("by the control", row.by_control)] if row.by_control is not None else [])]
    return named[::-1] if row.decided_by is By.CONTROL else named


def _conclusion(found: Gate) -> str:
    counts = {outcome: sum(row.outcome is outcome for row in found.rows) for outcome in Outcome}
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"Gate: {_CONCLUSIONS[found.exit_code]} ({parts})."


def gate_markdown(found: Gate) -> str:
    """A heading, a table with a row for each limit, and the warnings. Names stand as they are, never as markup."""
    lines = [f"## AgentDyno: {_CONCLUSIONS[found.exit_code]}", ""]
    heads = (
        "",
        "framework",
        "metric",
        "baseline",
        "candidate",
        "change [95 % interval]",
        "other ratio",
        "limit",
        "why",
    )
    lines += [_row(heads), _row(("---", "---", "---", "---:", "---:", "---:", "---:", "---:", "---"))]
    lines += [_row(_cells(row, found)) for row in found.rows]
    lines += ["", "Change: candidate over baseline, all rounds of either; by the control where it says so."]
    lines += [f"- {_plain(warning)}" for warning in found.warnings]
    return "\n".join(lines) + "\n"


def _cells(row: GateRow, found: Gate) -> tuple[str, ...]:
    metric = row.limit.metric
    before, after = found.versions[row.label]
    version = f" {before or '-'} -> {after or '-'}" if before or after else ""
    load = f", {row.load}" if row.load is not None else ""
    (first, deciding), *others = _ratios(row)
    return (
        f"**{row.outcome}**",
        _plain(f"{row.label}{version}"),
        _plain(f"{metric.title}{load}"),
        _figure(row.baseline, metric.unit),
        _figure(row.candidate, metric.unit),
        f"{change(deciding)}{' by the control' if first != 'raw' else ''}",
        "; ".join(f"{change(ratio)} {name}" for name, ratio in others) or "-",
        str(row.limit),
        _plain(row.sentence),
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    escaped = html.escape(text, quote=False)
    for mark in "\\`*_[]|":
        escaped = escaped.replace(mark, f"\\{mark}")
    return " ".join(escaped.split())


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{rounded(value)} {unit}".rstrip()


def change(ratio: UnpairedRatio) -> str:
    """A ratio as a change in percent, with its interval."""
    if ratio.median is None:
        return "not measured"
    middle = _percent(ratio.median)
    if ratio.low is None or ratio.high is None:
        return f"{middle} [no interval]"
    return f"{middle} [{_percent(ratio.low)}, {_percent(ratio.high)}]"


def _percent(ratio: float) -> str:
    return "from 0" if math.isinf(ratio) else f"{(ratio - 1) * 100:+.1f} %"
