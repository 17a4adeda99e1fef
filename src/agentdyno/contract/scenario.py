"""Scenarios and workloads: what a request asks for, and the hash that says two runs asked for the same."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from agentdyno.contract.invoke import InvokeRequest, Message
from agentdyno.contract.proof import STEPS, Stage, order_id


@dataclass(frozen=True, slots=True)
class Scenario:
    """What every request of a run asks for.

    parallel: the LLM asks for all three tools in one turn, each with the order id; otherwise for one a turn,
    each with the token before.
    """

    name: str
    description: str
    parallel: bool
    system_prompt: str
    input_template: str
    history: tuple[Message, ...]

    @property
    def tool_calls(self) -> int:
        """Tool calls in a correct run of one request."""
        return len(STEPS)

    def request(self, seed: int, stage: Stage, index: int, timeout_ms: int, *, stream: bool = False) -> InvokeRequest:
        """The request of arrival `index` of `stage`: its own session and order, the same text otherwise."""
        order = order_id(seed, stage, index)
        return InvokeRequest(
            session_id=f"sess-{order[4:]}",
            input=self.input_template.format(order_id=order),
            history=self.history,
            tools=tuple(step.tool for step in STEPS),
            timeout_ms=timeout_ms,
            stream=stream,
        )


def _system_prompt(order_of_calls: str) -> str:
    return (
        "You are the customer-service agent of a web shop. For each complaint: look up the order's status, look up "
        f"the refund policy that applies, and file a resolution. {order_of_calls} When the resolution is filed, "
        "answer the customer in two sentences and quote the resolution's reference."
    )


_HISTORY = (
    Message("user", "Hello, I have a question about something I bought last week."),
    Message("assistant", "Hello, gladly. Please tell me your order id and what is wrong."),
)
_INPUT = "My order {order_id} has still not been shipped. What is going on, and what will you do about it?"

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="chain",
            description="customer service, three tools one after the other, each needing the token before",
            parallel=False,
            system_prompt=_system_prompt(
                "Call one tool at a time; each tool takes the reference that the step before returned, "
                "the first takes the order id."
            ),
            input_template=_INPUT,
            history=_HISTORY,
        ),
        Scenario(
            name="parallel",
            description="customer service, three tools asked for in one turn, each taking the order id",
            parallel=True,
            system_prompt=_system_prompt("Call all three tools at once, each with the order id as its reference."),
            input_template=_INPUT,
            history=_HISTORY,
        ),
    )
}


class BackendTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the mock LLM and the mock tools take: each a distribution in words (see contract/timing.py).

    ttft_ms: time to first token. tokens_per_s: decode rate (0: no decode time). answer_tokens: length of the
    final answer. max_num_seqs: seats that serve at once, the rest queues (None: no limit).
    tool_latency_ms: by tool name; a tool without an entry takes no time.
    """

    ttft_ms: str = "const:0"
    tokens_per_s: str = "const:0"
    answer_tokens: str = "const:64"
    max_num_seqs: int | None = None
    tool_latency_ms: dict[str, str] = {}


def served_by(backend: str, model: str, stated: str | None = None) -> str:
    """Which server and model, in words. stated: settings by its user's word; with others it is another server."""
    return f"{backend} {model}" if stated is None else f"{backend} {model}, stated: {stated}"


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scenario, seed and backend: what must be equal for two runs to be compared.

    timing: of the mock and the tools. served_by: which server and model, where it is not the mock (see `served_by`).
    """

    scenario: str = "chain"
    seed: int = 1
    timing: BackendTiming = BackendTiming()
    served_by: str | None = None

    def hash(self) -> str:
        """SHA-256 over the canonical JSON of everything that shapes a request or its backend, 16 hex digits."""
        scenario = SCENARIOS[self.scenario]
        workload = msgspec.to_builtins(self)
        if self.served_by is None:  # the mock's hashes are older than the field
            del workload["served_by"]
        content: dict[str, Any] = {
            "workload": workload,
            "system_prompt": scenario.system_prompt,
            "input": scenario.input_template,
            "history": msgspec.to_builtins(scenario.history),
            "steps": [(step.tool, step.prefix) for step in STEPS],
        }
        return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]
