"""The phases of a request, and the one rule by which its time is tiled into them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, TypeVar

_Label = TypeVar("_Label", bound=Hashable)


class Phase(StrEnum):
    """Where a request's time goes. The six tile it: they never overlap and their sum is the whole.

    parse: request read to first LLM call (or first planning). plan: an LLM call that returns tool calls, or
    planning that a framework without an LLM planner marks. tool: at least one tool body runs. reflect: an LLM
    call that returns the answer. respond: end of that call to the last byte. framework: all that lies between.
    """

    PARSE = "parse"
    PLAN = "plan"
    TOOL = "tool"
    REFLECT = "reflect"
    RESPOND = "respond"
    FRAMEWORK = "framework"


class Stretch(NamedTuple):
    """A stretch of a request that belongs to a phase; ns on any one clock."""

    phase: Phase
    start_ns: int
    end_ns: int


def phase_of_call(wants_tools: bool | None) -> Phase:
    """plan when the answer asked for tools; reflect when it was the answer, or broke before it could say."""
    return Phase.PLAN if wants_tools else Phase.REFLECT


# Where two overlap (tools that run in parallel, a tool that starts before the answer's stream has ended) the time
# goes to the first of these, so that it is never counted twice.
PRECEDENCE = (Phase.TOOL, Phase.PLAN, Phase.REFLECT)


def tile(start_ns: int, end_ns: int, stretches: Sequence[Stretch]) -> dict[Phase, int]:
    """How long each phase took, ns; the six add up to end - start exactly.

    stretches: the plan, tool and reflect stretches of the request, in any order; what lies outside the request is cut
    off. parse is the time before the first of them, respond the time after the last reflect if nothing follows
    it, framework all other time that no stretch covers. Without any stretch everything is framework time.
    """
    inside = [
        (s.phase, max(s.start_ns, start_ns), min(s.end_ns, end_ns))
        for s in stretches
        if s.end_ns > start_ns and s.start_ns < end_ns
    ]
    took = dict.fromkeys(Phase, 0)
    if not inside:
        took[Phase.FRAMEWORK] = end_ns - start_ns
        return took
    first_ns = min(inside, key=itemgetter(1))[1]
    last_phase, _, last_ns = max(inside, key=itemgetter(2))
    took |= covered(inside, PRECEDENCE)
    took[Phase.FRAMEWORK] = last_ns - first_ns - sum(took.values())
    took[Phase.PARSE] = first_ns - start_ns
    took[Phase.RESPOND if last_phase is Phase.REFLECT else Phase.FRAMEWORK] += end_ns - last_ns
    return took


def covered(stretches: Sequence[tuple[_Label, int, int]], precedence: Sequence[_Label]) -> dict[_Label, int]:
    """How much time each label has, of stretches (label, start, end); where some overlap, the first of `precedence`."""
    ordered = sorted(stretches, key=itemgetter(1))
    if all(before[2] <= after[1] for before, after in pairwise(ordered)):  # as it mostly is, and much quicker
        apart = dict.fromkeys(precedence, 0)
        for label, start, end in ordered:
            apart[label] += end - start
        return apart
    places = {label: at for at, label in enumerate(precedence)}
    borders = [(start, 1, places[label]) for label, start, _ in stretches]
    borders += [(end, -1, places[label]) for label, _, end in stretches]
    borders.sort()
    running = [0] * len(precedence)
    took = [0] * len(precedence)
    before = borders[0][0] if borders else 0
    for moment, change, place in borders:
        if moment > before:
            for first, count in enumerate(running):
                if count:
                    took[first] += moment - before
                    break
            before = moment
        running[place] += change
    return dict(zip(precedence, took, strict=True))
