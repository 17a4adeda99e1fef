"""How long each phase of each request took, and what the time went into, for a whole run at once.

It is the rule of `contract.phases.tile`; a test holds it to that, request by request.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from agentdyno.analysis.traces import NO_PHASE, PHASES, Flags, Inner, Integers, Traces
from agentdyno.contract.phases import PRECEDENCE, Phase
from agentdyno.record.spans import SpanKind


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


# A moment that two would claim goes to tool, then to the LLM.
_SHARES = (Share.TOOL, Share.LLM_WAIT, Share.LLM_CLIENT)


def phases_ns(traces: Traces) -> dict[Phase, Integers]:
    """For each phase how long each request was in it, ns."""
    inner = _inside(traces, traces.inner.where(traces.inner.phase != NO_PHASE))
    took = {phase: np.zeros(len(traces), np.int64) for phase in PHASES}
    took[Phase.FRAMEWORK] = traces.end_ns - traces.start_ns
    if not len(inner.request):
        return took
    labels = np.array([PRECEDENCE.index(phase) if phase in PRECEDENCE else -1 for phase in PHASES])
    for phase, covered_ns in zip(
        PRECEDENCE, _covered(inner, labels[inner.phase], len(PRECEDENCE), traces), strict=True
    ):
        took[phase] = covered_ns
    first = np.flatnonzero(np.diff(inner.request, prepend=-1))
    request = inner.request[first]
    first_ns = np.minimum.reduceat(inner.start_ns, first)
    last_phase, last_ns = last_to_end(inner, first)
    covered_ns = np.sum([took[phase][request] for phase in PRECEDENCE], axis=0)
    tail_ns = traces.end_ns[request] - last_ns
    answered = last_phase == PHASES.index(Phase.REFLECT)
    took[Phase.PARSE][request] = first_ns - traces.start_ns[request]
    took[Phase.RESPOND][request] = np.where(answered, tail_ns, 0)
    took[Phase.FRAMEWORK][request] = last_ns - first_ns - covered_ns + np.where(answered, 0, tail_ns)
    return took


def shares_ns(traces: Traces) -> dict[Share, Integers]:
    """For each share how much of each request's time it took, ns."""
    inner = _inside(traces, traces.inner.where(traces.inner.of(SpanKind.TOOL, SpanKind.CHAT, SpanKind.SERVED)))
    served = np.zeros(len(traces), bool)
    served[inner.request[inner.of(SpanKind.SERVED)]] = True
    call = np.where(served[inner.request], _SHARES.index(Share.LLM_CLIENT), _SHARES.index(Share.LLM_WAIT))
    labels = np.where(inner.of(SpanKind.CHAT), call, _SHARES.index(Share.LLM_WAIT))
    labels[inner.of(SpanKind.TOOL)] = _SHARES.index(Share.TOOL)
    took = dict(zip(_SHARES, _covered(inner, labels, len(_SHARES), traces), strict=True))
    took[Share.FRAMEWORK] = traces.end_ns - traces.start_ns - np.sum(list(took.values()), axis=0)
    return took


def last_to_end(inner: Inner, first: Integers) -> tuple[Integers, Integers]:
    """Of each request that has any: the phase and the end of the span that ended last; of equals the first.

    first: where in `inner` each of these requests begins.
    """
    last_ns = np.maximum.reduceat(inner.end_ns, first)
    count = np.diff(first, append=len(inner.request))
    is_last = inner.end_ns == np.repeat(last_ns, count)
    at = np.minimum.reduceat(np.where(is_last, np.arange(len(is_last)), len(is_last)), first)
    return inner.phase[at], last_ns


def _inside(traces: Traces, inner: Inner) -> Inner:
    """What lies within its request, cut to it."""
    begin_ns, end_ns = traces.start_ns[inner.request], traces.end_ns[inner.request]
    within: Flags = (inner.end_ns > begin_ns) & (inner.start_ns < end_ns)
    cut = (np.maximum(inner.start_ns, begin_ns), np.minimum(inner.end_ns, end_ns))
    return Inner(inner.request, inner.kind, inner.phase, inner.name, *cut).where(within)


def _covered(inner: Inner, label: Integers, labels: int, traces: Traces) -> list[Integers]:
    """For each label (0 goes first where some overlap, -1 never counts) how much of each request it covers, ns.

    A sweep over all borders, request by request: between two of them the time is that of the first label that runs.
    """
    request = np.concatenate([inner.request, inner.request])
    moment_ns = np.concatenate([inner.start_ns, inner.end_ns])
    order = np.lexsort((moment_ns, request))
    request, moment_ns = request[order], moment_ns[order]
    change = np.repeat(np.array([1, -1], np.int32), len(inner.request))[order]
    label = np.concatenate([label, label])[order]
    gap_ns = np.diff(moment_ns, append=0)
    gap_ns[np.diff(request, append=-1) != 0] = 0  # from one request to the next
    took = []
    for one in range(labels):
        running = np.cumsum(np.where(label == one, change, 0)) > 0
        # Whole numbers far below 2^53, so exact.
        took.append(np.bincount(request[running], gap_ns[running], len(traces)).astype(np.int64))
        gap_ns[running] = 0
    return took
