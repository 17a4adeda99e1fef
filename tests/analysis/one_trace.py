"""The critical path of one request, step by step, as METHODOLOGY has it: what that of a whole run is held to."""

from dataclasses import dataclass, field
from typing import NamedTuple

from agentdyno.contract.phases import Phase
from agentdyno.record.spans import SpanKind


class Event(NamedTuple):
    kind: SpanKind
    name: str
    phase: Phase | None
    start_ns: int
    end_ns: int

    @property
    def title(self) -> str:
        return self.name if self.phase is None or self.phase == self.name else f"{self.phase}: {self.name}"


@dataclass
class OneTrace:
    start_ns: int
    end_ns: int
    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: SpanKind) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]


class PathStep(NamedTuple):
    name: str
    took_ns: int


def critical_path(request: OneTrace) -> list[PathStep]:
    """Backwards from the end: of the events that began before, the one that ended last, then again from its start."""
    usable = [
        event for event in request.events if event.kind is not SpanKind.SERVED and event.end_ns >= request.start_ns
    ]
    last = max(usable, key=lambda event: event.end_ns, default=None)
    after = Phase.RESPOND if last is not None and last.phase is Phase.REFLECT else Phase.FRAMEWORK
    steps: list[PathStep] = []
    at_ns = request.end_ns
    for event in reversed(sorted(usable, key=lambda e: (e.end_ns, -e.start_ns))):  # noqa: C413 - of equals the last
        if event.start_ns >= at_ns:
            continue
        if event.end_ns < at_ns:
            steps.append(PathStep(after.value, at_ns - event.end_ns))
            at_ns = event.end_ns
        start_ns = max(event.start_ns, request.start_ns)
        steps.append(PathStep(event.title, at_ns - start_ns))
        at_ns, after = start_ns, Phase.FRAMEWORK
    if at_ns > request.start_ns:
        steps.append(PathStep((Phase.PARSE if steps else Phase.FRAMEWORK).value, at_ns - request.start_ns))
    return steps[::-1]
