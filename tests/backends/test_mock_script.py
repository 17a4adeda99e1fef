"""The script: any way of passing results leads to the same turn; and the rule by which tokens are counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.backends.mock_llm.request import BadRequest, ToolReader, read_request
from agentdyno.backends.mock_llm.script import ToolRequest, Turn, current_order, fill, next_turn
from agentdyno.contract.proof import STEPS, Stage, chain, order_id
from tests.backends.mock_process import MODEL, ORDER, TOOLS, token

KEY = bytes(range(16))
NAMES = tuple(step.tool for step in STEPS)


def read(messages: list[dict[str, Any]], **more: Any) -> Any:
    body = {"model": MODEL, "messages": messages, "tools": TOOLS, **more}
    return read_request(json.dumps(body).encode(), ToolReader())


def turn_for(messages: list[dict[str, Any]], parallel: bool = False, **more: Any) -> Turn:
    request = read(messages, **more)
    return next_turn(
        request.text,
        parallel=parallel,
        offered=request.offered,
        may_call=request.may_call,
        one_call=request.one_call,
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


WRAPPINGS = {
    "tool": lambda text: {"role": "tool", "tool_call_id": "x", "content": text},
    "observation": lambda text: user(f"Observation: {text}\nThought:"),
    "json": lambda text: {"role": "tool", "tool_call_id": "x", "content": json.dumps(text)},
    "result": lambda text: {"role": "tool", "tool_call_id": "x", "content": json.dumps({"result": text})},
    "json in json": lambda text: user(json.dumps(json.dumps({"a": [f"line\n{text}\nline"]}))),
    "parts": lambda text: {
        "role": "user",
        "content": [{"type": "text", "text": "look:"}, {"type": "text", "text": text}],
    },
    "glued": lambda text: {"role": "assistant", "content": f"nresult={text}\\nnext"},
    "arguments": lambda text: {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "f", "arguments": json.dumps({"r": text})}}
        ],
    },
    "xml": lambda text: {"role": "system", "content": f"<result>{text}</result>"},
}
orders = st.builds(order_id, st.integers(0, 99), st.sampled_from(Stage), st.integers(0, 10**6))
noise = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda text: "ORD-" not in text)


@st.composite
def conversations(draw: st.DrawFn, parallel: bool) -> tuple[str, list[str], list[dict[str, Any]]]:
    """An order, the tokens its conversation holds so far, and its messages: wrapped and mixed in any way."""
    history = draw(st.lists(orders, max_size=2))
    order = draw(orders.filter(lambda made: made not in history))
    messages: list[dict[str, Any]] = []

    def say(text: str) -> None:
        messages.append(WRAPPINGS[draw(st.sampled_from(sorted(WRAPPINGS)))](text))
        if draw(st.booleans()):
            messages.append(user(draw(noise)))

    for old in history:
        say(old)
        for _, _, made in chain(KEY, old, parallel=parallel):
            say(made)
    say(f"My order {order} is late.")
    links = [made for _, _, made in chain(KEY, order, parallel=parallel)]
    held = draw(st.lists(st.sampled_from(links), unique=True)) if parallel else links[: draw(st.integers(0, 3))]
    for made in held:
        say(made)
    return order, held, messages


@given(conversations(parallel=False))
def test_chain_asks_for_the_next_tool_with_the_token_before(case: tuple[str, list[str], list[dict[str, Any]]]) -> None:
    order, held, messages = case
    turn = turn_for(messages)
    assert (turn.order, turn.number, turn.stage_letter) == (order, len(held), order[4])
    if len(held) < 3:
        assert turn.requests == (ToolRequest(NAMES[len(held)], ([order, *held])[-1]),)
        assert json.loads(turn.requests[0].arguments) == {"reference": turn.requests[0].reference}
    else:
        assert turn.final
        assert held[2] in turn.text
        assert not turn.requests


@given(conversations(parallel=True))
def test_parallel_asks_for_all_that_is_missing(case: tuple[str, list[str], list[dict[str, Any]]]) -> None:
    order, held, messages = case
    turn = turn_for(messages, parallel=True)
    assert (turn.order, turn.number) == (order, len(held))
    missing = [step.tool for step in STEPS if not any(made.startswith(step.prefix) for made in held)]
    assert turn.requests == tuple(ToolRequest(name, order) for name in missing)
    if not missing:
        assert turn.final
        assert all(made in turn.text for made in held)


def test_a_framework_may_forget_the_earlier_results() -> None:
    assert turn_for([user(ORDER), user(token("PO"))]).requests == (ToolRequest("resolution", token("PO")),)
    assert turn_for([user(ORDER), user(token("PO"))]).number == 2


def test_the_last_order_id_counts_and_other_orders_tokens_do_not() -> None:
    other = "ORD-w0-00000000"
    turn = turn_for([user(other), user(token("ST", other)), user(ORDER), user(token("RE", other))])
    assert turn.requests == (ToolRequest("order_status", ORDER),)
    assert current_order(f"{other} {ORDER} ORD-x1-00000000 ORD-") == ORDER


@pytest.mark.parametrize("text", ["", "hello", "ORD-", "ORD-m1", "ord-m1-00000000", "ORD-z1-00000000", token("ST")])
def test_no_order_id_is_said_in_words(text: str) -> None:
    turn = turn_for([user(text)])
    assert (turn.order, turn.requests, turn.final, turn.stage_letter) == (None, (), False, "")
    assert "no order id" in turn.text


def test_a_tool_that_is_not_offered_is_named_instead_of_called() -> None:
    turn = turn_for([user(ORDER), user(token("ST"))], tools=TOOLS[:1])
    assert (turn.requests, turn.final) == ((), False)
    assert "refund_policy" in turn.text
    assert turn_for([user(ORDER)], parallel=True, tools=TOOLS[:2]).requests == ()
    assert turn_for([user(ORDER)], tools=None).requests == ()


def test_tool_choice_none_is_respected() -> None:
    turn = turn_for([user(ORDER)], tool_choice="none")
    assert (turn.requests, turn.final) == ((), False)
    assert "forbids" in turn.text
    assert turn_for([user(ORDER), user(token("RE"))], tool_choice="none").final


def test_parallel_tool_calls_false_asks_for_one() -> None:
    turn = turn_for([user(ORDER), user(token("ST"))], parallel=True, parallel_tool_calls=False)
    assert turn.requests == (ToolRequest("refund_policy", ORDER),)


@given(st.text("abc.", min_size=1, max_size=60), st.integers(0, 3000))
def test_fill_reaches_the_size_and_never_cuts(text: str, size: int) -> None:
    filled = fill(text, size)
    assert filled.startswith(text)
    assert len(filled) == max(size, len(text))


def size_of(tools: list[dict[str, Any]]) -> int:
    return len(json.dumps(tools, separators=(",", ":"), ensure_ascii=False).encode())


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4), st.sampled_from([None, 1, 4])
)
def test_prompt_tokens_are_a_fourth_of_the_bytes_however_the_json_is_written(
    texts: list[str], indent: int | None
) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "näme", "arguments": '{ "a": 1 }'}}
    tools = [{**TOOLS[0], "x": "ünï\n"}]
    messages = [*map(user, texts), {"role": "assistant", "content": None, "tool_calls": [call]}]
    size = sum(len(text.encode()) for text in texts) + len("näme".encode()) + 10 + size_of(tools)
    body = {"model": MODEL, "messages": messages, "tools": tools}
    for plain in (True, False):
        raw = json.dumps(body, indent=indent, ensure_ascii=plain).encode()
        assert read_request(raw, ToolReader()).prompt_tokens == -(-size // 4)


def test_tool_lists_are_remembered_within_bounds_and_never_mixed_up() -> None:
    reader = ToolReader()
    for round_ in range(2):
        for index in range(200):
            assert reader.read(json.dumps([{"function": {"name": f"f{index}"}}]).encode()).names == {f"f{index}"}, (
                round_
            )
    assert len(reader._known) <= 64
    with pytest.raises(BadRequest, match="`tools`"):
        reader.read(b'[{"function": {}}]')
