"""The traced requests of a run and what happened in each: phases, time split and critical path are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.analysis.run_data import RunData
from agentdyno.contract.phases import Phase, covered
from agentdyno.contract.run import Outcome
from agentdyno.record.spans import SpanKind

_INNER = (SpanKind.CHAT, SpanKind.TOOL, SpanKind.PLANNING)
_READ = (SpanKind.REQUEST, SpanKind.SERVED, *_INNER)


class Event(NamedTuple):
    """A call or a stretch of planning within a request; ns on the run's clock."""

    kind: SpanKind
    name: str
    phase: Phase | None
    start_ns: int
    end_ns: int

    @property
    def title(self) -> str:
        """The phase, and the name where that says more."""
        if self.phase is None or self.phase == self.name:
            return self.name
        return f"{self.phase}: {self.name}"


@dataclass(slots=True)
class TracedRequest:
    """One request as its spans show it. events: chat, tool and planning. served: by the backend, within chat."""

    trace_id: str
    start_ns: int
    end_ns: int
    events: list[Event] = field(default_factory=list)
    served: list[Event] = field(default_factory=list)


def traced_requests(data: RunData) -> list[TracedRequest]:
    """The measured stage's traced and verified requests whose own span is on record; empty without traces."""
    if data.spans is None or data.requests is None:
        return []
    wanted = pa.array(data.requests.trace_ids(Outcome.OK), pa.string())
    spans = data.spans.select(["kind", "trace_id", "name", "phase", "start_monotonic_ns", "end_monotonic_ns"])
    spans = spans.filter(pc.and_(of_kinds(spans, _READ), pc.is_in(spans["trace_id"], wanted)))
    is_root = pc.equal(spans["kind"], SpanKind.REQUEST.value)
    roots, inner = spans.filter(is_root), spans.filter(pc.invert(is_root))
    del spans
    found = {
        trace_id: TracedRequest(trace_id, start_ns, end_ns)
        for trace_id, start_ns, end_ns in zip(_shared(roots["trace_id"]), *_times(roots), strict=True)
    }
    kinds, phases = {kind.value: kind for kind in SpanKind}, {phase.value: phase for phase in Phase}
    columns = (_shared(inner["kind"], kinds), _shared(inner["name"]), _shared(inner["phase"], phases))
    for trace_id, *facts in zip(_shared(inner["trace_id"]), *columns, *_times(inner), strict=True):
        request = found.get(trace_id)
        if request is not None:
            (request.served if facts[0] is SpanKind.SERVED else request.events).append(Event(*facts))
    return list(found.values())


def _shared(column: pa.ChunkedArray, as_: Mapping[str, Any] | None = None) -> list[Any]:
    """A column of texts; equal ones are one object, since a million copies would take the memory of a million.

    as_: what stands for each text (None for one that is not in it); null is None.
    """
    encoded = column.combine_chunks().dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    values = np.empty(len(texts) + 1, dtype=object)  # the last, None, is for null
    values[:-1] = texts if as_ is None else [as_.get(text) for text in texts]
    shared: list[Any] = values[encoded.indices.fill_null(len(texts)).to_numpy()].tolist()
    return shared


def _times(spans: pa.Table) -> tuple[list[int], list[int]]:
    return spans["start_monotonic_ns"].to_numpy().tolist(), spans["end_monotonic_ns"].to_numpy().tolist()


class Share(StrEnum):
    """What a request's time went into; the four add up to it.

    llm_wait: the backend served a call (the whole call where the backend tells no spans). llm_client: in a call at
    the host's border and not in the backend: the HTTP client, the sockets, and waiting for the event loop. tool: a tool
    body ran. framework: all else, which is the framework's own.
    """

    LLM_WAIT = "llm_wait"
    LLM_CLIENT = "llm_client"
    TOOL = "tool"
    FRAMEWORK = "framework"


_PRECEDENCE = (Share.TOOL, Share.LLM_WAIT, Share.LLM_CLIENT)


def time_split(request: TracedRequest) -> dict[Share, int]:
    """How much of a request's time each took, ns; a moment that two would claim goes to tool, then to the LLM."""
    calls = Share.LLM_CLIENT if request.served else Share.LLM_WAIT
    shares = {SpanKind.TOOL: Share.TOOL, SpanKind.CHAT: calls}
    stretches = [(shares[e.kind], e.start_ns, e.end_ns) for e in request.events if e.kind in shares]
    stretches += [(Share.LLM_WAIT, e.start_ns, e.end_ns) for e in request.served]
    begin_ns, end_ns = request.start_ns, request.end_ns
    inside = [(share, max(start, begin_ns), min(end, end_ns)) for share, start, end in stretches]
    took = covered([one for one in inside if one[1] < one[2]], _PRECEDENCE)
    took[Share.FRAMEWORK] = end_ns - begin_ns - sum(took.values())
    return took


class Step(NamedTuple):
    """A piece of a request's critical path. name: phase and event, or the phase alone of what lies between."""

    name: str
    took_ns: int


def critical_path(request: TracedRequest) -> list[Step]:
    """What the end of the request waited for, from its start to its end; the steps add up to the whole.

    Backwards from the end: of the events that began before, the one that ended last, then again from its start. Of
    three tools at once so only the last to end is on the path, and what began before it.
    """
    steps: list[Step] = []
    begin_ns, at_ns, after = request.start_ns, request.end_ns, _last_gap(request)
    for event in reversed(sorted(request.events, key=_by_end)):  # noqa: C413 - of equals the last comes first
        start_ns, end_ns = event.start_ns, event.end_ns
        if start_ns >= at_ns:
            continue
        if end_ns < at_ns:
            steps.append(Step(after, at_ns - end_ns))
            at_ns = end_ns
        start_ns = max(start_ns, begin_ns)
        steps.append(Step(event.title, at_ns - start_ns))
        at_ns, after = start_ns, Phase.FRAMEWORK.value
    if at_ns > begin_ns:
        steps.append(Step(Phase.PARSE.value if steps else Phase.FRAMEWORK.value, at_ns - begin_ns))
    return steps[::-1]


def _by_end(event: Event) -> tuple[int, int]:
    return event.end_ns, -event.start_ns


def _last_gap(request: TracedRequest) -> str:
    last = max(request.events, key=lambda event: event.end_ns, default=None)
    return Phase.RESPOND.value if last is not None and last.phase is Phase.REFLECT else Phase.FRAMEWORK.value


def of_kinds(spans: pa.Table, kinds: Sequence[SpanKind]) -> pa.ChunkedArray:
    """Which rows of the span table are of these kinds."""
    return pc.is_in(spans["kind"], pa.array([kind.value for kind in kinds]))
