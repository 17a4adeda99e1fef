"""The three mock tools: the same functions, with the same schema and latency, for every framework.

Each takes one reference and returns a short JSON text with the token that the next step needs. They check that
the reference is the right one, so a wrong call fails at once instead of being answered with a plausible token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentdyno.contract.adapter import Tool
from agentdyno.contract.proof import STEPS, check_reference, order_of, token
from agentdyno.contract.scenario import Workload
from agentdyno.contract.timing import Distribution, parse
from agentdyno.host.trace import CURRENT, RequestTrace

_SAYS = {
    "order_status": ("Look up the status of an order.", "paid, not shipped: the carrier has not collected it"),
    "refund_policy": ("Look up the refund policy that applies to an order.", "full refund within 30 days of payment"),
    "resolution": ("File the resolution of a complaint.", "filed: shipped with priority today, or refunded in full"),
}


class ToolRefused(ValueError):
    """A tool call with a reference that is not the one this step needs; the text is for the framework's LLM."""


@dataclass(frozen=True, slots=True)
class _MockTool:
    name: str
    key: bytes
    parallel: bool
    latency_ms: Distribution | None
    on_stray: Callable[[], None]

    async def run(self, reference: str) -> str:
        trace = CURRENT.get()
        if trace is None:
            self.on_stray()
            return await self._work(reference)
        run = trace.begin_tool(self.name, {"reference": _plain(reference)})
        try:
            result = await self._work(reference)
        except BaseException as error:
            trace.end_tool(run, result=None, error=str(error) or type(error).__name__)
            raise
        if trace.closed:
            _refuse_late(trace, self.name)
        trace.end_tool(run, result=result, error=None)
        return result

    async def _work(self, reference: str) -> str:
        if not isinstance(reference, str):  # frameworks pass on what the LLM wrote, whatever its type
            raise ToolRefused(f"{self.name} takes a reference as a string, not {type(reference).__name__}")
        try:
            check_reference(self.key, self.name, reference, parallel=self.parallel)
        except ValueError as error:
            raise ToolRefused(str(error)) from error
        if self.latency_ms is not None:
            await asyncio.sleep(self.latency_ms.draw(f"{order_of(reference)}/{self.name}") / 1000)
        return json.dumps({"status": _SAYS[self.name][1], "reference": token(self.key, self.name, reference)})


def _plain(argument: object) -> str:
    """The argument as text that JSON can carry, whatever a framework passed."""
    text = argument if isinstance(argument, str) else repr(argument)
    return text.encode(errors="backslashreplace").decode()


def _refuse_late(trace: RequestTrace, name: str) -> None:
    trace.begin_tool(name, {})  # raises RequestOver


def build_tools(workload: Workload, key: bytes, *, parallel: bool, on_stray: Callable[[], None]) -> tuple[Tool, ...]:
    """The scenario's tools in their order.

    key: the run's proof key. on_stray: told when a tool runs outside any request's context.
    Raises ValueError with a sentence when the workload gives a latency to a tool that is not there.
    """
    names = [step.tool for step in STEPS]
    for name in workload.timing.tool_latency_ms:
        if name not in names:
            raise ValueError(f"tool_latency_ms names {name!r}, but the tools are {', '.join(names)}.")
    tools = []
    for step in STEPS:
        text = workload.timing.tool_latency_ms.get(step.tool)
        latency = parse(text, seed=workload.seed) if text is not None else None
        mock = _MockTool(step.tool, key, parallel, latency, on_stray)
        tools.append(_describe(step.tool, mock.run))
    return tuple(tools)


def _describe(name: str, run: Callable[[str], Awaitable[str]]) -> Tool:
    async def tool(reference: str) -> str:
        return await run(reference)

    description = f"{_SAYS[name][0]} Takes the order id or the reference that the step before returned."
    tool.__name__ = tool.__qualname__ = name
    tool.__doc__ = description
    tool.__annotations__ = {"reference": str, "return": str}  # real types: some frameworks do not resolve strings
    parameters = {
        "type": "object",
        "properties": {"reference": {"type": "string", "description": "An order id or a reference."}},
        "required": ["reference"],
        "additionalProperties": False,
    }
    return Tool(name, description, parameters, tool)
