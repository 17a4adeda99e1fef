"""Is one request's trace whole? The rules that hold for every framework, each broken one as a sentence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agentdyno.contract.invoke import Usage
from agentdyno.contract.phases import Stretch, tile
from agentdyno.record.span_table import SpanReader
from agentdyno.record.spans import Span, SpanKind

_POLL_S = 0.05
_HOST_KINDS = (SpanKind.CHAT, SpanKind.TOOL, SpanKind.PLANNING, SpanKind.DERIVED)


def wait_for_trace(raw: Path, trace_id: str, enough: Callable[[list[Span]], bool], within_s: float) -> list[Span]:
    """The spans of a trace that a recorder has kept in `raw`: once they are enough, or when the time is up."""
    deadline = time.monotonic() + within_s
    while True:
        spans = [span for span in SpanReader(raw, "").recorded() if span.trace_id == trace_id]
        if enough(spans) or time.monotonic() > deadline:
            return spans
        time.sleep(_POLL_S)


def of_kind(spans: list[Span], *kinds: SpanKind) -> list[Span]:
    """Those of some kinds, by their start."""
    return sorted((span for span in spans if span.kind in kinds), key=lambda span: span.start_ns)


def faults(spans: list[Span], parent_span_id: str, usage: Usage | None, *, plans_with_llm: bool) -> Iterator[str]:
    """What is wrong with a trace. parent_span_id: the caller's span. usage: of the answer, None when there was none."""
    roots = of_kind(spans, SpanKind.REQUEST)
    if len(roots) != 1:
        yield f"There are {len(roots)} spans of the request itself; there must be one."
        return
    root = roots[0]
    if root.parent_span_id != parent_span_id:
        yield f"The request's span is a child of {root.parent_span_id}, not of the caller's {parent_span_id}."
    yield from _within(spans, root)
    yield from _tiling(spans, root)
    if usage is not None:
        yield from _counts(spans, usage, plans_with_llm)


def _within(spans: list[Span], root: Span) -> Iterator[str]:
    for span in of_kind(spans, *_HOST_KINDS):
        if span.parent_span_id != root.span_id:
            yield f"The span {span.name!r} is not a child of the request's."
        if not root.start_ns <= span.start_ns <= span.end_ns <= root.end_ns:
            yield f"The span {span.name!r} does not lie within the request's."
    calls = {span.span_id for span in of_kind(spans, SpanKind.CHAT)}
    for span in of_kind(spans, SpanKind.SERVED):
        if span.parent_span_id not in calls:
            yield "The backend served a call that is no child of a call at the host's border."


def _tiling(spans: list[Span], root: Span) -> Iterator[str]:
    inner = [s for s in of_kind(spans, *_HOST_KINDS) if s.kind is not SpanKind.DERIVED and s.phase is not None]
    stretches = [Stretch(s.phase, s.start_ns, s.end_ns) for s in inner if s.phase is not None]
    took = tile(root.start_ns, root.end_ns, stretches)
    if sum(took.values()) != root.end_ns - root.start_ns:
        yield f"The phases add up to {sum(took.values())} ns, the request took {root.end_ns - root.start_ns} ns."
    for span in of_kind(spans, SpanKind.DERIVED):
        if span.phase is not None and took[span.phase] != span.end_ns - span.start_ns:
            yield f"The span {span.name!r} takes another time than the phase."


def _counts(spans: list[Span], usage: Usage, plans_with_llm: bool) -> Iterator[str]:
    for kind, count, what in (
        (SpanKind.CHAT, usage.llm_calls + usage.retries, "LLM calls"),
        (SpanKind.TOOL, usage.tool_calls, "tool calls"),
        (SpanKind.SERVED, usage.llm_calls, "calls that the backend served"),
    ):
        found = of_kind(spans, kind)
        if len(found) != count:
            yield f"There are {len(found)} spans of {what}; the answer says {count}."
        failed = [span.error for span in found if span.error is not None]
        if len(failed) > usage.retries:
            yield f"Of the spans of {what} {len(failed)} say that they failed ({failed[0]}) in a verified answer."
    planned = of_kind(spans, SpanKind.PLANNING)
    if plans_with_llm and planned:
        yield "The adapter declares that an LLM plans, and marks planning of its own."
    if not plans_with_llm and not planned:
        yield "The adapter declares that it plans without an LLM; it must mark that with host.border.planning()."
