"""`agentdyno trace`: where a run's time went, the waterfalls of its slowest requests, and the heap at that time."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentdyno.analysis.critical_path import usual_path
from agentdyno.analysis.phases import (
    PhaseTable,
    phase_table,
    phase_times,
    span_ledger,
    split_times,
    time_of,
)
from agentdyno.analysis.run_data import RunData, read_run
from agentdyno.analysis.served import backend_times, in_words
from agentdyno.analysis.tiling import Share
from agentdyno.analysis.traces import TracedRequest, of_kinds
from agentdyno.contract.errors import UserError
from agentdyno.contract.phases import Phase
from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import CriticalPath, PhaseTime
from agentdyno.record.heap_folder import HEAP_FOLDER, HeapIndex, covering, read_index
from agentdyno.record.span_table import spans_of
from agentdyno.record.spans import Span, SpanKind

_SHARES = {
    Share.LLM_WAIT: "waiting for the LLM (the backend served)",
    Share.LLM_CLIENT: "LLM calls outside it (client, event loop)",
    Share.TOOL: "tools",
    Share.FRAMEWORK: "the framework itself",
}
_STYLES = {Phase.PLAN: "cyan", Phase.TOOL: "yellow", Phase.REFLECT: "green", Phase.PARSE: "dim", Phase.RESPOND: "dim"}
_NAME_WIDTH = 34
_NUMBER_WIDTH = 9
_LEAST_BAR = 10
_NATIVE_MARK = "~ "


def find_run(text: str, runs: Path) -> Path:
    """The run folder that `text` names: a path, or the beginning of one run's name under `runs`. Raises UserError."""
    if (Path(text) / "manifest.json").is_file():
        return Path(text)
    found = sorted(folder.parent for folder in runs.glob("*/manifest.json") if folder.parent.name.startswith(text))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(f"{text!r} is no run folder, and no run under {runs} begins with it.")
    names = ", ".join(folder.name for folder in found[:5]) + (", ..." if len(found) > 5 else "")
    raise UserError(f"{text!r} is the beginning of {len(found)} runs: {names}. Write more of the name.")


def show_trace(text: str, *, slowest: int, runs: Path) -> ExitCode:
    """Print the tables of one run. Raises UserError when there is no such run, or its files cannot be read."""
    data = read_run(find_run(text, runs))
    print_trace(data, Console(file=sys.stdout), slowest=slowest)
    return ExitCode.VALID


def print_trace(data: RunData, console: Console, *, slowest: int = 0) -> None:
    """The phase table, the time split, the critical path, and so many waterfalls."""
    framework = data.manifest.framework
    table = phase_table(data)
    if table is None:
        console.print(Text(_why_not(data)))
        return
    version = f" {framework.version}" if framework.version else ""
    console.print(
        Text(
            f"{framework.name}{version}, scenario {data.manifest.plan.scenario}: "
            f"{len(table.traces)} traced and verified requests of the measured stage",
            "italic",
        )
    )
    _print_times("Phase, ms", _phase_rows(table), console)
    _print_times("What the time went into, ms", _split_rows(table), console)
    if within := in_words(backend_times(data)):
        console.print(Text(within))
    _print_path(usual_path(table.traces), console)
    spans = span_ledger(data)
    line = f"Spans: {spans.expected} expected, {spans.received} received, {spans.orphaned} orphaned"
    console.print(Text(f"{line}, {spans.dropped} records dropped by their sender."))
    if data.manifest.native_spans is not None:
        console.print(Text(_native_line(data, data.manifest.native_spans)))
    heap = read_index(data.path) if slowest else None
    for request in table.traces.slowest(slowest):
        _print_waterfall(data, request, console)
        if heap is not None:
            _print_heap(data.path, heap, request, console)


def _why_not(data: RunData) -> str:
    name = data.manifest.run_id
    if not data.manifest.plan.trace_every:
        return f"{name} was not traced (TRACES=off), so there is nothing to show of its phases."
    if data.spans is None:
        return f"{name} has no spans.parquet: it did not come to the end where that is written."
    return f"Not one traced request of the measured stage of {name} was verified, so there are no phases to show."


def _native_line(data: RunData, about: dict[str, Any]) -> str:
    if data.spans is None:
        return ""
    native = data.spans.filter(of_kinds(data.spans, (SpanKind.NATIVE,)))
    placed = pc.sum(pc.is_in(native["parent_span_id"], data.spans["span_id"])).as_py() or 0
    return (
        f"The framework's own spans ({about['title']}): {native.num_rows} of all stages, "
        f"{native.num_rows - placed} without their parent; marked with {_NATIVE_MARK.strip()} below."
    )


# the tables


def _phase_rows(table: PhaseTable) -> list[tuple[str, PhaseTime]]:
    rows = [(name, time) for name, time in phase_times(table).items() if time is not None]
    return [*rows, ("the whole request", time_of(table.total_ms, table))]


def _split_rows(table: PhaseTable) -> list[tuple[str, PhaseTime]]:
    times = split_times(table)
    return [(title, time) for share, title in _SHARES.items() if (time := times[share.value]) is not None]


def _print_times(title: str, rows: list[tuple[str, PhaseTime]], console: Console) -> None:
    shown = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column(title, no_wrap=True)
    for heading in ("p50", "p90", "p95", "p99", "mean", "share"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, time in rows:
        share = "-" if time.share is None else f"{time.share:.1%}"
        numbers = (time.p50, time.p90, time.p95, time.p99, time.mean)
        shown.add_row(Text(name), *map(_ms, numbers), share)
    console.print()
    console.print(shown)


def _print_path(path: CriticalPath, console: Console) -> None:
    whole = sum(step.mean for step in path.steps)
    shown = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column(f"Critical path of {path.requests} of {path.of_requests} requests", no_wrap=True)
    shown.add_column("mean ms", justify="right")
    shown.add_column("share", justify="right")
    for step in path.steps:
        shown.add_row(Text(step.name), _ms(step.mean), f"{step.mean / whole:.1%}" if whole else "-")
    console.print()
    console.print(shown)
    console.print()


def _ms(value: float | None) -> str:
    """Two decimals, three below a hundredth; a dash for too few samples."""
    return "-" if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"


# the waterfalls


@dataclass(frozen=True, slots=True)
class SpanLine:
    """A span and how deep it stands in its trace."""

    span: Span
    depth: int

    @property
    def name(self) -> str:
        """Indented by its depth, and marked when the framework's own instrumentation made it."""
        mark = _NATIVE_MARK if self.span.kind is SpanKind.NATIVE else ""
        return "  " * self.depth + mark + self.span.name


def _print_waterfall(data: RunData, request: TracedRequest, console: Console) -> None:
    """One line a span: name, offset and duration in ms, and a bar on the time of the whole trace."""
    if data.spans is None:
        return
    spans = list(spans_of(data.spans.filter(pc.equal(data.spans["trace_id"], request.trace_id))))
    lines = span_tree(spans)
    start_ns = min(span.start_ns for span in spans)
    whole_ns = max(1, max(span.end_ns for span in spans) - start_ns)
    names = max(_NAME_WIDTH, min(console.width // 3, max(len(line.name) for line in lines) + 1))
    width = max(_LEAST_BAR, console.width - names - 2 * _NUMBER_WIDTH - 1)
    took_ms = (request.end_ns - request.start_ns) / 1e6
    console.print()
    console.print(Text(f"Trace {request.trace_id}: {took_ms:.2f} ms in the host", "bold"))
    console.print(Text(f"{'':{names}}{'at ms':>{_NUMBER_WIDTH}}{'took ms':>{_NUMBER_WIDTH}}", "dim"))
    for line in lines:
        span = line.span
        name = _cut(line.name, names - 1)
        at_ms, span_ms = (span.start_ns - start_ns) / 1e6, (span.end_ns - span.start_ns) / 1e6
        numbers = f"{at_ms:{_NUMBER_WIDTH}.2f}{span_ms:{_NUMBER_WIDTH}.2f} "
        style = "red" if span.error is not None else _STYLES.get(span.phase, "") if span.phase else ""
        bar = _bar(span.start_ns - start_ns, span.end_ns - start_ns, whole_ns, width)
        console.print(Text.assemble(f"{name:{names}}{numbers}", (bar, style)), no_wrap=True, crop=True)
        if span.error is not None:
            console.print(Text(_cut(f"{'  ' * line.depth}  failed: {span.error}", console.width - 1), "red"))


def _print_heap(run: Path, index: HeapIndex, request: TracedRequest, console: Console) -> None:
    """The snapshots around the request's begin, and the flame graph that shows the heap as it was then."""
    found = covering(index, request.start_ns)
    if found is None:
        console.print(Text("Heap: no snapshot was had in this run.", "dim"))
        return
    before, after = (
        None if each is None else f"{each.file} ({each.seconds:g} s)" for each in (found.before, found.after)
    )
    place = f"before {after}" if before is None else f"after {before}" if after is None else f"{before} to {after}"
    console.print(Text(f"Heap: snapshots {place}; flame graph:", "dim"))
    console.print(Text(str(run / HEAP_FOLDER / found.page)), soft_wrap=True)


def span_tree(spans: list[Span]) -> list[SpanLine]:
    """Parents before their children, children by their start; one whose parent is not there stands at the left."""
    there = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = {}
    for span in sorted(spans, key=lambda s: (s.start_ns, -s.end_ns, s.kind is SpanKind.DERIVED)):
        parent = span.parent_span_id if span.parent_span_id in there else None
        children.setdefault(parent, []).append(span)
    lines: list[SpanLine] = []
    waiting = [SpanLine(span, 0) for span in reversed(children.get(None, []))]
    while waiting:
        line = waiting.pop()
        lines.append(line)
        waiting += [SpanLine(child, line.depth + 1) for child in reversed(children.pop(line.span.span_id, []))]
    return lines


def _bar(start_ns: int, end_ns: int, whole_ns: int, width: int) -> str:
    """At least one mark, however short, and within the width."""
    first = min(width - 1, start_ns * width // whole_ns)
    last = max(first + 1, min(width, -(-end_ns * width // whole_ns)))
    return " " * first + "\u2588" * (last - first)


def _cut(text: str, width: int) -> str:
    text = " ".join(text.splitlines()) if "\n" in text else text
    return text if len(text) <= width else text[: width - 1] + "\u2026"
