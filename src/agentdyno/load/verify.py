"""Judging a response: did the agent do just the work that its order asks for? On 100 % of responses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from agentdyno.contract.invoke import InvokeResponse, ToolCall, Usage
from agentdyno.contract.proof import TOKEN_PATTERN, chain
from agentdyno.contract.run import Outcome
from agentdyno.contract.scenario import Scenario

# Why an answer with status 200 is not ok. A status that is not 200 has the reason http_<status>.
NOT_CONTRACT = "not_contract"
WRONG_SESSION = "wrong_session"
TOOL_FAILED = "tool_failed"
WRONG_TOOLS = "wrong_tools"
WRONG_RESULT = "wrong_result"
WRONG_ANSWER = "wrong_answer"

_decode = msgspec.json.Decoder(InvokeResponse).decode
_TOKEN = re.compile(TOKEN_PATTERN)

Links = Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """An arrival's outcome, the reason when it is not ok, and the usage when the body told one."""

    outcome: Outcome
    reason: str | None = None
    usage: Usage | None = None


def judge(status: int, body: bytes, order: str, key: bytes, scenario: Scenario) -> Judgement:
    """Judge one complete HTTP response to the request that carried `order`.

    Only the tools' own record and the final answer count: every call of the chain once, with its reference,
    without error and with its token, and the answer quoting what only a finished chain can know.
    """
    if status == 429:
        return Judgement(Outcome.REJECTED, "http_429")
    if status == 504:
        return Judgement(Outcome.TIMEOUT, "http_504")
    if status != 200:
        return Judgement(Outcome.FAILED, f"http_{status}")
    try:
        response = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Judgement(Outcome.FAILED, NOT_CONTRACT)
    reason = _fault(response, order, chain(key, order, parallel=scenario.parallel), scenario.parallel)
    return Judgement(Outcome.OK if reason is None else Outcome.FAILED, reason, response.usage)


def session_of(order: str) -> str:
    """The session id that goes with an order id (see Scenario.request)."""
    return "sess-" + order[4:]


def _fault(response: InvokeResponse, order: str, links: Links, parallel: bool) -> str | None:
    """What is wrong with the work that the response shows; None when nothing is."""
    if response.session_id != session_of(order):
        return WRONG_SESSION
    if any(call.error is not None for call in response.tool_calls):
        return TOOL_FAILED
    if not _same_calls(response.tool_calls, links, parallel):
        return WRONG_TOOLS
    token_of = {tool: token for tool, _, token in links}
    own_tokens = set(token_of.values())
    for call in response.tool_calls:
        found = set(_TOKEN.findall(call.result or ""))
        # A token beside the order's own says that the result was mixed up with another order's.
        if token_of[call.name] not in found or not found <= own_tokens:
            return WRONG_RESULT
    needed = [token for _, _, token in links] if parallel else [links[-1][2]]
    if not set(needed) <= set(_TOKEN.findall(response.output)):
        return WRONG_ANSWER
    return None


def _same_calls(calls: Sequence[ToolCall], links: Links, parallel: bool) -> bool:
    """Were just the expected calls made? In order, but for parallel calls, which may come in any."""
    expected = [(tool, {"reference": reference}) for tool, reference, _ in links]
    made = [(call.name, call.arguments) for call in calls]
    if parallel:
        made.sort(key=lambda call: call[0])
        expected.sort(key=lambda call: call[0])
    return made == expected
