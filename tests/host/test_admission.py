"""The admission limit: beyond it an immediate 429, and every admitted request gives its place back."""

import asyncio

import pytest

from agentdyno.host import app, invocation
from tests.host.adapters import Held, Plain, Streaming
from tests.host.serving import Exchange, counts, make_host, request_body, serving, until


@pytest.mark.parametrize("limit", [1, 3])
async def test_one_more_than_the_limit_is_refused_at_once_and_the_others_go_on(limit):
    held = Held()
    async with serving(Plain(held), admission=limit) as served:
        under_way = [asyncio.ensure_future(served.invoke(session_id=f"s-{n}")) for n in range(limit)]
        await held.until(begun=limit)
        for _ in range(5):
            refused = await served.invoke()  # answered while the others are still held
            assert refused.problem() == (429, "admission")
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["detail"].startswith(f"{limit} requests are in flight, which is the admission limit")
        assert counts(served.host) == {"rejected": 5, "in_flight": limit}
        assert (held.begun, held.cancelled) == (limit, 0)
        held.go.set()
        answers = await asyncio.gather(*under_way)
        assert [answer.json()["session_id"] for answer in answers] == [f"s-{n}" for n in range(limit)]
        assert {answer.json()["output"] for answer in answers} == {"held"}
        assert (await served.invoke()).status == 200
        assert counts(served.host) == {"rejected": 5, "ok": limit + 1, "in_flight": 0}


async def test_a_refusal_does_not_wait_for_the_body():
    held = Held()
    host = make_host(Plain(held), admission=1)
    first, second = Exchange(host), Exchange(host)
    first.give(request_body())
    await held.until(begun=1)
    assert (await second.answer()).problem() == (429, "admission")
    held.go.set()
    assert (await first.answer()).status == 200


async def test_the_other_endpoints_answer_beyond_the_limit():
    held = Held()
    async with serving(Plain(held), admission=1) as served:
        under_way = asyncio.ensure_future(served.invoke())
        await held.until(begun=1)
        assert (await served.ask("GET", "/healthz")).status == 200
        assert (await served.ask("GET", "/metrics")).status == 200
        held.go.set()
        assert (await under_way).status == 200


async def test_admission_off_admits_all():
    held = Held()
    async with serving(Plain(held), admission=None) as served:
        under_way = [asyncio.ensure_future(served.invoke()) for _ in range(100)]
        await held.until(begun=100)
        assert counts(served.host) == {"in_flight": 100}
        held.go.set()
        assert {answer.status for answer in await asyncio.gather(*under_way)} == {200}
        assert counts(served.host) == {"ok": 100, "in_flight": 0}


async def fail(_):
    raise OSError("no")


async def answers(host):
    exchange = Exchange(host)
    exchange.give(request_body())
    await exchange.task


async def fails(host):
    host.adapter.work = fail
    await answers(host)


async def answers_what_json_cannot_carry(host):
    host.adapter.work = returns_half_a_pair
    await answers(host)


async def returns_half_a_pair(_):
    return "\ud800"


async def times_out(host):
    host.adapter.work = Held()
    exchange = Exchange(host)
    exchange.give(request_body(timeout_ms=1))
    await exchange.task


async def loses_its_client(host):
    host.adapter.work = held = Held()
    exchange = Exchange(host)
    exchange.give(request_body())
    await held.until(begun=1)
    exchange.hang_up()
    await exchange.task


async def is_malformed(host):
    exchange = Exchange(host)
    exchange.give(b"{")
    await exchange.task


async def is_too_large(host):
    exchange = Exchange(host)
    exchange.give(b"x" * (app.MAX_BODY_BYTES + 1))
    await exchange.task


async def breaks_off_in_its_body(host):
    exchange = Exchange(host)
    exchange.hang_up()
    await exchange.task


async def is_cancelled_by_the_server(host):
    host.adapter.work = held = Held()
    exchange = Exchange(host)
    exchange.give(request_body())
    await held.until(begun=1)
    exchange.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.task


async def has_a_client_that_stops_reading(host):
    host.adapter = Streaming(lambda _: two_pieces())
    exchange = Exchange(host, stuck_after=2)
    exchange.give(request_body(stream=True, timeout_ms=20))
    await exchange.task


async def two_pieces():
    yield "a"
    yield "b"


ENDS = {
    answers: "ok",
    fails: "error",
    answers_what_json_cannot_carry: "error",
    times_out: "timeout",
    loses_its_client: "client_gone",
    is_malformed: "bad_request",
    is_too_large: "bad_request",
    breaks_off_in_its_body: "client_gone",
    is_cancelled_by_the_server: "error",
    has_a_client_that_stops_reading: "client_gone",
}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_a_request_gives_its_place_back_when_it(end, monkeypatch):
    monkeypatch.setattr(invocation, "_LAST_EVENT_S", 0.01)
    tasks_before = asyncio.all_tasks()
    traces = []
    host = make_host(Plain(), admission=1, on_trace=lambda trace, outcome: traces.append((trace, outcome)))
    for _ in range(3):
        await end(host)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks_before
    assert counts(host) == {ENDS[end]: 3, "in_flight": 0}
    assert [outcome for _, outcome in traces] == [ENDS[end]] * 3
    assert all(trace.closed and trace.end_ns >= trace.start_ns for trace, _ in traces)
    host.adapter = Plain()
    await answers(host)
    assert counts(host)["ok"] == (4 if end is answers else 1)


async def test_a_real_client_that_leaves_gives_its_place_back():
    held = Held()
    async with serving(Plain(held), admission=1) as served:
        connection = await served.connect()
        connection.send("POST", "/agent/invoke", request_body())
        await held.until(begun=1)
        connection.close()
        await held.until(cancelled=1)
        await until(lambda: counts(served.host) == {"client_gone": 1, "in_flight": 0})
        held.go.set()
        assert (await served.invoke()).status == 200
