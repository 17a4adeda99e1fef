"""The three mock tools: the right reference gets the token, anything else a sentence; every call is on record."""

import asyncio
import inspect
import json
import typing
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.proof import Stage, chain, order_id, token
from agentdyno.contract.scenario import BackendTiming, Workload
from agentdyno.contract.timing import parse
from agentdyno.host import tools as tools_module
from agentdyno.host.tools import ToolRefused, build_tools
from agentdyno.host.trace import RequestOver, RequestTrace, open_trace
from tests.host.context import in_request

KEY = b"k" * 16
ORDER = order_id(1, Stage.MEASURE, 7)
NAMES = ("order_status", "refund_policy", "resolution")


def built(timing: BackendTiming | None = None, *, parallel: bool = False, seed: int = 1, on_stray=lambda: None):
    made = build_tools(Workload(seed=seed, timing=timing or BackendTiming()), KEY, parallel=parallel, on_stray=on_stray)
    return {tool.name: tool for tool in made}


async def serve(call, trace: RequestTrace | None = None):
    return await in_request(trace or open_trace(None), call)


@pytest.mark.parametrize("parallel", [False, True])
async def test_right_references_give_the_tokens_of_the_chain(parallel):
    tools, trace = built(parallel=parallel), open_trace(None)
    for name, reference, made in chain(KEY, ORDER, parallel=parallel):
        result = await serve(tools[name].function(reference), trace)
        assert json.loads(result)["reference"] == made
    runs = [(run.name, run.arguments, run.error) for run in trace.tools]
    assert runs == [(name, {"reference": ref}, None) for name, ref, _ in chain(KEY, ORDER, parallel=parallel)]
    assert all(run.end_ns is not None and run.end_ns >= run.start_ns for run in trace.tools)


async def test_a_reference_of_the_step_before_or_after_is_refused_with_a_sentence():
    tools = built()
    links = chain(KEY, ORDER)
    for name, right, _ in links:
        for reference in {ORDER, *(made for _, _, made in links)} - {right}:
            trace = open_trace(None)
            with pytest.raises(ToolRefused, match=f"{name} was called with '{reference}', which is not the reference"):
                await serve(tools[name].function(reference), trace)
            (run,) = trace.tools
            assert run.result is None
            assert run.error is not None
            assert reference in run.error


async def test_a_token_of_another_key_or_order_is_refused():
    tools = built()
    for forged in (token(b"x" * 16, "order_status", ORDER), token(KEY, "order_status", order_id(1, Stage.WARMUP, 7))):
        with pytest.raises(ToolRefused):
            await serve(tools["resolution"].function(forged))
    with pytest.raises(ToolRefused):
        await serve(tools["refund_policy"].function(token(b"x" * 16, "order_status", ORDER)))


@given(st.one_of(st.text(), st.none(), st.integers(), st.lists(st.text()), st.dictionaries(st.text(), st.text())))
def test_whatever_else_is_passed_is_refused_and_its_record_is_json(argument):
    async def run() -> None:
        trace = open_trace(None)
        with pytest.raises(ToolRefused):
            await serve(built()["order_status"].function(argument), trace)
        assert json.loads(msgspec.json.encode([run.as_call() for run in trace.tools]))

    asyncio.run(run())


async def test_text_that_utf_8_cannot_carry_is_refused_and_its_record_is_json():
    trace = open_trace(None)
    with pytest.raises(ToolRefused):
        await serve(built()["order_status"].function("ORD-\ud800"), trace)
    assert msgspec.json.decode(msgspec.json.encode(trace.tools[0].as_call()))["arguments"] == {
        "reference": "ORD-\\ud800"
    }


async def test_a_call_for_a_request_that_is_over_is_refused_and_leaves_no_trace():
    trace = open_trace(None)
    trace.close()
    with pytest.raises(RequestOver, match="order_status"):
        await serve(built()["order_status"].function(ORDER), trace)
    assert trace.tools == []


async def test_a_call_whose_request_ends_while_it_sleeps_gives_no_result(monkeypatch):
    trace = open_trace(None)

    async def the_request_ends(_: float) -> None:
        trace.finish()

    monkeypatch.setattr(tools_module, "asyncio", SimpleNamespace(sleep=the_request_ends))
    tools = built(BackendTiming(tool_latency_ms={"order_status": "const:5"}))
    with pytest.raises(RequestOver):
        await serve(tools["order_status"].function(ORDER), trace)
    (run,) = trace.tools
    assert (run.result, run.error) == (None, "abandoned")


async def test_cancelling_a_sleeping_tool_stops_it_and_is_on_record():
    trace = open_trace(None)
    tools = built(BackendTiming(tool_latency_ms={"order_status": "const:60000"}))
    task = asyncio.ensure_future(serve(tools["order_status"].function(ORDER), trace))
    called = asyncio.Event()
    trace.listener = lambda *_: called.set()
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = trace.tools
    assert (run.result, run.error) == (None, "CancelledError")
    assert run.end_ns is not None


async def slept_s(monkeypatch, tools, links) -> list[float]:
    slept: list[float] = []

    async def record(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(tools_module, "asyncio", SimpleNamespace(sleep=record))
    for name, reference, _ in links:
        await serve(tools[name].function(reference))
    return slept


async def test_the_latency_is_the_draw_for_the_order_and_the_tool_in_any_host_process(monkeypatch):
    timing = BackendTiming(tool_latency_ms=dict.fromkeys(NAMES, "uniform:10:50"))
    links = chain(KEY, ORDER)
    first = await slept_s(monkeypatch, built(timing, seed=5), links)
    expected = [parse("uniform:10:50", seed=5).draw(f"{ORDER}/{name}") / 1000 for name in NAMES]
    assert first == expected
    assert len(set(first)) == 3
    assert await slept_s(monkeypatch, built(timing, seed=5), links) == first
    assert await slept_s(monkeypatch, built(timing, seed=6), links) != first
    other = chain(KEY, order_id(1, Stage.MEASURE, 8))
    assert await slept_s(monkeypatch, built(timing, seed=5), other) != first


async def test_a_tool_without_a_latency_does_not_sleep(monkeypatch):
    timing = BackendTiming(tool_latency_ms={"refund_policy": "const:20"})
    assert await slept_s(monkeypatch, built(timing), chain(KEY, ORDER)) == [0.02]


def test_a_latency_for_a_tool_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="names 'order_statu', but the tools are order_status, refund_policy, resol"):
        built(BackendTiming(tool_latency_ms={"order_statu": "const:5"}))


def test_a_latency_that_is_no_distribution_is_refused():
    with pytest.raises(ValueError, match="'soon' names no distribution"):
        built(BackendTiming(tool_latency_ms={"order_status": "soon"}))


def test_the_functions_are_fit_for_a_framework_to_introspect():
    for name, tool in built().items():
        function = tool.function
        assert (function.__name__, function.__qualname__) == (name, name)
        assert inspect.iscoroutinefunction(function)
        assert function.__annotations__ == {"reference": str, "return": str}
        assert typing.get_type_hints(function) == {"reference": str, "return": str}
        (parameter,) = inspect.signature(function).parameters.values()
        assert (parameter.name, parameter.annotation, parameter.default) == ("reference", str, inspect.Parameter.empty)
        assert inspect.getdoc(function) == tool.description
        assert tool.description.startswith(("Look up", "File"))


def test_the_schemas_say_the_same_as_the_functions():
    assert tuple(built()) == NAMES
    for name, tool in built().items():
        assert set(tool.parameters["properties"]) == set(inspect.signature(tool.function).parameters)
        assert tool.parameters["properties"]["reference"]["type"] == "string"
        assert tool.parameters["required"] == ["reference"]
        schema = tool.openai_schema()
        assert schema == {
            "type": "function",
            "function": {"name": name, "description": tool.description, "parameters": tool.parameters},
        }
        assert json.loads(json.dumps(schema)) == schema


async def test_calls_outside_a_request_work_and_are_counted_as_stray():
    stray: list[None] = []
    tools = built(on_stray=lambda: stray.append(None))
    result = await tools["order_status"].function(ORDER)
    assert json.loads(result)["reference"] == token(KEY, "order_status", ORDER)
    with pytest.raises(ToolRefused):
        await tools["resolution"].function(ORDER)
    assert len(stray) == 2
    await serve(tools["order_status"].function(ORDER))
    assert len(stray) == 2
