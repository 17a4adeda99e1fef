"""LightAgent on the rig: planning by declared steps, or by the LLM."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import lightagent
from agentdyno.contract.adapter import LlmEndpoint, Tool
from agentdyno.contract.invoke import InvokeRequest
from agentdyno.contract.proof import ORDER_PATTERN, STEPS, TOKEN_PATTERN
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.host.border import planning
from lightagent import FromInput, FromStep, LlmPlanner, Planner, StateMachinePlanner, Step


class LightAgentLlm:
    """The `lightagent-llm` variant: the LLM chooses the tools, as in most frameworks."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Build the agent and its one session."""
        client = lightagent.ChatClient(llm.base_url, llm.model, llm.api_key, timeout_s=llm.timeout_s)
        client.open()
        self.agent = lightagent.Agent(
            client, [_tool(tool) for tool in tools], planner=self.planner(system_prompt), system_prompt=system_prompt
        )

    def planner(self, system_prompt: str) -> Planner:
        """How this variant plans."""
        return LlmPlanner()

    async def invoke(self, request: InvokeRequest) -> str:
        """Run the agent to its final answer."""
        answer = await self.agent.run(request.input, history=_history(request), tools=request.tools)
        return answer.text

    def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        """Yield the answer's text as the LLM writes it."""
        return self.agent.stream(request.input, history=_history(request), tools=request.tools)

    async def add_tool(self, tool: Tool) -> None:
        """Offer a tool from the next request on."""
        self.agent.add_tool(_tool(tool))

    async def remove_tool(self, name: str) -> None:
        """Stop offering a tool from the next request on; it is no error when it is not offered."""
        if name in self.agent.tools:
            self.agent.remove_tool(name)

    async def close(self) -> None:
        """Close the agent's session."""
        await self.agent.close()


class LightAgent(LightAgentLlm):
    """The `lightagent` variant: declared steps run the tools, then one LLM call answers."""

    def planner(self, system_prompt: str) -> Planner:
        """The steps for what the system prompt asks for: all tools at once, or each with the token before."""
        at_once = any(it.parallel and it.system_prompt == system_prompt for it in SCENARIOS.values())
        steps = [Step(STEPS[0].tool, {"reference": FromInput(ORDER_PATTERN)})]
        for before, step in pairwise(STEPS):
            source = FromInput(ORDER_PATTERN) if at_once else FromStep(before.tool, TOKEN_PATTERN)
            steps.append(Step(step.tool, {"reference": source}))
        return StateMachinePlanner(steps, planning=planning)


def _tool(tool: Tool) -> lightagent.Tool:
    return lightagent.Tool.from_function(tool.function, name=tool.name, description=tool.description)


def _history(request: InvokeRequest) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in request.history]
