"""The agent: order of states, both planners, failures told to the LLM, limits, cancellation, tools that change."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager

import pytest

from lightagent import (
    Agent,
    ChatClient,
    Constant,
    FromInput,
    FromStep,
    LlmResponseError,
    PlanError,
    Retry,
    State,
    StateMachinePlanner,
    Step,
    Tool,
    TurnLimitError,
    UnknownToolError,
)
from tests.lightagent.fake_llm import Events, FakeLlm, Hang, Sleeps, Status, says, streamed


async def double(number: int) -> str:
    """Double a number."""
    return str(number * 2)


async def join(left: str, right: str = "!") -> str:
    """Join two texts."""
    return left + right


@asynccontextmanager
async def agent_with(script, tools=(double, join), **options):
    sleeps = Sleeps()
    async with FakeLlm(script).serve() as llm:
        client = ChatClient(llm.url, "m", sleep=sleeps, random=lambda: 0.0)
        async with Agent(client, tools, **options) as agent:
            agent.sleeps = sleeps
            yield agent, llm


def told(llm, call=-1):
    """What the tool messages of one LLM request say."""
    return [message["content"] for message in llm.requests[call]["messages"] if message["role"] == "tool"]


async def test_states_follow_each_other_and_the_conversation_grows():
    states = []
    script = [says("I look.", ("double", {"number": 4})), says(None, ("join", {"left": "8"})), says("It is 8!")]
    async with agent_with(script, system_prompt="Be brief.", on_state=states.append) as (agent, llm):
        answer = await agent.run("4?", history=[{"role": "user", "content": "before"}])
    assert states == [
        State.PARSE, State.PLAN, State.TOOL, State.PLAN, State.TOOL, State.PLAN, State.REFLECT, State.RESPOND,
    ]  # fmt: skip
    assert (answer.text, answer.llm_calls, answer.prompt_tokens, answer.completion_tokens) == ("It is 8!", 3, 21, 9)
    assert [(result.call.name, result.text, result.ok) for result in answer.results] == [
        ("double", "8", True),
        ("join", "8!", True),
    ]
    assert [tool["function"]["name"] for tool in llm.requests[0]["tools"]] == ["double", "join"]
    assert llm.requests[2]["messages"][:5] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "before"},
        {"role": "user", "content": "4?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "id-0-double",
                    "type": "function",
                    "function": {"name": "double", "arguments": '{"number": 4}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "id-0-double", "content": "8"},
    ]


async def test_calls_of_one_turn_run_at_once_and_answer_in_order():
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        """Returns only when called twice at once."""
        await both.wait()
        return name

    script = [says(None, ("meet", {"name": "a"}), ("meet", {"name": "b"})), says("met")]
    async with agent_with(script, [meet]) as (agent, llm):
        assert (await agent.run("go")).text == "met"
    assert told(llm) == ["a", "b"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("double", '{"number": '), "The arguments are not valid JSON"),
        (("double", "[4]"), "The arguments must be a JSON object, not: [4]"),
        (("double", {"number": "four"}), "number must be an integer, not 'four'."),
        (("double", {}), "double needs the parameter 'number'."),
        (("triple", {"number": 4}), "There is no tool 'triple'; the tools are: double, join."),
    ],
)
async def test_a_wrong_call_is_told_to_the_llm_which_may_try_again(call, said):
    script = [says(None, call), says(None, ("double", {"number": 4})), says("8")]
    async with agent_with(script) as (agent, llm):
        answer = await agent.run("go")
    assert (answer.text, [result.ok for result in answer.results]) == ("8", [False, True])
    assert said in json.loads(told(llm, 1)[0])["error"]
    # No server is sent arguments back that it could not parse.
    sent = llm.requests[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(sent), dict)


async def test_a_tool_that_fails_is_told_and_not_repeated_unless_it_may_be():
    began = []

    async def once() -> str:
        """Fails."""
        began.append("once")
        raise ValueError("no such order")

    async def often() -> str:
        """Fails twice."""
        began.append("often")
        if began.count("often") < 3:
            raise ConnectionError("gone")
        return "at last"

    tools = [once, Tool.from_function(often, retry=Retry(attempts=3, base_s=1.0))]
    script = [says(None, ("once", {})), says(None, ("often", "")), says("done")]
    async with agent_with(script, tools) as (agent, llm):
        answer = await agent.run("go")
    assert began == ["once", "often", "often", "often"]
    assert agent.sleeps.asked_s == [1.0, 2.0]
    assert [(result.ok, result.attempts) for result in answer.results] == [(False, 1), (True, 3)]
    assert told(llm) == ['{"error":"once failed: ValueError: no such order"}', "at last"]


async def test_a_tool_is_stopped_at_its_timeout():
    stopped = asyncio.Event()

    async def slow() -> str:
        """Takes for ever."""
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return "never"

    script = [says(None, ("slow", {})), says("done")]
    async with agent_with(script, [Tool.from_function(slow, timeout_s=0.02)]) as (agent, llm):
        assert (await agent.run("go")).text == "done"
    assert stopped.is_set()
    assert told(llm) == ['{"error":"slow was stopped because it took longer than 0.02 s."}']


async def test_a_timeout_of_the_tools_own_is_not_taken_for_ours():
    async def own() -> str:
        """Times out inside."""
        raise TimeoutError("database")

    async with agent_with([says(None, ("own", {})), says("done")], [own]) as (agent, llm):
        await agent.run("go")
    assert told(llm) == ['{"error":"own failed: TimeoutError: database"}']


async def test_results_that_are_no_text_become_json():
    async def facts() -> dict:
        """Facts."""
        return {"n": 1}

    async with agent_with([says(None, ("facts", {})), says("done")], [facts]) as (agent, llm):
        await agent.run("go")
    assert told(llm) == ['{"n":1}']


async def test_the_turn_limit_ends_an_llm_that_never_answers():
    ran = []

    async def again() -> str:
        """Again."""
        ran.append(1)
        return "more"

    async with agent_with(lambda body: says(None, ("again", {})), [again], max_turns=3) as (agent, llm):
        with pytest.raises(TurnLimitError, match="no answer after 3 LLM calls"):
            await agent.run("go")
    assert (len(llm.requests), len(ran)) == (3, 3)


async def test_the_answer_may_take_the_last_turn():
    async with agent_with([says(None, ("double", {"number": 1})), says("2")], max_turns=2) as (agent, _):
        assert (await agent.run("go")).text == "2"


async def test_an_empty_answer_is_an_error():
    async with agent_with([says(None)]) as (agent, _):
        with pytest.raises(LlmResponseError, match="no text"):
            await agent.run("go")


async def test_retries_are_counted_per_request():
    async with agent_with([Status(500), says(None, ("double", {"number": 1})), Status(429), says("2")]) as (agent, _):
        answer = await agent.run("go")
    assert (answer.llm_calls, answer.retries) == (2, 2)


async def test_streams_the_answer_after_tools():
    script = [says(None, ("double", {"number": 4}), ("join", {"left": "ä"})), says("It is 8, schön.")]
    async with agent_with(script) as (agent, llm):
        pieces = [piece async for piece in agent.stream("go")]
    assert len(pieces) > 3
    assert "".join(pieces) == "It is 8, schön."
    assert told(llm) == ["8", "ä!"]


async def test_text_arrives_before_the_stream_has_ended():
    body = streamed(says("early late"))
    at = body.index(b"rl")
    at = body.index(b"\n\n", at) + 2
    go_on = asyncio.Event()

    class Held(FakeLlm):
        async def write_events(self, request, events):
            response = await super().write_events(request, Events([body[:at]]))
            await go_on.wait()
            await response.write(body[at:])
            return response

    async with Held(lambda _: says("early late")).serve() as llm, Agent(ChatClient(llm.url, "m")) as agent:
        stream = agent.stream("go")
        assert [await anext(stream), await anext(stream)] == ["ea", "rl"]
        go_on.set()
        assert "".join([piece async for piece in stream]) == "y late"


async def test_errors_come_out_of_a_stream():
    async with agent_with([Status(400, body="bad")]) as (agent, _):
        with pytest.raises(Exception, match="answered 400: bad"):
            [piece async for piece in agent.stream("go")]


async def test_cancelling_stops_every_tool_under_way():
    began, stopped = asyncio.Barrier(3), []

    async def wait(name: str) -> str:
        """Waits."""
        try:
            await began.wait()
            await asyncio.sleep(3600)
        finally:
            stopped.append(name)
        return name

    script = [says(None, ("wait", {"name": "a"}), ("wait", {"name": "b"}))]
    async with agent_with(script, [Tool.from_function(wait, retry=Retry())]) as (agent, llm):
        run = asyncio.create_task(agent.run("go"))
        await began.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert sorted(stopped) == ["a", "b"]
    assert (len(llm.requests), agent.sleeps.asked_s) == (1, [])


async def test_closing_a_stream_hangs_up_and_leaves_no_task():
    async with agent_with([says("first")]) as (agent, llm):
        llm.script = lambda body: Hang() if len(llm.requests) > 1 else says("x", ("double", {"number": 1}))
        stream = agent.stream("go")
        assert await anext(stream) == "x"
        before = asyncio.all_tasks()
        llm.asked.clear()
        while len(llm.requests) < 2:
            await llm.asked.wait()
            llm.asked.clear()
        await stream.aclose()
        await asyncio.wait_for(llm.hung_up.wait(), 10)
        assert not [task for task in before if "_advance" in repr(task) and not task.done()]


async def test_a_request_under_way_keeps_the_tools_it_began_with():
    entered, leave = asyncio.Event(), asyncio.Event()

    async def first() -> str:
        """First."""
        entered.set()
        await leave.wait()
        return "one"

    async def later() -> str:
        """Later."""
        return "two"

    script = [says(None, ("first", {})), says(None, ("first", {})), says("a"), says("b")]
    async with agent_with(script, [first]) as (agent, llm):
        run = asyncio.create_task(agent.run("go"))
        await entered.wait()
        agent.add_tool(later)
        agent.remove_tool("first")
        leave.set()
        assert (await run).text == "a"
        assert told(llm) == ["one", "one"]
        await agent.run("next")
        with pytest.raises(UnknownToolError):
            agent.remove_tool("first")
    offered = [[tool["function"]["name"] for tool in request["tools"]] for request in llm.requests]
    assert offered == [["first"], ["first"], ["first"], ["later"]]


async def test_a_request_may_name_its_tools():
    async with agent_with([says(None, ("double", {"number": 1})), says("done")]) as (agent, llm):
        await agent.run("go", tools=["join"])
        with pytest.raises(UnknownToolError):
            await agent.run("go", tools=["jion"])
    assert [tool["function"]["name"] for tool in llm.requests[0]["tools"]] == ["join"]
    assert "the tools are: join" in told(llm)[0]


async def test_without_tools_none_are_offered():
    async with agent_with([says("hello")], []) as (agent, llm):
        assert (await agent.run("hi")).text == "hello"
    assert llm.requests == [{"model": "m", "messages": [{"role": "user", "content": "hi"}]}]


CHAIN = [
    Step("double", {"number": FromInput(r"n=(\d+)")}),  # a text: the tool's own check refuses it
]
WORDS = [
    Step("join", {"left": FromInput(r"w=(\w+)")}, name="one"),
    Step("join", {"left": FromStep("one"), "right": Constant("?")}, name="two"),
    Step("join", {"left": FromStep("two", r"^\w")}, name="three"),
    Step("join", {"left": Constant("c")}, name="beside"),
]


async def test_declared_steps_run_without_the_llm_and_it_sees_all_results():
    states, marked = [], []

    @contextmanager
    def planning():
        marked.append("begin")
        yield
        marked.append("end")

    planner = StateMachinePlanner(WORDS, planning=planning)
    async with agent_with([says("done")], planner=planner, on_state=states.append) as (agent, llm):
        answer = await agent.run("please w=ab now")
    assert (answer.text, answer.llm_calls) == ("done", 1)
    # "one" and "beside" wait for nothing and make one turn.
    assert told(llm) == ["ab!", "c!", "ab!?", "a!"]
    turns = [len(message["tool_calls"]) for message in llm.requests[0]["messages"] if message["role"] == "assistant"]
    assert turns == [2, 1, 1]
    ids = [message["tool_call_id"] for message in llm.requests[0]["messages"] if message["role"] == "tool"]
    assert len(set(ids)) == 4
    assert "tools" not in llm.requests[0]
    assert states == [State.PARSE, *[State.PLAN, State.TOOL] * 3, State.PLAN, State.REFLECT, State.RESPOND]
    assert marked == ["begin", "end"] * 4


async def test_steps_without_their_argument_or_tool_are_left_out():
    planner = StateMachinePlanner(WORDS)
    async with agent_with(lambda body: says("done"), planner=planner) as (agent, llm):
        await agent.run("nothing here")
        assert told(llm) == ["c!"]
        await agent.run("w=ab", tools=["double"])
        assert told(llm) == []


async def test_what_follows_a_failed_step_is_left_out():
    steps = [*CHAIN, Step("join", {"left": FromStep("double", r"\w+")})]
    async with agent_with([says("sorry")], planner=StateMachinePlanner(steps)) as (agent, llm):
        assert (await agent.run("n=4")).text == "sorry"
    assert len(told(llm)) == 1
    assert "number must be an integer" in told(llm)[0]


async def test_steps_stream_their_answer():
    async with agent_with([says("done, all of it")], planner=StateMachinePlanner(WORDS)) as (agent, _):
        assert "".join([piece async for piece in agent.stream("w=ab")]) == "done, all of it"


async def test_an_llm_that_asks_for_tools_while_reflecting_is_an_error():
    async with agent_with([says(None, ("join", {"left": "x"}))], planner=StateMachinePlanner(WORDS)) as (agent, _):
        with pytest.raises(LlmResponseError, match="no tool that it was offered"):
            await agent.run("w=ab")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([Step("a", {"x": FromStep("b")})], "'a' refers to 'b', but the plan has no such step"),
        ([Step("a", after=("b",)), Step("b", {"x": FromStep("a")})], "wait for each other: a, b, a|b, a, b"),
        ([Step("a"), Step("a")], "the same name"),
        ([Step("a", {"x": FromInput("(")})], "no regular expression"),
    ],
)
def test_plans_that_cannot_work_are_refused(steps, said):
    with pytest.raises(PlanError, match=said):
        StateMachinePlanner(steps)


async def test_many_requests_at_once_do_not_mix():
    def script(body):
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        number = int(body["messages"][0]["content"])
        return says(f"{number}:{results[0]}") if results else says(None, ("double", {"number": number}))

    async with agent_with(script) as (agent, _):
        answers = await asyncio.gather(*(agent.run(str(number)) for number in range(50)))
    assert [answer.text for answer in answers] == [f"{number}:{2 * number}" for number in range(50)]
