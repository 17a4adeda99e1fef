"""Time-outs and clients that leave: the work is cancelled, and what goes on all the same can do nothing more."""

import asyncio
from contextlib import suppress

import pytest

from agentdyno.contract.scenario import BackendTiming
from agentdyno.host import border
from agentdyno.host.trace import RequestOver
from tests.host.adapters import LINKS, ORDER, Held, Plain, Streaming
from tests.host.clients import LIBRARIES, Client
from tests.host.fake_llm import FakeLlm
from tests.host.serving import Exchange, counts, make_host, request_body, serving

SLOW_TOOLS = BackendTiming(tool_latency_ms={name: "const:60000" for name, _, _ in LINKS})


async def test_a_time_out_is_a_504_and_cancels_the_frameworks_task():
    held = Held()
    async with serving(Plain(held)) as served:
        answer = await served.invoke(timeout_ms=20)
        assert answer.problem() == (504, "timeout")
        assert answer.json()["detail"] == "The framework did not answer within 20 ms."
        await held.until(cancelled=1)
        assert counts(served.host) == {"timeout": 1, "in_flight": 0}


async def test_a_sleeping_tool_stops_with_its_request():
    adapter = Plain()
    adapter.work = adapter.work_the_chain
    async with serving(adapter, timing=SLOW_TOOLS) as served:
        assert (await served.invoke(timeout_ms=20)).status == 504
        ((trace, outcome),) = served.traces
        await asyncio.sleep(0)
        assert outcome == "timeout"
        (run,) = trace.tools
        assert (run.name, run.result, run.error, run.end_ns) == ("order_status", None, "abandoned", trace.end_ns)
        assert not [task for task in asyncio.all_tasks() if "work_the_chain" in repr(task)]


async def test_a_sleeping_tool_in_a_task_of_its_own_stops_too():
    adapter = Plain()

    async def in_parallel(_):
        await asyncio.gather(*(tool(ORDER) for tool in [adapter.tools["order_status"]] * 3))

    adapter.work = in_parallel
    async with serving(adapter, timing=SLOW_TOOLS) as served:
        assert (await served.invoke(timeout_ms=300)).status == 504
        for _ in range(5):
            await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if "order_status" in repr(task)]
        ((trace, _),) = served.traces
    assert [run.error for run in trace.tools] == ["abandoned"] * 3


class Stubborn:
    """Swallows its cancellation and then tries to go on: `then` says what it tries, `error` what came of it."""

    def __init__(self, then) -> None:
        self.then = then
        self.error: BaseException | None = None
        self.ended = asyncio.Event()

    async def __call__(self, _):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        try:
            await self.then()
        except BaseException as error:
            self.error = error
        self.ended.set()
        return "too late"


async def test_a_framework_that_swallows_its_cancellation_gets_its_504_and_no_more_tools():
    adapter = Plain()
    adapter.work = stubborn = Stubborn(lambda: adapter.tools["order_status"](ORDER))
    async with serving(adapter) as served:
        assert (await served.invoke(timeout_ms=20)).problem() == (504, "timeout")
        await stubborn.ended.wait()
        assert isinstance(stubborn.error, RequestOver)
        ((trace, _),) = served.traces
        assert trace.tools == []
        assert counts(served.host) == {"timeout": 1, "in_flight": 0}


async def test_what_is_over_is_over_while_its_504_is_still_being_sent():
    adapter = Plain()
    adapter.work = stubborn = Stubborn(lambda: adapter.tools["order_status"](ORDER))
    host = make_host(adapter)
    adapter.tools = {name: tool.function for name, tool in host._tools.items()}
    exchange = Exchange(host, stuck_after=1)
    exchange.give(request_body(timeout_ms=20))
    await stubborn.ended.wait()
    assert not exchange.task.done()
    assert isinstance(stubborn.error, RequestOver)
    exchange.task.cancel()


async def test_a_504_does_not_wait_for_a_framework_that_never_ends():
    go = asyncio.Event()
    adapter = Plain()
    adapter.work = stubborn = Stubborn(go.wait)
    async with serving(adapter) as served:
        assert (await served.invoke(timeout_ms=20)).status == 504
        assert not stubborn.ended.is_set()
        go.set()
        await stubborn.ended.wait()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_framework_that_swallows_its_cancellation_gets_no_more_llm_calls(library, unwrapped):
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        adapter = Plain()
        adapter.work = stubborn = Stubborn(lambda: client.post(llm.url))
        async with serving(adapter) as served:
            assert (await served.invoke(timeout_ms=20)).status == 504
            await stubborn.ended.wait()
        assert isinstance(stubborn.error, RequestOver)
        assert llm.asked == []


async def test_a_client_that_leaves_cancels_the_work():
    held = Held()
    async with serving(Plain(held)) as served:
        connection = await served.connect()
        connection.send("POST", "/agent/invoke", request_body())
        await held.until(begun=1)
        connection.close()
        await held.until(cancelled=1)
        assert await served.outcome() == "client_gone"


async def test_a_client_that_leaves_in_mid_stream_cancels_the_work():
    held = Held()

    async def pieces(_):
        yield "a"
        yield await held(None)

    async with serving(Streaming(pieces)) as served:
        connection = await served.connect()
        connection.send("POST", "/agent/invoke", request_body(stream=True))
        assert (await connection.head()).status == 200
        assert await connection.event() == ("token", {"text": "a"})
        await held.until(begun=1)
        connection.close()
        await held.until(cancelled=1)
        assert await served.outcome() == "client_gone"
        assert counts(served.host) == {"client_gone": 1, "in_flight": 0}


async def test_a_client_that_leaves_before_the_stream_begins_cancels_the_work():
    held = Held()

    async def pieces(_):
        yield await held(None)

    async with serving(Streaming(pieces)) as served:
        connection = await served.connect()
        connection.send("POST", "/agent/invoke", request_body(stream=True))
        await held.until(begun=1)
        connection.close()
        await held.until(cancelled=1)
        assert await served.outcome() == "client_gone"


async def test_a_server_that_gives_a_request_up_cancels_the_work():
    held = Held()
    exchange = Exchange(make_host(Plain(held)))
    exchange.give(request_body())
    await held.until(begun=1)
    exchange.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.task
    await held.until(cancelled=1)


async def test_one_time_out_leaves_the_others_alone():
    held = Held()
    async with serving(Plain(held)) as served:
        staying = asyncio.ensure_future(served.invoke())
        await held.until(begun=1)
        assert (await served.invoke(timeout_ms=20)).status == 504
        held.go.set()
        assert (await staying).status == 200
    assert held.cancelled == 1
