"""Streamed answers: events in order, what came before a failure, and nothing after the last event."""

import asyncio
import logging
from contextlib import suppress

import pytest

from agentdyno.contract.scenario import BackendTiming
from agentdyno.host import invocation
from tests.host.adapters import LINKS, ORDER, Held, Plain, Streaming
from tests.host.serving import Exchange, make_host, parse_events, request_body, serving


async def chain_then_answer(adapter: Streaming):
    for name, reference, _ in LINKS:
        await adapter.tools[name](reference)
    for piece in ("It is ", "done: ", "ü\n\n", LINKS[-1][2]):
        yield piece


async def test_events_come_in_order_and_the_pieces_join_to_the_final_output():
    async with serving(Streaming(chain_then_answer)) as served:
        answer = await served.invoke(stream=True)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    found = parse_events(answer.body)
    assert [kind for kind, _ in found] == ["tool_call", "tool_result"] * 3 + ["token"] * 4 + ["final"]
    for (name, reference, made), (_, call), (_, result) in zip(LINKS, found[0:6:2], found[1:6:2], strict=True):
        assert call == {"name": name, "arguments": {"reference": reference}, "result": None, "error": None}
        assert {**result, "result": None} == call
        assert made in result["result"]
    final = found[-1][1]
    assert "".join(data["text"] for kind, data in found if kind == "token") == final["output"]
    assert final["output"] == f"It is done: ü\n\n{LINKS[-1][2]}"
    assert final["session_id"] == "s-1"
    assert final["tool_calls"] == [data for kind, data in found if kind == "tool_result"]
    assert final["usage"]["tool_calls"] == 3


async def test_the_final_event_is_the_answer_that_is_not_streamed():
    streaming = Streaming(chain_then_answer)
    streaming.work = lambda request: joined(streaming)
    async with serving(streaming) as served:
        streamed = parse_events((await served.invoke(stream=True)).body)[-1]
        assert streamed == ("final", (await served.invoke()).json())


async def joined(adapter: Streaming) -> str:
    return "".join([piece async for piece in chain_then_answer(adapter)])


async def test_events_are_sent_as_they_happen():
    held = Held()

    async def pieces(adapter: Streaming):
        yield "a"
        await held(None)
        await adapter.tools["order_status"](ORDER)
        yield "b"

    async with serving(Streaming(pieces)) as served:
        connection = await served.connect()
        connection.send("POST", "/agent/invoke", request_body(stream=True))
        await connection.head()
        assert await connection.event() == ("token", {"text": "a"})
        held.go.set()  # only now, so that the first event did not wait for the next
        assert [(await connection.event())[0] for _ in range(4)] == ["tool_call", "tool_result", "token", "final"]


async def test_an_empty_stream_has_only_its_final_event():
    async def pieces(_):
        for _ in ():
            yield ""

    async with serving(Streaming(pieces)) as served:
        ((kind, data),) = parse_events((await served.invoke(stream=True)).body)
    assert (kind, data["output"]) == ("final", "")


async def test_a_refused_tool_call_is_an_event_too():
    async def pieces(adapter: Streaming):
        try:
            await adapter.tools["resolution"](ORDER)
        except ValueError:
            yield "sorry"

    async with serving(Streaming(pieces)) as served:
        found = parse_events((await served.invoke(stream=True)).body)
    assert [kind for kind, _ in found] == ["tool_call", "tool_result", "token", "final"]
    assert found[1][1]["result"] is None
    assert "is not the reference that step needs" in found[1][1]["error"]


async def test_a_failure_in_mid_stream_is_an_error_event_after_what_came_before():
    async def pieces(adapter: Streaming):
        await adapter.tools["order_status"](ORDER)
        yield "a"
        raise LookupError("lost")

    async with serving(Streaming(pieces)) as served:
        answer = await served.invoke(stream=True)
        assert answer.status == 200
        found = parse_events(answer.body)
        assert [kind for kind, _ in found] == ["tool_call", "tool_result", "token", "error"]
        assert found[-1][1] == {
            "title": "The framework failed",
            "status": 500,
            "code": "framework_error",
            "detail": "LookupError: lost",
        }
        assert await served.outcome() == "error"


async def test_a_failure_before_the_first_byte_is_a_problem():
    async def pieces(_):
        raise LookupError("lost")
        yield ""

    async with serving(Streaming(pieces)) as served:
        answer = await served.invoke(stream=True)
    assert answer.problem() == (500, "framework_error")
    assert answer.json()["detail"] == "LookupError: lost"


async def test_a_time_out_in_mid_stream_is_an_error_event():
    async def pieces(_):
        yield "a"
        await asyncio.Event().wait()

    async with serving(Streaming(pieces)) as served:
        found = parse_events((await served.invoke(stream=True, timeout_ms=500)).body)
        assert [kind for kind, _ in found] == ["token", "error"]
        assert (found[-1][1]["status"], found[-1][1]["code"]) == (504, "timeout")
        assert await served.outcome() == "timeout"


async def test_a_time_out_before_the_first_byte_is_a_problem():
    async def pieces(_):
        await asyncio.Event().wait()
        yield ""

    async with serving(Streaming(pieces)) as served:
        assert (await served.invoke(stream=True, timeout_ms=20)).problem() == (504, "timeout")


async def test_nothing_follows_the_last_event_when_tools_are_cancelled_in_tasks_of_their_own(caplog):
    caplog.set_level(logging.WARNING)

    async def pieces(adapter: Streaming):
        await asyncio.gather(*(adapter.tools["order_status"](ORDER) for _ in range(3)))
        yield ""

    timing = BackendTiming(tool_latency_ms={"order_status": "const:60000"})
    host = make_host(Streaming(pieces), timing=timing)
    host.adapter.tools = {tool.name: tool.function for tool in host._tools.values()}
    exchange = Exchange(host)
    exchange.give(request_body(stream=True, timeout_ms=300))
    answer = await exchange.answer()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(exchange.sent) == 5  # the head, three calls, the error
    assert [kind for kind, _ in parse_events(answer.body)] == ["tool_call"] * 3 + ["error"]
    assert caplog.records == []


@pytest.mark.parametrize("first", ["before", "after"])
async def test_nothing_follows_the_last_event_when_a_framework_swallows_its_cancellation(first, caplog, capsys):
    caplog.set_level(logging.WARNING)
    ended, went_on = asyncio.Event(), []

    async def pieces(_):
        try:
            if first == "after":
                yield "a"
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            for number in range(10):
                went_on.append(number)
                yield str(number)
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with serving(Streaming(pieces)) as served:
        answer = await served.invoke(stream=True, timeout_ms=500)
        await asyncio.wait_for(ended.wait(), 10)
        assert went_on == [0]
        if first == "after":
            assert [kind for kind, _ in parse_events(answer.body)] == ["token", "error"]
        else:
            assert answer.problem() == (504, "timeout")
    assert (caplog.records, capsys.readouterr().err) == ([], "")


@pytest.mark.parametrize("piece", [5, None, "\ud800", b"bytes"])
async def test_a_piece_that_is_no_text_is_the_frameworks_failure(piece):
    async def pieces(_):
        yield piece

    async with serving(Streaming(pieces)) as served:
        answer = await served.invoke(stream=True)
        assert await served.outcome() == "error"
    detail = answer.json()["detail"] if answer.status == 500 else parse_events(answer.body)[-1][1]["detail"]
    assert "Error: " in detail


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_an_adapter_whose_stream_is_a_coroutine_fails_with_a_sentence():
    class Wrong(Plain):
        async def stream(self, request):
            return "text"

    async with serving(Wrong()) as served:
        answer = await served.invoke(stream=True)
    assert answer.problem() == (500, "framework_error")
    assert "async for" in answer.json()["detail"]


async def test_a_client_that_does_not_read_is_given_up(monkeypatch):
    monkeypatch.setattr(invocation, "_LAST_EVENT_S", 0.02)

    async def pieces(_):
        for _ in range(400):
            yield "x" * 100_000  # beyond what the kernel and the server hold for a client

    async with serving(Streaming(pieces), admission=1) as served:
        connection = await served.connect()
        connection.send("POST", "/agent/invoke", request_body(stream=True, timeout_ms=200))
        assert await served.outcome() == "client_gone"
        connection.close()
        served.host.adapter.pieces = lambda _: one()
        assert (await served.invoke(stream=True)).status == 200


async def one():
    yield "a"


async def test_concurrent_streams_do_not_mix():
    gate = asyncio.Event()

    class Named(Plain):
        async def stream(self, request):
            for number in range(5):
                yield f"{request.session_id}:{number} "
                await gate.wait() if number == 0 else await asyncio.sleep(0)
                await self.tools["order_status"](ORDER)

    async with serving(Named()) as served:
        asked = [asyncio.ensure_future(served.invoke(stream=True, session_id=f"s-{n}")) for n in range(10)]
        await asyncio.sleep(0.01)
        gate.set()
        for number, answer in enumerate(await asyncio.gather(*asked)):
            found = parse_events(answer.body)
            assert [kind for kind, _ in found] == ["token", "tool_call", "tool_result"] * 5 + ["final"]
            assert found[-1][1]["output"] == "".join(f"s-{number}:{n} " for n in range(5))
            assert len(found[-1][1]["tool_calls"]) == 5
