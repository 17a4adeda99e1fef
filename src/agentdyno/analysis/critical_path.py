"""What the end of a request waited for, step by step, and the path that most requests of a run took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from agentdyno.analysis.run_data import NS_PER_MS
from agentdyno.analysis.tiling import last_to_end
from agentdyno.analysis.traces import NO_PHASE, PHASES, Inner, Integers, Traces
from agentdyno.contract.phases import Phase
from agentdyno.contract.summary import CriticalPath, Step
from agentdyno.record.spans import SpanKind

_AT_ONCE = 50_000  # requests, whose steps are in memory
_STEPS_AT_ONCE = 2_000_000  # of those requests, each with room for as many as the longest has: 24 MB
_NONE = -1


@dataclass(slots=True)
class _Path:
    requests: int = 0
    sums_ns: list[float] = field(default_factory=list)


def usual_path(traces: Traces) -> CriticalPath:
    """The critical path that most requests took, of equals the first, with the mean time of each of its steps.

    A request's path goes backwards from its end: of the spans that began before, the one that ended last, then again
    from its start. Of three tools at once so only the last to end is on the path, and what began before it. The steps
    add up to the request. Each is named by phase and span, and what lies between two by the phase alone.
    """
    titles, inner, title = _titled(traces)
    found: dict[tuple[int, ...], _Path] = {}
    for begin, end in _parts(np.bincount(inner.request, minlength=len(traces))):
        low, high = np.searchsorted(inner.request, [begin, end])
        part = Inner(
            inner.request[low:high] - begin,
            *(column[low:high] for column in (inner.kind, inner.phase, inner.name, inner.start_ns, inner.end_ns)),
        )
        _count(_Walk(traces.start_ns[begin:end], traces.end_ns[begin:end], part, title[low:high]), found)
    usual, path = max(found.items(), key=lambda item: item[1].requests)
    means = [total_ns / path.requests / NS_PER_MS for total_ns in path.sums_ns]
    steps = tuple(Step(titles[code], mean) for code, mean in zip(usual, means, strict=True))
    return CriticalPath(requests=path.requests, of_requests=len(traces), steps=steps[::-1])


def _parts(counts: Integers) -> Iterator[tuple[int, int]]:
    """From where to where each part of the requests goes. counts: how many spans each has; a part with a long one is
    smaller, since each of its requests is given as much room.
    """
    begin = 0
    while begin < len(counts):
        size = min(_AT_ONCE, len(counts) - begin)
        while size > 1 and size * _room(counts[begin : begin + size]) > _STEPS_AT_ONCE:
            size //= 2
        yield begin, begin + size
        begin += size


def _room(counts: Integers) -> int:
    """The most steps that a request can have, where the longest has the most spans: each, and what is around it."""
    return 2 * int(counts.max(initial=0)) + 1


def _titled(traces: Traces) -> tuple[list[str], Inner, Integers]:
    """The names of steps, those of the phases first; the spans that can be steps; and the title of each."""
    usable = traces.inner.of(SpanKind.CHAT, SpanKind.TOOL, SpanKind.PLANNING)
    inner = traces.inner.where(usable & (traces.inner.end_ns >= traces.start_ns[traces.inner.request]))
    pairs, title = np.unique(inner.phase * len(traces.names) + inner.name, return_inverse=True)
    named = [divmod(pair, len(traces.names)) for pair in pairs.tolist()]
    spans = [_title(phase, traces.names[name]) for phase, name in named]
    return [*PHASES, *spans], inner, title + len(PHASES)


def _title(phase: int, name: str) -> str:
    """The phase, and the name where that says more."""
    return name if phase == NO_PHASE or PHASES[phase] == name else f"{PHASES[phase]}: {name}"


class _Walk:
    """The paths of so many requests, walked all at once from their ends.

    names: codes of each one's steps, the last of the request first, then _NONE. took_ns: likewise.
    """

    def __init__(self, start_ns: Integers, end_ns: Integers, inner: Inner, title: Integers) -> None:
        self._at_ns = end_ns.copy()
        self._after = _last_gaps(inner, len(start_ns))
        counts = np.bincount(inner.request, minlength=len(start_ns))
        width = _room(counts)
        self._steps = np.zeros(len(start_ns), np.int64)
        self.names = np.full((len(start_ns), width), _NONE, np.int32)
        self.took_ns = np.zeros((len(start_ns), width), np.int64)
        order = np.lexsort((-inner.start_ns, inner.end_ns, inner.request))
        last = np.cumsum(counts) - 1
        for depth in range(int(counts.max(initial=0))):
            request = np.flatnonzero(counts > depth)
            self._span(request, start_ns, inner, title, order[last[request] - depth])
        rest = np.flatnonzero(self._at_ns > start_ns)
        before = np.where(self._steps[rest] > 0, PHASES.index(Phase.PARSE), PHASES.index(Phase.FRAMEWORK))
        self._put(rest, before, start_ns[rest])

    def _span(self, request: Integers, begin_ns: Integers, inner: Inner, title: Integers, at: Integers) -> None:
        """One span of each of these requests, which stands at `at`; it counts where it began before what is known."""
        begun = inner.start_ns[at] < self._at_ns[request]
        request, at = request[begun], at[begun]
        end_ns = inner.end_ns[at]
        gap = end_ns < self._at_ns[request]
        self._put(request[gap], self._after[request[gap]], end_ns[gap])
        self._put(request, title[at], np.maximum(inner.start_ns[at], begin_ns[request]))
        self._after[request] = PHASES.index(Phase.FRAMEWORK)

    def _put(self, request: Integers, name: Integers, to_ns: Integers) -> None:
        """A step back to that moment."""
        self.names[request, self._steps[request]] = name
        self.took_ns[request, self._steps[request]] = self._at_ns[request] - to_ns
        self._steps[request] += 1
        self._at_ns[request] = to_ns


def _last_gaps(inner: Inner, requests: int) -> Integers:
    """What comes after the last span of each: respond when that was the answer."""
    gaps = np.full(requests, PHASES.index(Phase.FRAMEWORK), np.int64)
    if len(inner.request):
        first = np.flatnonzero(np.diff(inner.request, prepend=-1))
        phase, _ = last_to_end(inner, first)
        gaps[inner.request[first[phase == PHASES.index(Phase.REFLECT)]]] = PHASES.index(Phase.RESPOND)
    return gaps


def _count(walk: _Walk, found: dict[tuple[int, ...], _Path]) -> None:
    """Add the paths to those found so far, in the order of the first request that took each."""
    # Rows as plain bytes: by `axis=0` each column becomes a field, and each comparison a loop over them.
    rows = walk.names.view(np.dtype((np.void, walk.names.itemsize * walk.names.shape[1]))).reshape(-1)
    _, first, which, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    sums_ns = [np.bincount(which, step_ns, len(first)) for step_ns in walk.took_ns.T]
    for at in np.argsort(first).tolist():
        codes = tuple(code for code in walk.names[first[at]].tolist() if code != _NONE)
        path = found.setdefault(codes, _Path(sums_ns=[0.0] * len(codes)))
        path.requests += int(counts[at])
        path.sums_ns = [so_far + float(more[at]) for so_far, more in zip(path.sums_ns, sums_ns, strict=False)]
