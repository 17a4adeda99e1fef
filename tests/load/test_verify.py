import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.proof import STEPS, Stage, chain, order_id
from agentdyno.contract.run import Outcome
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.load.verify import judge
from tests.load.contract_target import answer_of

KEY = b"0123456789abcdef"
ORDER = order_id(7, Stage.MEASURE, 42)
CHAIN, PARALLEL = SCENARIOS["chain"], SCENARIOS["parallel"]


def body_of(index=42, key=KEY, parallel=False) -> dict:
    scenario = PARALLEL if parallel else CHAIN
    request = scenario.request(7, Stage.MEASURE, index, 1000)
    return msgspec.json.decode(msgspec.json.encode(answer_of(request, key, parallel=parallel)))


def outcome_of(body, scenario=CHAIN, status=200):
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    judged = judge(status, data, ORDER, KEY, scenario)
    return judged.outcome, judged.reason


def test_the_right_work_is_ok_and_its_usage_is_told():
    judged = judge(200, msgspec.json.encode(body_of()), ORDER, KEY, CHAIN)
    assert judged.outcome is Outcome.OK
    assert judged.reason is None
    assert judged.usage.llm_calls == 4


@given(st.permutations(range(3)))
def test_parallel_calls_may_come_in_any_order(order):
    body = body_of(parallel=True)
    body["tool_calls"] = [body["tool_calls"][i] for i in order]
    assert outcome_of(body, PARALLEL) == (Outcome.OK, None)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (429, Outcome.REJECTED),
        (504, Outcome.TIMEOUT),
        (500, Outcome.FAILED),
        (302, Outcome.FAILED),
        (204, Outcome.FAILED),
    ],
)
def test_other_statuses(status, outcome):
    assert outcome_of(body_of(), status=status) == (outcome, f"http_{status}")


def drop_call(draw, body):
    del body["tool_calls"][draw(st.integers(0, 2))]


def repeat_call(draw, body):
    calls = body["tool_calls"]
    calls.insert(draw(st.integers(0, 3)), calls[draw(st.integers(0, 2))])


def reorder_calls(draw, body):
    body["tool_calls"] = draw(st.permutations(body["tool_calls"]).filter(lambda calls: calls != body["tool_calls"]))


def cache_one_call(draw, body):
    i = draw(st.integers(0, 2))
    body["tool_calls"][i] = body_of(index=draw(st.integers(0, 41)))["tool_calls"][i]


def cache_one_result(draw, body):
    i = draw(st.integers(0, 2))
    body["tool_calls"][i]["result"] = body_of(index=draw(st.integers(0, 41)))["tool_calls"][i]["result"]


def mix_two_results(draw, body):
    i = draw(st.integers(0, 2))
    body["tool_calls"][i]["result"] += body_of(index=draw(st.integers(0, 41)))["tool_calls"][i]["result"]


def cache_answer(draw, body):
    body["output"] = body_of(index=draw(st.integers(0, 41)))["output"]


def cache_whole_response(draw, body):
    body.update(body_of(index=draw(st.integers(0, 41))))


def cache_all_but_the_session(draw, body):
    session = body["session_id"]
    body.update(body_of(index=draw(st.integers(0, 41))), session_id=session)


def wrong_key(draw, body):
    body.update(body_of(key=draw(st.binary(min_size=16, max_size=16).filter(lambda key: key != KEY))))


def change_a_token(draw, body):
    token = chain(KEY, ORDER)[draw(st.integers(0, 2))][2]
    at = draw(st.integers(len(token) - 16, len(token) - 1))
    other = draw(st.sampled_from("0123456789abcdef").filter(lambda digit: digit != token[at]))
    changed = token[:at] + other + token[at + 1 :]
    call = next(call for call in body["tool_calls"] if token in call["result"])
    call["result"] = call["result"].replace(token, changed)


def change_a_reference(draw, body):
    body["tool_calls"][draw(st.integers(0, 2))]["arguments"] = {"reference": draw(st.text())}


def add_an_argument(draw, body):
    body["tool_calls"][draw(st.integers(0, 2))]["arguments"]["also"] = draw(st.text())


def rename_a_tool(draw, body):
    call = body["tool_calls"][draw(st.integers(0, 2))]
    call["name"] = draw(
        st.sampled_from(["", "other", *(step.tool for step in STEPS)]).filter(lambda n: n != call["name"])
    )


def fail_a_tool(draw, body):
    body["tool_calls"][draw(st.integers(0, 2))]["error"] = draw(st.text())


def lose_a_result(draw, body):
    body["tool_calls"][draw(st.integers(0, 2))]["result"] = None


def answer_without_the_token(draw, body):
    body["output"] = draw(st.text())


def answer_with_an_earlier_token(draw, body):
    body["output"] = "Your reference is " + chain(KEY, ORDER)[draw(st.integers(0, 1))][2]


def other_session(draw, body):
    body["session_id"] = draw(st.text())


def lose_a_field(draw, body):
    del body[draw(st.sampled_from(sorted(body)))]


MUTATIONS = [
    drop_call,
    repeat_call,
    reorder_calls,
    cache_one_call,
    cache_one_result,
    mix_two_results,
    cache_answer,
    cache_whole_response,
    cache_all_but_the_session,
    wrong_key,
    change_a_token,
    change_a_reference,
    add_an_argument,
    rename_a_tool,
    fail_a_tool,
    lose_a_result,
    answer_without_the_token,
    answer_with_an_earlier_token,
    other_session,
    lose_a_field,
]
REASONS = {"not_contract", "wrong_session", "tool_failed", "wrong_tools", "wrong_result", "wrong_answer"}


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@given(data=st.data())
def test_any_single_mutation_is_a_failed_request(mutate, data):
    body = body_of()
    mutate(data.draw, body)
    outcome, reason = outcome_of(body)
    assert outcome is Outcome.FAILED
    assert reason in REASONS


@pytest.mark.parametrize(
    "mutate",
    [mutate for mutate in MUTATIONS if mutate not in (reorder_calls, answer_with_an_earlier_token, change_a_token)],
    ids=lambda mutate: mutate.__name__,
)
@given(data=st.data())
def test_any_single_mutation_of_parallel_work_is_a_failed_request(mutate, data):
    # The mutations put in work of the chain scenario, or change the parallel one's; either is wrong.
    body = body_of(parallel=True)
    mutate(data.draw, body)
    assert outcome_of(body, PARALLEL)[0] is Outcome.FAILED


@given(st.integers(0, 2))
def test_a_parallel_answer_needs_all_three_tokens(missing):
    body = body_of(parallel=True)
    body["output"] = body["output"].replace(chain(KEY, ORDER, parallel=True)[missing][2], "")
    assert outcome_of(body, PARALLEL) == (Outcome.FAILED, "wrong_answer")


@given(st.integers(0, 10_000))
def test_a_truncated_body_is_a_failed_request(length):
    whole = msgspec.json.encode(body_of())
    assert outcome_of(whole[: length % len(whole)]) == (Outcome.FAILED, "not_contract")


@given(st.one_of(st.binary(), st.text().map(str.encode), st.just(b"[" * 100_000), st.just(b'{"session_id": "\xff"}')))
def test_garbage_is_a_failed_request(garbage):
    assert outcome_of(garbage) == (Outcome.FAILED, "not_contract")


@given(st.binary(min_size=1).filter(lambda data: data.strip()))
def test_something_after_the_body_is_a_failed_request(more):
    assert outcome_of(msgspec.json.encode(body_of()) + more)[0] is Outcome.FAILED


def test_the_other_scenario_is_a_failed_request():
    assert outcome_of(body_of(parallel=True))[0] is Outcome.FAILED
    assert outcome_of(body_of(), PARALLEL)[0] is Outcome.FAILED
