"""The script: what the mock LLM says next, decided from the tokens in the messages and from nothing else.

Roles and the way a framework wraps a tool's result do not matter (JSON in JSON, user text, "Observation:"):
the current order is the last order id in the messages' text, and a step is done when its token for that order
is there. The mock does not know the proof key, so it can only pass on tokens that a tool has made.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from agentdyno.contract.proof import ORDER_PATTERN, STEPS

_ORDER = re.compile(ORDER_PATTERN)
_MAC = re.compile("[0-9a-f]{16}")
_MAC_CHARS = 16
_FILLER = (
    "We are sorry for the trouble this has caused you and thank you for your patience. The shop has looked into "
    "what went wrong, has applied the policy that covers your case, and has filed the resolution for you. You need "
    "not do anything further; a message with all details follows as soon as the warehouse has confirmed the step. "
)


class ToolRequest(msgspec.Struct, frozen=True, gc=False):
    """One tool the LLM asks for, with its single argument."""

    tool: str
    reference: str

    @property
    def arguments(self) -> str:
        """The call's arguments as the JSON text that goes into the answer."""
        return f'{{"reference":"{self.reference}"}}'


class Turn(msgspec.Struct, frozen=True, gc=False):
    """What the LLM says: tool requests, or else a text.

    order: the current order id, None when there is none. number: how many steps' tokens were there, which
    is the same for the same turn under any framework. final: the text is the scenario's answer, to be filled
    up to the length that the timing asks for; any other text says why the scenario cannot go on.
    """

    order: str | None
    number: int
    requests: tuple[ToolRequest, ...] = ()
    text: str = ""
    final: bool = False

    @property
    def stage_letter(self) -> str:
        """The letter of the run's stage, as the order id carries it; empty without an order."""
        return self.order[4] if self.order else ""


def current_order(text: str) -> str | None:
    """The last order id in `text`, None when there is none."""
    at = len(text)
    while (at := text.rfind("ORD-", 0, at)) >= 0:
        if found := _ORDER.match(text, at):
            return found.group()
    return None


def find_token(text: str, prefix: str, order: str) -> str | None:
    """The last token in `text` with this prefix that belongs to `order`, None when there is none."""
    start = f"{prefix}-{order[4:]}-"
    at = len(text)
    while (at := text.rfind(start, 0, at)) >= 0:
        if _MAC.match(text, at + len(start)):
            return text[at : at + len(start) + _MAC_CHARS]
    return None


def next_turn(
    text: str, *, parallel: bool, offered: Collection[str], may_call: bool = True, one_call: bool = False
) -> Turn:
    """Decide the turn from the messages' `text`.

    parallel: the scenario asks for all missing tools in one turn. offered: names of the tools in the request.
    may_call: False for `tool_choice: "none"`. one_call: True for `parallel_tool_calls: false`.
    """
    order = current_order(text)
    if order is None:
        return Turn(None, 0, text="I found no order id in the messages, so there is nothing that I can look up.")
    done, requests, quotes = _parallel(text, order) if parallel else _chain(text, order)
    if not requests:
        return Turn(order, done, text=f"The resolution's reference is {quotes}.", final=True)
    if not may_call:
        names = ", ".join(request.tool for request in requests)
        return Turn(order, done, text=f"I would have to call {names}, but this request forbids tool calls.")
    missing = [request.tool for request in requests if request.tool not in offered]
    if missing:
        return Turn(order, done, text=f"I need the tool {', '.join(missing)}, which this request does not offer.")
    return Turn(order, done, requests[:1] if one_call else requests)


_Decision = tuple[int, tuple[ToolRequest, ...], str]  # steps done, what is asked for, what the answer quotes


def _chain(text: str, order: str) -> _Decision:
    """The step after the furthest one whose token is there; a framework may have dropped earlier results."""
    done, reference = 0, order
    for index in range(len(STEPS) - 1, -1, -1):
        if (token := find_token(text, STEPS[index].prefix, order)) is not None:
            done, reference = index + 1, token
            break
    if done == len(STEPS):
        return done, (), reference
    return done, (ToolRequest(STEPS[done].tool, reference),), ""


def _parallel(text: str, order: str) -> _Decision:
    """All steps whose tokens are missing."""
    tokens = [find_token(text, step.prefix, order) for step in STEPS]
    requests = [ToolRequest(step.tool, order) for step, token in zip(STEPS, tokens, strict=True) if token is None]
    return len(STEPS) - len(requests), tuple(requests), ", ".join(token for token in tokens if token is not None)


def fill(text: str, size_bytes: int) -> str:
    """`text` (ASCII), filled up with harmless sentences to `size_bytes`; never cut."""
    missing = size_bytes - len(text)
    if missing < 2:
        return text + "." * max(0, missing)
    body = _FILLER * (missing // len(_FILLER) + 1)
    return f"{text} {body[: missing - 2]}."
