"""One request of the control as its host records it: the sample that the checks of the recorder encode and send."""

from __future__ import annotations

import time

from agentdyno.contract.proof import STEPS
from agentdyno.contract.trace import LlmCall
from agentdyno.host.trace import RequestTrace, ToolRun, new_span_id

SPANS_RECORDED = 8  # the request, four LLM calls, three tool calls
_MS = 1_000_000


def finished_request(number: int) -> RequestTrace:
    """A request that is over: four LLM calls, a tool call after each but the last."""
    start_ns = time.monotonic_ns() - 20 * _MS
    trace = RequestTrace(number + 1, new_span_id(), True, start_ns)
    at_ns = start_ns + _MS // 2
    for turn in range(len(STEPS) + 1):
        last = turn == len(STEPS)
        trace.llm_calls.append(
            LlmCall(
                span_id=new_span_id(),
                start_ns=at_ns,
                prompt_bytes=2400 + 300 * turn,
                status=200,
                first_byte_ns=at_ns + _MS,
                end_ns=at_ns + _MS + 50_000,
                wants_tools=not last,
                prompt_tokens=600 + 70 * turn,
                completion_tokens=64 if last else 20,
                model="agentdyno-mock",
            )
        )
        at_ns += 2 * _MS
        if not last:
            run = ToolRun(new_span_id(), STEPS[turn].tool, {"reference": "x"}, at_ns, at_ns + 30_000, "Done")
            trace.tools.append(run)
            at_ns += _MS // 2
    trace.finish()
    return trace
